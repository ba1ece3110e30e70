"""Columns of a batch, packed as the server reads them.

A driver looks at every value of a list to find out what it is and how to write it, which costs more than all the rest
of a statement. Our statements say the type of each array (`:name::bytea[]`), so a whole column is packed at once here,
and most columns of a batch are all of one length or all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType
from typing import Any
from uuid import UUID

from nebis.core.native import twinned

_HEADER = struct.Struct("!5i")
_EMPTY = struct.Struct("!3i")
_length = struct.Struct("!i").pack
_unpack_length = struct.Struct("!i").unpack_from
_NULL = _length(-1)
_BOOLEANS = {(bool, True): _length(1) + b"\1", (bool, False): _length(1) + b"\0"}
_OFTEN_ALIKE = frozenset({"text", "bigint", "integer", "smallint"})
_LETTERS = {"bytea": "b", "text": "t", "uuid": "u", "bigint": "q", "integer": "i", "smallint": "h"}
"""What `plain_array` knows them by."""
NOT_PLAIN = (TypeError, AttributeError, KeyError, struct.error)
"""What comes of packing a column in which something is no plain element of its type."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of elements."""

    oid: int
    array_oid: int
    of: type
    plain: frozenset[type]
    pack: Callable[[Sequence[Any]], bytes]
    read: Callable[[bytes], Any]


@twinned
def plain_array(letter: str, oid: int, of: type, bits: str, values: Sequence[Any]) -> bytes | None:  # noqa: ARG001 - the compiled one uses them.
    """Pack a column of one class into an array in one step, where it is compiled; here no column is plain.

    Plain is a list, not empty and without NULL, of bytes (`b`), texts in ASCII (`t`), ids (`u`), which have their bits
    under this name, or numbers that fit (`q`, `i`, `h`, as `struct` has them). What it comes to says `pack`.
    """
    return None


def pack(kind: str, values: Sequence[Any]) -> bytes:
    """Return an array of these elements; raise `TypeError` or `ValueError` if one of them cannot be such an element."""
    how = KINDS[kind]
    letter = _LETTERS.get(kind)
    if letter is not None and (plain := plain_array(letter, how.oid, how.of, "int", values)) is not None:
        return plain
    number = len(values)
    if not number:
        return _EMPTY.pack(0, 0, how.oid)
    first = values[0]
    try:
        if first == values[-1] and values.count(first) == number:
            if first is None:
                return _header(how.oid, number, 1) + _NULL * number
            # What is there once may be long, and is hardly ever seen again.
            element = _alike(kind, first) if number > 1 and kind in _OFTEN_ALIKE else how.pack((first,))
            return _header(how.oid, number, 0) + element * number
        return _header(how.oid, number, 0) + how.pack(values)
    except NOT_PLAIN:
        return _pack_with_nulls(how, values)


def _pack_with_nulls(how: Kind, values: Sequence[Any]) -> bytes:
    """Do the same where some elements are absent, or say what is wrong with them."""
    if not all(value is None or isinstance(value, how.of) for value in values):
        raise TypeError(f"not every element is a {how.of.__name__}")
    try:
        elements = b"".join([_NULL if value is None else how.pack((value,)) for value in values])
    except struct.error:
        raise ValueError("a number does not fit") from None
    return _header(how.oid, len(values), int(None in values)) + elements


@lru_cache(maxsize=2048)
def _header(oid: int, number: int, has_nulls: int) -> bytes:
    return _HEADER.pack(1, has_nulls, oid, number, 1)


@lru_cache(maxsize=1024, typed=True)
def _alike(kind: str, value: Any) -> bytes:
    """Return one element that is there many times, in this batch and mostly in the next: a tenant, a lease."""
    return KINDS[kind].pack((value,))


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
    sizes = list(map(len, values))
    if sizes.count(sizes[0]) == len(sizes):
        size = _length(sizes[0])
        return size + size.join(values)
    return b"".join([_length(len(value)) + value for value in values])


def _pack_texts(values: Sequence[str]) -> bytes:
    return _pack_bytes([value.encode() for value in values])


def _pack_uuids(values: Sequence[UUID]) -> bytes:
    size = _length(16)
    return size + size.join([value.int.to_bytes(16) for value in values])


def _pack_booleans(values: Sequence[bool]) -> bytes:
    return b"".join([_BOOLEANS[type(value), value] for value in values])


def _pack_numbers(letter: str) -> Callable[[Sequence[int]], bytes]:
    size = struct.calcsize(f"!{letter}")

    def packed(values: Sequence[int]) -> bytes:
        sized = [size] * (2 * len(values))
        sized[1::2] = values
        return _layout(letter, len(values))(*sized)

    return packed


@lru_cache(maxsize=1024)
def _layout(letter: str, number: int) -> Callable[..., bytes]:
    """Return what packs so many numbers, each after its size."""
    return struct.Struct("!" + f"i{letter}" * number).pack


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
