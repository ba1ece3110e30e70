"""Messages to the server that we make ourselves, for what asyncpg cannot say.

It sends one statement and waits for the end of all that was sent until then. Of the answers it keeps the rows, so a
statement that has none can go ahead of one of asyncpg's own, and is read along with it. If it fails, the server skips
whatever comes behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from struct import Struct
from typing import Any, Final
from uuid import UUID

from nebis.stores.sql.postgres.arrays import KINDS, pack

SYNC: Final = b"S\0\0\0\4"
"""Ends what is sent together: a transaction, unless one was begun. After an error the server goes on behind it."""

_length: Final = Struct("!i").pack
_NULL: Final = b"\xff\xff\xff\xff"
_EXECUTE: Final = b"E\0\0\0\x09\0\0\0\0\0"
"""Executes the portal without a name, to its end."""
_BIND_NOTHING: Final = b"B\0\0\0\x0c\0\0\0\0\0\0\0\0"
_ALL_BINARY: Final = b"\0\1\0\1"
"""One format for all values, or for all columns."""
_NO_COLUMNS: Final = b"\0\0"


@cache
def executing(text: str) -> bytes:
    """Return what executes a text without values, not prepared before: so it cannot have been forgotten either."""
    return parsing(b"", text) + _BIND_NOTHING + _EXECUTE


def parsing(name: bytes, text: str) -> bytes:
    """Return what prepares a text under a name."""
    return _message(b"P", name + b"\0" + text.encode() + b"\0\0\0")


def describing(name: bytes) -> bytes:
    """Return what asks for the types of a prepared statement."""
    return _message(b"D", b"S" + name + b"\0")


class Prepared:
    """A prepared statement, as it is sent."""

    __slots__ = ("_head", "_packs", "_tail")

    def __init__(self, name: bytes, types: Iterable[int], *, columns: bytes = _ALL_BINARY) -> None:
        """Take its name, and the types of its values as the server numbers them."""
        self._packs = [_PACKS[oid] for oid in types]
        self._head = b"\0" + name + b"\0" + _ALL_BINARY + len(self._packs).to_bytes(2)
        self._tail = columns

    def executing(self, values: Iterable[Any]) -> bytes:
        """Return what executes it with these values."""
        packed = [_NULL if value is None else pack(value) for pack, value in zip(self._packs, values, strict=True)]
        return _message(b"B", b"".join((self._head, *packed, self._tail))) + _EXECUTE


class Ahead(Prepared):
    """A prepared statement without rows, as it is sent ahead of another one."""

    __slots__ = ("_statement",)

    def __init__(self, statement: Any) -> None:
        """Take what asyncpg prepared."""
        types = [parameter.oid for parameter in statement.get_parameters()]
        super().__init__(statement.get_name().encode(), types, columns=_NO_COLUMNS)
        self._statement = statement  # Held: asyncpg has the server forget a statement that nobody holds.


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
    KINDS["integer"].oid: partial(Struct("!ii").pack, 4),
    **{kind.array_oid: _pack_array(name) for name, kind in KINDS.items()},
}
"""How a value of each type that our statements use is sent, after its length."""
