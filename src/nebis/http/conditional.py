"""Conditional updates: an entity tag says which version a client has read, `If-Match` that it changes no other.

Parsed to the letter of RFC 9110 (8.8.3, 13.1.1). A key makes a request happen once; a precondition keeps two different
requests from overwriting each other. A retry of a change that succeeded is answered from its record, before any of
this is asked: the version that it was made for is gone by then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from nebis.errors import PreconditionFailed, PreconditionMalformed, PreconditionRequired

# Disjoint classes, each ended by a fixed character, so that it never backtracks (SEC37).
_TAG: Final = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_WHITESPACE: Final = " \t"


def strong_etag(of: int | bytes) -> str:
    """Make the strong entity tag of a version number, or of the very bytes of a representation."""
    if isinstance(of, bytes):
        return f'"{sha256(of).hexdigest()[:32]}"'
    return f'"{int(of)}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class IfMatch:
    """A parsed `If-Match`: any version that exists, or one of these."""

    is_any: bool = False
    tags: frozenset[str] = frozenset()
    """Strong tags with their quotes. Weak ones are left out: they never match where bytes have to be the same."""

    @classmethod
    def parse(cls, lines: Iterable[str]) -> IfMatch | None:
        """Read all lines of the header; None if there is none, `PreconditionMalformed` for what is no list of tags."""
        given = list(lines)
        if not given:
            return None
        # Several lines of one header mean the same as one line with commas (RFC 9110, 5.3).
        text = ", ".join(line.strip(_WHITESPACE) for line in given)
        return cls(is_any=True) if text == "*" else cls(tags=_strong_tags(text))

    def matches(self, current: str | None) -> bool:
        """Compare strongly with the tag that the resource has now; None is a resource that does not exist."""
        return current is not None and (self.is_any or current in self.tags)


def require_match(header: str | Iterable[str] | None, current: str | None) -> None:
    """Let a change go on only if the client has seen the current version.

    `header` is `If-Match` as it came, or all of its lines. Raises `PreconditionRequired` (428) if it is missing,
    `PreconditionMalformed` (400), or `PreconditionFailed` (412).
    """
    condition = IfMatch.parse(() if header is None else (header,) if isinstance(header, str) else header)
    if condition is None:
        raise PreconditionRequired
    if not condition.matches(current):
        raise PreconditionFailed


def _strong_tags(text: str) -> frozenset[str]:
    found, place, is_separated = set(), 0, True
    while place < len(text):
        if text[place] in _WHITESPACE:
            place += 1
        elif text[place] == ",":
            # A recipient accepts empty members of a list (RFC 9110, 5.6.1.2).
            place, is_separated = place + 1, True
        else:
            tag = _TAG.match(text, place)
            if tag is None or not is_separated:
                raise PreconditionMalformed
            if tag[1] is None:
                found.add(f'"{tag[2]}"')
            place, is_separated = tag.end(), False
    if '"' not in text:
        raise PreconditionMalformed
    return frozenset(found)
