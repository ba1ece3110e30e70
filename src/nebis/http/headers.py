"""Header fields as an application sees them: names and values as text, in the order in which they came."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from nebis.errors import HeaderRepeated, KeyRepeated

HeaderPairs: TypeAlias = tuple[tuple[str, str], ...]
"""Text is Latin-1, as header bytes are: every byte has one character and comes back as it was."""

_NAME_CHARACTERS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
# One class and no alternative, so that it never backtracks (SEC37).
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_WHITESPACE = " \t"
# Either decides who asks, or how the body is read: with two of them, two readers may each take another one.
_ONCE = {"authorization": "Authorization", "content-type": "Content-Type"}
_ABOUT_BODY = frozenset({b"content-type", b"content-encoding"})


def decoded(raw: Iterable[tuple[bytes, bytes]]) -> HeaderPairs:
    """Turn header bytes into text."""
    return tuple([(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw])


def about_body(raw: Iterable[tuple[bytes, bytes]]) -> HeaderPairs:
    """Turn those header bytes into text that say how a body is read: all that `is_json` looks at."""
    return tuple(
        [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw if name.lower() in _ABOUT_BODY]
    )


def encoded(pairs: HeaderPairs) -> list[tuple[bytes, bytes]]:
    """Turn header text back into its bytes, names in lower case."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def values(pairs: HeaderPairs, name: str) -> list[str]:
    """Return every value of one header, without the white space around it."""
    wanted = name.lower()
    return [value.strip(_WHITESPACE) for found, value in pairs if found.lower() == wanted]


def key_value(pairs: HeaderPairs, header: str) -> str | None:
    """Return the one key that was sent, not yet parsed, or None; two of them are `KeyRepeated` (F090).

    A comma means two as well, even inside quotes: gateways and WSGI servers join two headers with one, and what they
    joined may look like a single quoted key.
    """
    found = values(pairs, header)
    if not found:
        return None
    if len(found) > 1 or "," in found[0]:
        raise KeyRepeated(header)
    return found[0]


def require_once(pairs: HeaderPairs) -> None:
    """Refuse a request whose identity or body could be read in two ways."""
    names = [name.lower() for name, _ in pairs]
    for lowered, name in _ONCE.items():
        if names.count(lowered) > 1:
            raise HeaderRepeated(name)


def is_json(pairs: HeaderPairs) -> bool:
    """Tell whether the body says that it is JSON, in bytes that can be read as they are."""
    content_type = None
    for name, value in pairs:
        lowered = name.lower()
        if lowered == "content-encoding" and value.strip(_WHITESPACE).lower() not in ("", "identity"):
            return False
        if lowered == "content-type" and content_type is None:
            content_type = value
    media_type = (content_type or "").partition(";")[0].strip(_WHITESPACE).lower()
    return media_type == "application/json" or media_type.endswith("+json")


def is_name(text: str) -> bool:
    """Tell whether a header may have this name."""
    return bool(text) and _NAME_CHARACTERS.issuperset(text)


def is_value(text: str) -> bool:
    """Tell whether a header may have this value: nothing that could end it and begin another (SEC15)."""
    return _VALUE.fullmatch(text) is not None
