"""Messages to the server that go ahead of a statement of asyncpg's own, in the same trip.

asyncpg sends one statement and waits for the end of all that was sent until then. Of the answers it keeps the rows, so
a statement that has none is read along with the one behind it. If it fails, the server skips whatever comes behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from struct import Struct
from typing import Any, Final
from uuid import UUID

from nebis.stores.sql.postgres.arrays import KINDS, pack

_length: Final = Struct("!i").pack
_NULL: Final = b"\xff\xff\xff\xff"
_EXECUTE: Final = b"E\0\0\0\x09\0\0\0\0\0"
"""Executes the portal without a name, to its end."""
_BIND_NOTHING: Final = b"B\0\0\0\x0c\0\0\0\0\0\0\0\0"


@cache
def executing(text: str) -> bytes:
    """Return what executes a text without values, not prepared before: so it cannot have been forgotten either."""
    return _message(b"P", b"\0" + text.encode() + b"\0\0\0") + _BIND_NOTHING + _EXECUTE


class Ahead:
    """A prepared statement without rows, as it is sent ahead of another one."""

    __slots__ = ("_head", "_packs", "_statement")

    def __init__(self, statement: Any) -> None:
        """Take what asyncpg prepared."""
        self._statement = statement  # Held: asyncpg has the server forget a statement that nobody holds.
        self._packs = [_PACKS[parameter.oid] for parameter in statement.get_parameters()]
        all_binary = b"\0\1\0\1"
        self._head = b"\0" + statement.get_name().encode() + b"\0" + all_binary + len(self._packs).to_bytes(2)

    def executing(self, values: Iterable[Any]) -> bytes:
        """Return what executes it with these values."""
        packed = [_NULL if value is None else pack(value) for pack, value in zip(self._packs, values, strict=True)]
        return _message(b"B", b"".join((self._head, *packed, b"\0\0"))) + _EXECUTE


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + _length(len(body) + 4) + body


def _pack_bytes(value: bytes) -> bytes:
    return _length(len(value)) + value


def _pack_text(value: str) -> bytes:
    return _pack_bytes(value.encode())


def _pack_uuid(value: UUID) -> bytes:
    return _pack_bytes(value.bytes)


def _pack_array(name: str) -> Callable[[Any], bytes]:
    def packed(values: Any) -> bytes:
        return _pack_bytes(pack(name, values))

    return packed


_PACKS: Final[dict[int, Callable[[Any], bytes]]] = {
    KINDS["bytea"].oid: _pack_bytes,
    KINDS["text"].oid: _pack_text,
    KINDS["uuid"].oid: _pack_uuid,
    KINDS["bigint"].oid: partial(Struct("!iq").pack, 8),
    **{kind.array_oid: _pack_array(name) for name, kind in KINDS.items()},
}
"""How a value of each type that our statements use is sent, after its length."""
