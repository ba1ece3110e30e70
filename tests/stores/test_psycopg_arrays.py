"""Packed arrays are the very bytes that psycopg would send; whatever is not plain is left to psycopg."""

from __future__ import annotations

import dataclasses
import re
import struct
import uuid
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.types.numeric import Int8BinaryDumper

from nebis.stores.sql.asks import Statement
from nebis.stores.sql.dialect import postgres_dialect
from nebis.stores.sql.postgres.psycopg_arrays import Packed, pack_arrays, packed

WAYS = {
    "bytea": st.binary(max_size=40),
    "text": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
    "uuid": st.uuids(),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
}


class Context:
    """Adapters in which integers travel as bigint, as on our connections."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_dumper(int, Int8BinaryDumper)


def by_psycopg(values: list[Any]) -> bytes:
    written = Transformer(Context()).get_dumper(values, PyFormat.BINARY).dump(values)
    assert written is not None
    return bytes(written)


@pytest.mark.parametrize("kind", WAYS)
@given(data=st.data())
def test_an_array_is_packed_as_psycopg_writes_it(kind: str, data: st.DataObject) -> None:
    plain = data.draw(st.lists(WAYS[kind], min_size=1))
    # With nothing but nulls psycopg cannot know the type; the statement does.
    values = data.draw(st.permutations([*plain, *data.draw(st.lists(st.none()))]))

    array = packed(kind, values)

    assert isinstance(array, Packed)
    assert array.data == by_psycopg(values)


@pytest.mark.parametrize(("kind", "letter", "oid"), [("integer", "i", 23), ("smallint", "h", 21)])
def test_a_smaller_number_is_packed_as_what_the_statement_says(kind: str, letter: str, oid: int) -> None:
    size = struct.calcsize("!" + letter)

    array = packed(kind, [7, None, -2])

    assert isinstance(array, Packed)
    assert array.data == struct.pack(f"!5ii{letter}ii{letter}", 1, 1, oid, 3, 1, size, 7, -1, size, -2)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bytea", []),
        ("bytea", [b"a", bytearray(b"b")]),
        ("text", ["with \0 inside"]),
        ("text", ["half a pair \ud800"]),
        ("text", [b"bytes"]),
        ("bigint", [2**63]),
        ("bigint", [True]),
        ("integer", [2**31]),
        ("smallint", [-(2**15) - 1]),
        ("uuid", [str(uuid.UUID(int=1))]),
        ("boolean", [1]),
    ],
)
def test_what_is_not_plain_is_left_to_psycopg(kind: str, values: list[Any]) -> None:
    assert packed(kind, values) is values


def plural_statements() -> list[Statement]:
    dialect = postgres_dialect()
    groups = [dialect.statements, dialect.outbox, dialect.inbox, dialect.velocity]
    found = [getattr(group, field.name) for group in groups for field in dataclasses.fields(group)]  # type: ignore[arg-type]
    return [each for each in found if isinstance(each, Statement) and "[]" in each.text]


@pytest.mark.parametrize("statement", plural_statements(), ids=lambda statement: statement.name)
def test_every_array_of_every_statement_is_packed_as_its_type(statement: Statement) -> None:
    oids = {"bytea": 17, "uuid": 2950, "text": 25, "bigint": 20, "integer": 23, "smallint": 21, "boolean": 16}
    types = dict(re.findall(r":([a-z_]+)::([a-z]+)\[\]", statement.text))

    bound = pack_arrays(statement, {name: [None] for name in types}, frozenset(types))

    assert {name: array.data for name, array in bound.items() if isinstance(array, Packed)} == {
        name: struct.pack("!6i", 1, 1, oids[kind], 1, 1, -1) for name, kind in types.items()
    }


def test_a_parameter_that_is_not_always_an_array_of_one_type_is_left_to_psycopg() -> None:
    text = "SELECT :both::text[], :both::bytea[], :bare, :bare::text[], :odd::jsonb[], :one::text"
    statement = Statement(name="odd", text=text, parameters=("both", "bare", "odd", "one"), positional="", pyformat="")
    values: dict[str, object] = {"both": ["a"], "bare": ["a"], "odd": ["{}"], "one": "a"}

    assert pack_arrays(statement, values, frozenset({"both", "bare", "odd"})) == values
