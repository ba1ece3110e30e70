"""Header fields as an application sees them: names and values as text, in the order in which they came."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from nebis.errors import HeaderRepeated, KeyRepeated

HeaderPairs: TypeAlias = tuple[tuple[str, str], ...]
"""Text is Latin-1, as header bytes are: every byte has one character and comes back as it was."""
RawPairs: TypeAlias = Iterable[tuple[bytes, bytes]]
"""As an ASGI server gives them and takes them."""

_NAME_CHARACTERS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
# One class and no alternative, so that it never backtracks (SEC37).
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_WHITESPACE = " \t"

ALWAYS_READ: Final = frozenset({"authorization", "content-type", "content-encoding"})
"""What `require_once` and `is_json` look at, in lower case."""


def decoded(raw: RawPairs) -> HeaderPairs:
    """Turn header bytes into text."""
    return tuple([(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw])


def names_of(names: Iterable[str]) -> Mapping[bytes, str]:
    """Return what `picked` looks for: each name as it comes, and as text that all requests share."""
    return {name.lower().encode("latin-1"): name.lower() for name in names}


def picked(raw: RawPairs, wanted: Mapping[bytes, str]) -> HeaderPairs:
    """Turn only those header bytes into text that somebody asks for: most of what a client sends nobody does."""
    found = []
    for name, value in raw:
        # Servers send them in lower case already, as they should.
        text = wanted.get(name if name.islower() else name.lower())
        if text is not None:
            found.append((text, value.decode("latin-1")))
    return tuple(found)


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
    wanted, found = header.lower(), None
    for name, value in pairs:
        if name.lower() == wanted:
            if found is not None or "," in value:
                raise KeyRepeated(header)
            found = value.strip(_WHITESPACE)
    return found


def require_once(pairs: HeaderPairs) -> None:
    """Refuse a request whose identity or body could be read in two ways: two readers may each take another header."""
    has_credentials = has_type = is_repeated = False
    for name, _ in pairs:
        lowered = name.lower()
        if lowered == "authorization":
            if has_credentials:
                raise HeaderRepeated("Authorization")
            has_credentials = True
        elif lowered == "content-type":
            is_repeated = is_repeated or has_type
            has_type = True
    if is_repeated:  # Who asks comes first.
        raise HeaderRepeated("Content-Type")


def is_json(pairs: HeaderPairs) -> bool:
    """Tell whether the body says that it is JSON, in bytes that can be read as they are."""
    content_type = None
    for name, value in pairs:
        lowered = name.lower()
        if lowered == "content-encoding" and value.strip(_WHITESPACE).lower() not in ("", "identity"):
            return False
        if lowered == "content-type" and content_type is None:
            content_type = value
    if content_type == "application/json":  # As nearly everybody spells it.
        return True
    media_type = (content_type or "").partition(";")[0].strip(_WHITESPACE).lower()
    return media_type == "application/json" or media_type.endswith("+json")


def is_name(text: str) -> bool:
    """Tell whether a header may have this name."""
    return bool(text) and _NAME_CHARACTERS.issuperset(text)


def is_value(text: str) -> bool:
    """Tell whether a header may have this value: nothing that could end it and begin another (SEC15)."""
    return _VALUE.fullmatch(text) is not None
