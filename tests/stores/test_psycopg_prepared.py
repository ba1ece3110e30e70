"""Our own statements through psycopg, past its cursors: the same rows, prepared once, and prepared again if need be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nebis.flow import Ask
from nebis.ports.store import IndefiniteFailure
from nebis.stores.sql.postgres.conversation import Control, Execute
from nebis.stores.sql.postgres.failures import Stage, judge
from nebis.stores.sql.postgres.location import Location
from nebis.stores.sql.postgres.psycopg_async import AsyncPsycopg
from nebis.stores.sql.postgres.psycopg_blocking import BlockingPsycopg
from nebis.stores.sql.postgres.psycopg_prepared import OwnAsyncConnection, OwnConnection
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.statements import read_statements

SQL = """
-- name: echo
SELECT :flag::boolean, :data::bytea, :large::bigint, :small::smallint, :middle::integer, :word::text, :mark::uuid,
  :many::bytea[], :words::text[], :numbers::bigint[]
-- name: add_one
SELECT :number::bigint + 1
-- name: a_moment
SELECT :moment::timestamptz
-- name: words
SELECT * FROM words WHERE :word::text IS NOT NULL
"""
STATEMENTS = read_statements(SQL)
NONE = dict.fromkeys(STATEMENTS["echo"].parameters)
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
VALUES = {
    "flag": st.booleans(),
    "data": st.binary(max_size=20),
    "large": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-(2**15), 2**15 - 1),
    "middle": st.integers(-(2**31), 2**31 - 1),
    "word": WORDS,
    "mark": st.uuids(),
    "many": st.lists(st.none() | st.binary(max_size=20)),
    "words": st.lists(st.none() | WORDS),
    "numbers": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
}


class OffMain(BlockingPsycopg):
    """Performs every ask on a thread, where statements go in one piece."""

    def perform(self, connection: psycopg.Connection[Any], ask: Ask[Any]) -> Any:
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(super().perform, connection, ask).result()


@pytest.fixture(params=["main thread", "another thread"])
def driver(postgres_url: str, request: pytest.FixtureRequest) -> BlockingPsycopg:
    kind = BlockingPsycopg if request.param == "main thread" else OffMain
    return kind(Location.parse(postgres_url), Settings())


@pytest.fixture
def connection(driver: BlockingPsycopg) -> Iterator[psycopg.Connection[Any]]:
    connected = driver.connect()
    yield connected
    connected.close()


def asked(name: str, **values: object) -> Execute:
    return Execute(STATEMENTS[name], values)


def prepared(connection: psycopg.Connection[Any]) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM pg_prepared_statements").fetchall()}


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_values_come_back_as_they_were_sent(
    driver: BlockingPsycopg, connection: psycopg.Connection[Any], data: st.DataObject
) -> None:
    values = {name: data.draw(st.none() | way) for name, way in VALUES.items()}

    [row] = driver.perform(connection, Execute(STATEMENTS["echo"], values))

    assert row == tuple(values.values())
    assert len(prepared(connection)) == 1


def test_a_statement_is_prepared_once_and_outlives_a_rollback(
    driver: BlockingPsycopg, connection: psycopg.Connection[Any]
) -> None:
    for number in range(3):
        driver.perform(connection, Control("BEGIN"))
        assert driver.perform(connection, asked("add_one", number=number)) == [(number + 1,)]
        driver.perform(connection, Control("ROLLBACK"))

    assert len(prepared(connection)) == 1


def test_a_statement_that_the_server_forgot_is_prepared_again(
    driver: BlockingPsycopg, connection: psycopg.Connection[Any]
) -> None:
    driver.perform(connection, asked("add_one", number=1))
    connection.execute("DEALLOCATE ALL")

    assert driver.perform(connection, asked("add_one", number=2)) == [(3,)]


def test_inside_of_a_transaction_it_fails_once(driver: BlockingPsycopg, connection: psycopg.Connection[Any]) -> None:
    driver.perform(connection, asked("add_one", number=1))
    connection.execute("DEALLOCATE ALL")
    driver.perform(connection, Control("BEGIN"))

    with pytest.raises(psycopg.errors.InvalidSqlStatementName) as failed:
        driver.perform(connection, asked("add_one", number=2))

    assert driver.describe(failed.value).sqlstate == "26000"
    driver.perform(connection, Control("ROLLBACK"))
    assert driver.perform(connection, asked("add_one", number=2)) == [(3,)]


def test_a_table_may_get_other_columns(driver: BlockingPsycopg, connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE TABLE words (word text)")
    connection.execute("INSERT INTO words VALUES ('one')")
    assert driver.perform(connection, asked("words", word="")) == [("one",)]
    connection.execute("ALTER TABLE words ADD number bigint DEFAULT 1")

    assert driver.perform(connection, asked("words", word="")) == [("one", 1)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("word", "\0"), ("word", "\ud800"), ("words", ["\0"]), ("large", 2**63), ("numbers", [2**63]), ("mark", "x")],
)
def test_what_cannot_be_sent_is_refused_as_a_cursor_refuses_it(
    driver: BlockingPsycopg, connection: psycopg.Connection[Any], postgres_url: str, name: str, value: object
) -> None:
    plain = BlockingPsycopg(Location.parse(postgres_url), Settings(pooler=True))
    ask = Execute(STATEMENTS["echo"], {**NONE, name: value})
    with plain.connect() as by_cursor, pytest.raises(Exception) as expected:  # noqa: PT011 - whatever it is.
        plain.perform(by_cursor, ask)

    with pytest.raises(type(expected.value)):
        driver.perform(connection, ask)

    assert driver.perform(connection, asked("add_one", number=1)) == [(2,)]


def test_what_no_plain_type_is_for_is_left_to_the_cursor(
    driver: BlockingPsycopg, connection: psycopg.Connection[Any]
) -> None:
    for _ in range(2):
        [(moment,)] = driver.perform(connection, asked("a_moment", moment="2020-01-01T00:00:00Z"))
        assert moment.year == 2020

    [(flag, *_)] = driver.perform(connection, Execute(STATEMENTS["echo"], {**NONE, "data": bytearray(b"x")}))
    assert flag is None


def test_no_two_connections_have_a_name_in_common(driver: BlockingPsycopg) -> None:
    with driver.connect() as one, driver.connect() as other:
        for connection in (one, other):
            driver.perform(connection, asked("add_one", number=1))
        assert prepared(one).isdisjoint(prepared(other))


def test_a_connection_that_broke_says_so(driver: BlockingPsycopg) -> None:
    with driver.connect() as other, driver.connect() as connection:
        driver.perform(connection, asked("add_one", number=1))
        other.execute("SELECT pg_terminate_backend(%s::integer)", [connection.info.backend_pid])

        for _ in range(2):
            with pytest.raises(psycopg.DatabaseError) as failed:
                driver.perform(connection, asked("add_one", number=1))
            assert isinstance(judge(driver.describe(failed.value), Stage.ALONE), IndefiniteFailure)
            assert not driver.is_reusable(connection)


def test_behind_a_pooler_nothing_is_prepared(postgres_url: str) -> None:
    driver = BlockingPsycopg(Location.parse(postgres_url), Settings(pooler=True))
    with driver.connect() as connection:
        assert type(connection) is not OwnConnection
        for number in range(10):
            driver.perform(connection, asked("add_one", number=number))
        assert prepared(connection) == set()


def test_on_an_event_loop_it_is_the_same(postgres_url: str) -> None:
    """Rows, one preparation, another one if the server forgot, and the cursor for whatever is not plain."""
    driver = AsyncPsycopg(Location.parse(postgres_url), Settings())
    values: dict[str, Any] = {
        "flag": True,
        "data": b"\0x",
        "large": -(2**63),
        "small": 7,
        "middle": 2**31 - 1,
        "word": "wörd",
        "mark": UUID(int=5),
        "many": [b"a", None],
        "words": ["b", None],
        "numbers": [None, 3],
    }

    async def prepared_by(connection: Any) -> set[str]:
        cursor = await connection.execute("SELECT name FROM pg_prepared_statements")
        return {name for (name,) in await cursor.fetchall()}

    async def scenario() -> None:
        async with await driver.connect() as connection:
            assert type(connection) is OwnAsyncConnection
            for number in range(3):
                await driver.perform(connection, Control("BEGIN"))
                assert await driver.perform(connection, asked("add_one", number=number)) == [(number + 1,)]
                await driver.perform(connection, Control("ROLLBACK"))
            assert len(await prepared_by(connection)) == 1

            await connection.execute("DEALLOCATE ALL")
            assert await driver.perform(connection, asked("add_one", number=2)) == [(3,)]

            assert await driver.perform(connection, Execute(STATEMENTS["echo"], values)) == [tuple(values.values())]
            before = await prepared_by(connection)
            values["data"] = bytearray(b"x")
            assert (await driver.perform(connection, Execute(STATEMENTS["echo"], values)))[0][1] == b"x"
            with pytest.raises(psycopg.DataError):
                await driver.perform(connection, Execute(STATEMENTS["echo"], {**values, "word": "\0"}))
            assert await prepared_by(connection) == before

    asyncio.run(scenario())


def test_behind_a_pooler_nothing_is_prepared_on_an_event_loop_either(postgres_url: str) -> None:
    driver = AsyncPsycopg(Location.parse(postgres_url), Settings(pooler=True))

    async def scenario() -> None:
        async with await driver.connect() as connection:
            assert type(connection) is not OwnAsyncConnection
            for number in range(10):
                await driver.perform(connection, asked("add_one", number=number))
            cursor = await connection.execute("SELECT count(*) FROM pg_prepared_statements")
            assert await cursor.fetchone() == (0,)

    asyncio.run(scenario())
