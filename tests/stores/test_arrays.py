"""Columns as they are packed for the server, and what connections make of them."""

from __future__ import annotations

import asyncio
import uuid
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.stores.sql.asks import Columns, Query
from nebis.stores.sql.postgres.arrays import KINDS, pack, unpack
from nebis.stores.sql.postgres.asyncpg_driver import Asyncpg
from nebis.stores.sql.postgres.location import Location
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.transactions_asyncpg import AsyncpgTransactions
from tests.stores.postgres_ways import WAYS, statement

ELEMENTS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "bytea": st.binary(max_size=40),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    "uuid": st.uuids(),
}


class Letter(StrEnum):
    A = "a"


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_what_is_packed_is_what_is_read(kind: str, data: st.DataObject) -> None:
    element = ELEMENTS[kind]
    same = element.flatmap(lambda value: st.lists(st.just(value)))
    values = data.draw(st.one_of(st.lists(element), same, st.lists(st.none() | element)))

    assert unpack(kind, pack(kind, values)) == values


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bytea", ["text"]),
        ("bytea", [7, None]),
        ("text", [b"bytes"]),
        ("text", ["half a pair \ud800"]),
        ("bigint", [2**63]),
        ("bigint", [2**63, 1]),
        ("uuid", [str(uuid.UUID(int=1))]),
        ("boolean", [1]),
    ],
)
def test_what_is_no_such_element_is_refused(kind: str, values: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        pack(kind, values)


def test_an_element_of_a_narrower_type_is_what_it_stands_for() -> None:
    assert unpack("text", pack("text", [Letter.A, "b"])) == ["a", "b"]
    assert unpack("bigint", pack("bigint", [True, 2])) == [1, 2]


def arrives(way: str, url: str) -> None:
    """Send a column of each kind through sessions, and compare what comes back."""
    values: dict[str, list[Any]] = {
        "boolean": [True, False, None],
        "bytea": [b"\0\xff", b"", None],
        "bigint": [2**40, -1, None],
        "smallint": [7, -7, None],
        "integer": [2**30, 0, None],
        "text": ["ä", "", None],
        "uuid": [uuid.UUID(int=1), uuid.UUID(int=2), None],
    }
    unnested = ", ".join(f":{kind}::{kind}[]" for kind in values)
    sessions = WAYS[way](url)

    rows = sessions.run(iter(Query(statement(f"SELECT * FROM unnest({unnested})"), {}, Columns(values))))

    assert rows == list(zip(*values.values(), strict=True))
    sessions.close()


@pytest.mark.parametrize("way", WAYS)
def test_every_kind_of_column_arrives_as_it_was(way: str, postgres_url: str) -> None:
    arrives(way, postgres_url)


@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_all_members_share_is_sent_once(way: str, postgres_url: str) -> None:
    shared = {"bigint": 2**40, "text": "ä", "uuid": uuid.UUID(int=1), "bytea": None, "boolean": True}
    columns = Columns({"integer": [3, 1, 2]}, shared)
    unnested = ", ".join(f":{kind}::{kind}[]" for kind in ("bigint", "integer", "text", "uuid", "bytea", "boolean"))
    sessions = WAYS[way](postgres_url)

    rows = sessions.run(iter(Query(statement(f"SELECT * FROM unnest({unnested})"), {}, columns)))

    assert rows == [(2**40, number, "ä", uuid.UUID(int=1), None, True) for number in (3, 1, 2)]
    sessions.close()


def test_asyncpg_without_a_door_for_array_codecs_packs_them_itself(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That door is not part of its public interface, and may be gone in a later release."""
    monkeypatch.setattr(Asyncpg, "packs_arrays", False)

    arrives("asyncpg", postgres_url)


def test_columns_are_members_to_whoever_binds_them_one_by_one() -> None:
    columns = Columns({"name": ["a", "b", "c"], "number": [1, 2, 3]})

    assert len(columns) == 3
    assert list(columns) == [{"name": "a", "number": 1}, {"name": "b", "number": 2}, {"name": "c", "number": 3}]
    assert columns[1] == {"name": "b", "number": 2}
    assert list(columns[1:]) == [columns[1], columns[2]]

    shared = Columns({"number": [1, 2]}, {"name": "a"})
    assert list(shared) == [{"name": "a", "number": 1}, {"name": "a", "number": 2}]
    assert list(shared[1:]) == [shared[1]] == [{"name": "a", "number": 2}]


@pytest.mark.parametrize(("driver", "packs"), [(Asyncpg, True), (AsyncpgTransactions, False)])
def test_only_connections_for_our_own_statements_read_and_write_arrays_our_way(
    driver: type[Asyncpg], packs: bool, postgres_url: str
) -> None:
    async def nested() -> object:
        url = postgres_url.replace("postgresql://", "postgresql+asyncpg://")
        connection = await driver(Location.parse(url), Settings()).connect()
        try:
            return await connection.fetchval("SELECT $1::bigint[]", [[1, 2], [3, 4]])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at.
            return type(error).__name__
        finally:
            await connection.close()

    assert asyncio.run(nested()) == ("DataError" if packs else [[1, 2], [3, 4]])
