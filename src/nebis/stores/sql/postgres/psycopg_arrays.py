"""Columns of a batch, packed as the server reads them.

psycopg looks at every value of a list to find out how to write it, which costs more than all the rest of a statement.
Our statements say the type of each array (`:name::bytea[]`), so whatever is plainly of that type is packed here. All
else is left to psycopg: a value of another type, one that does not fit, a text that no PostgreSQL can store.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import AdaptersMap, Dumper, PyFormat
from psycopg.pq import Format

from nebis.stores.sql.asks import Statement

_ARRAY = re.compile(r":(?P<name>[a-z_]+)(?:::(?P<type>[a-z]+)\[\])?(?![a-z0-9_:])")
_HEADER = struct.Struct("!5i")
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)
_SIZED_BIGINT = struct.Struct("!iq")
_SIZED_INTEGER = struct.Struct("!ii")
_SIZED_SMALLINT = struct.Struct("!ih")
_SIZED_UUID = _LENGTH.pack(16)
_BOOLEANS = {False: _LENGTH.pack(1) + b"\0", True: _LENGTH.pack(1) + b"\1", None: _NULL}


class Packed:
    """One array, as it is sent."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class PackedDumper(Dumper):
    """Sends what is packed already, as the type that the statement says."""

    format = Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        """Return it as it is."""
        return obj.data


@dataclass(frozen=True, slots=True)
class _Kind:
    oid: int
    types: frozenset[type]
    pack: Callable[[Sequence[Any]], list[bytes]]


def teach(adapters: AdaptersMap) -> None:
    """Let connections with these adapters send what is packed."""
    adapters.register_dumper(Packed, PackedDumper)


def is_taught(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Tell whether packed arrays can be sent here: on a connection of ours that speaks the encoding of texts."""
    try:
        connection.adapters.get_dumper(Packed, PyFormat.BINARY)
    except psycopg.ProgrammingError:
        return False
    return connection.info.encoding == "utf-8"


def pack_arrays(statement: Statement, values: Mapping[str, object], arrays: frozenset[str]) -> dict[str, object]:
    """Return the values of a statement with every array packed that can be."""
    kinds = _kinds_of(statement)
    return {
        name: packed(kinds[name], value) if name in arrays and name in kinds else value  # type: ignore[arg-type]  # A list.
        for name, value in values.items()
    }


def packed(kind: str, values: Sequence[Any]) -> Packed | Sequence[Any]:
    """Return an array of that type, or the values themselves where only psycopg can say what becomes of them."""
    how = _KINDS[kind]
    types = set(map(type, values))
    if not values or not types <= how.types:
        return values
    try:
        elements = how.pack(values)
    except (struct.error, ValueError):
        return values
    return Packed(_HEADER.pack(1, NoneType in types, how.oid, len(values), 1) + b"".join(elements))


@lru_cache(maxsize=256)
def _kinds_of(statement: Statement) -> dict[str, str]:
    """Return the types of parameters that are an array of one known type wherever they appear."""
    found: dict[str, set[str]] = {}
    for parameter in _ARRAY.finditer(statement.text):
        found.setdefault(parameter["name"], set()).add(parameter["type"] or "")
    return {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1 and kinds <= _KINDS.keys()}


def _pack_bytes(values: Sequence[bytes | None]) -> list[bytes]:
    return [_NULL if value is None else _LENGTH.pack(len(value)) + value for value in values]


def _pack_texts(values: Sequence[str | None]) -> list[bytes]:
    if any("\0" in value for value in values if value):
        raise ValueError("no text holds this character")
    return _pack_bytes([None if value is None else value.encode() for value in values])


def _pack_uuids(values: Sequence[UUID | None]) -> list[bytes]:
    return [_NULL if value is None else _SIZED_UUID + value.bytes for value in values]


def _pack_booleans(values: Sequence[bool | None]) -> list[bytes]:
    return [_BOOLEANS[value] for value in values]


def _pack_numbers(sized: struct.Struct) -> Callable[[Sequence[int | None]], list[bytes]]:
    pack, size = sized.pack, sized.size - _LENGTH.size
    return lambda values: [_NULL if value is None else pack(size, value) for value in values]


def _kind(oid: int, of: type, pack: Callable[[Sequence[Any]], list[bytes]]) -> _Kind:
    return _Kind(oid, frozenset({of, NoneType}), pack)


_KINDS = {
    "boolean": _kind(16, bool, _pack_booleans),
    "bytea": _kind(17, bytes, _pack_bytes),
    "bigint": _kind(20, int, _pack_numbers(_SIZED_BIGINT)),
    "smallint": _kind(21, int, _pack_numbers(_SIZED_SMALLINT)),
    "integer": _kind(23, int, _pack_numbers(_SIZED_INTEGER)),
    "text": _kind(25, str, _pack_texts),
    "uuid": _kind(2950, UUID, _pack_uuids),
}
"""By the name that a statement gives the elements."""
