"""The grammar of a key: a structured-field string, or the same characters bare."""

from __future__ import annotations

import re
from typing import NewType

from nebis.errors import KeyMalformed

Key = NewType("Key", str)
"""1 to 255 visible ASCII characters, without the quotes and escapes that they may have travelled in."""

LONGEST_KEY = 255
# Two quotes, and every character escaped. Anything longer is refused by its length alone (SEC37).
_LONGEST_SPELLING = 2 + 2 * LONGEST_KEY
_VISIBLE = frozenset(map(chr, range(0x21, 0x7F)))
# In a header these separate list members, parameters and quoted strings: a bare key that has one is two things at once.
_NOT_BARE = frozenset('",;\\')
# The same in one look, which nearly every key passes; the others are read again to say what is wrong with them.
_BARE = re.compile(f"[{re.escape(''.join(sorted(_VISIBLE - _NOT_BARE)))}]*")
_PLAIN_IN_QUOTES = _VISIBLE - frozenset('"\\')
_QUOTED = re.compile(f'"([{re.escape("".join(sorted(_PLAIN_IN_QUOTES)))}]*)"')


def parse_key(raw: str) -> Key:
    """Read a key in either spelling, or raise `KeyMalformed` with a reason that never repeats it (SEC05)."""
    if len(raw) > _LONGEST_SPELLING:
        raise KeyMalformed(f"it has more than {LONGEST_KEY} characters")
    characters = _unquoted(raw) if raw.startswith('"') else _bare(raw)
    if not characters:
        raise KeyMalformed("it is empty")
    if len(characters) > LONGEST_KEY:
        raise KeyMalformed(f"it has more than {LONGEST_KEY} characters")
    return Key(characters)


def _bare(raw: str) -> str:
    if _BARE.fullmatch(raw):
        return raw
    _require_visible(next(character for character in raw if character not in _VISIBLE or character in _NOT_BARE))
    raise KeyMalformed("it has a quote, comma, semicolon or backslash; put the whole key in double quotes")


def _unquoted(raw: str) -> str:
    plain = _QUOTED.fullmatch(raw)
    if plain is not None:
        return plain[1]
    characters: list[str] = []
    rest = iter(raw[1:])
    for character in rest:
        if character == '"':
            if next(rest, None) is not None:
                raise KeyMalformed("something follows its closing quote; send one string without parameters")
            return "".join(characters)
        if character == "\\":
            escaped = next(rest, "")
            if escaped not in ('"', "\\"):
                raise KeyMalformed("a backslash may only stand before a quote or another backslash")
            characters.append(escaped)
        else:
            _require_visible(character)
            characters.append(character)
    raise KeyMalformed("its closing quote is missing")


def _require_visible(character: str) -> None:
    if character not in _VISIBLE:
        raise KeyMalformed("it has a space, a control character or a character outside ASCII")
