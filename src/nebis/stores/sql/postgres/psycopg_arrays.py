"""Columns of a batch, sent through psycopg as `arrays` packs them.

Whatever is not plainly of the type that a statement says is left to psycopg: a value of another type, one that does not
fit, a text that no PostgreSQL can store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Dumper, PyFormat
from psycopg.pq import Format

from nebis.stores.sql.asks import Statement
from nebis.stores.sql.postgres.arrays import KINDS, pack

_ARRAY = re.compile(r":(?P<name>[a-z_]+)(?:::(?P<type>[a-z]+)\[\])?(?![a-z0-9_:])")


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
    if not values or not set(map(type, values)) <= KINDS[kind].plain:
        return values
    if kind == "text" and "\0" in "".join(filter(None, values)):
        return values
    try:
        return Packed(pack(kind, values))
    except ValueError:
        return values


@lru_cache(maxsize=256)
def _kinds_of(statement: Statement) -> dict[str, str]:
    """Return the types of parameters that are an array of one known type wherever they appear."""
    found: dict[str, set[str]] = {}
    for parameter in _ARRAY.finditer(statement.text):
        found.setdefault(parameter["name"], set()).add(parameter["type"] or "")
    return {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1 and kinds <= KINDS.keys()}
