"""Columns of a batch, packed as the server reads them.

A driver looks at every value of a list to find out what it is and how to write it, which costs more than all the rest
of a statement. Our statements say the type of each array (`:name::bytea[]`), so a whole column is packed at once here,
and most columns of a batch are all of one length or all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any
from uuid import UUID

_HEADER = struct.Struct("!5i")
_EMPTY = struct.Struct("!3i")
_length = struct.Struct("!i").pack
_unpack_length = struct.Struct("!i").unpack_from
_NULL = _length(-1)
_TRUE = _length(1) + b"\1"
_FALSE = _length(1) + b"\0"


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of elements."""

    oid: int
    array_oid: int
    of: type
    plain: frozenset[type]
    pack: Callable[[Sequence[Any]], bytes]
    read: Callable[[bytes], Any]


def pack(kind: str, values: Sequence[Any]) -> bytes:
    """Return an array of these elements; raise `TypeError` or `ValueError` if one of them cannot be such an element."""
    how = KINDS[kind]
    types = set(map(type, values))
    if not types <= how.plain and not all(value is None or isinstance(value, how.of) for value in values):
        raise TypeError(f"not every element is a {how.of.__name__}")
    if not values:
        return _EMPTY.pack(0, 0, how.oid)
    has_nulls = NoneType in types
    header = _HEADER.pack(1, has_nulls, how.oid, len(values), 1)
    if not has_nulls:
        return header + how.pack(values)
    if len(types) == 1:
        return header + _NULL * len(values)
    return header + b"".join([_NULL if value is None else how.pack((value,)) for value in values])


def unpack(kind: str, data: bytes) -> list[Any]:
    """Return the elements of an array that a server sent; none of our columns has more than one dimension."""
    read = KINDS[kind].read
    [dimensions] = _unpack_length(data)
    if dimensions == 0:
        return []
    assert dimensions == 1, "an array of one dimension"
    [count] = _unpack_length(data, 12)
    elements, place = [], _HEADER.size
    for _ in range(count):
        [size] = _unpack_length(data, place)
        place += 4
        elements.append(None if size < 0 else read(data[place : place + size]))
        place += max(size, 0)
    return elements


def _pack_bytes(values: Sequence[bytes]) -> bytes:
    if len(set(map(len, values))) == 1:
        size = _length(len(values[0]))
        return size + size.join(values)
    return b"".join([_length(len(value)) + value for value in values])


def _pack_texts(values: Sequence[str]) -> bytes:
    if values.count(values[0]) == len(values):
        return _pack_bytes((values[0].encode(),)) * len(values)
    return _pack_bytes([value.encode() for value in values])


def _pack_uuids(values: Sequence[UUID]) -> bytes:
    return _pack_bytes([value.int.to_bytes(16) for value in values])


def _pack_booleans(values: Sequence[bool]) -> bytes:
    return b"".join([_TRUE if value else _FALSE for value in values])


def _pack_numbers(letter: str) -> Callable[[Sequence[int]], bytes]:
    sized = struct.Struct(f"!i{letter}")
    pack, size = sized.pack, struct.calcsize(f"!{letter}")

    def packed(values: Sequence[int]) -> bytes:
        try:
            if values.count(values[0]) == len(values):
                return pack(size, values[0]) * len(values)
            return b"".join([pack(size, value) for value in values])
        except struct.error:
            raise ValueError("a number does not fit") from None

    return packed


def _read_number(data: bytes) -> int:
    return int.from_bytes(data, signed=True)


def _kind(
    oid: int, array_oid: int, of: type, pack: Callable[[Sequence[Any]], bytes], read: Callable[[bytes], Any]
) -> Kind:
    return Kind(oid, array_oid, of, frozenset({of, NoneType}), pack, read)


KINDS = {
    "boolean": _kind(16, 1000, bool, _pack_booleans, lambda data: data == b"\1"),
    "bytea": _kind(17, 1001, bytes, _pack_bytes, bytes),
    "bigint": _kind(20, 1016, int, _pack_numbers("q"), _read_number),
    "smallint": _kind(21, 1005, int, _pack_numbers("h"), _read_number),
    "integer": _kind(23, 1007, int, _pack_numbers("i"), _read_number),
    "text": _kind(25, 1009, str, _pack_texts, bytes.decode),
    "uuid": _kind(2950, 2951, UUID, _pack_uuids, lambda data: UUID(bytes=data)),
}
"""By the name that a statement gives the elements. The numbers are the same on every server."""
