"""Connections of our own through asyncpg: a BEGIN goes out with the first statement, and is never left behind."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from nebis.stores.sql.postgres.asyncpg_connection import OwnConnection
from nebis.stores.sql.postgres.location import Location
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.transactions_asyncpg import AsyncpgTransactions
from tests.stores.postgres_ways import execute

NUMBER = "SELECT pg_current_xact_id_if_assigned()::text, $1::bigint"
WRITE = "INSERT INTO kept VALUES ($1::bigint) RETURNING value"
DIVIDE = "SELECT 1 / $1::bigint"


def on_own(url: str, scenario: Callable[[OwnConnection], Awaitable[Any]], **options: Any) -> Any:
    """Play a scenario on a connection as transactions have it, on which everything is prepared that they say."""

    async def played() -> Any:
        location = Location.parse(url.replace("postgresql://", "postgresql+asyncpg://"))
        connection = await AsyncpgTransactions(location, Settings.from_options(options)).connect()
        try:
            for text in (NUMBER, WRITE, DIVIDE):
                if connection.prepared is not None:
                    connection.prepared[text] = await connection.prepare(text)
            await connection.execute("SELECT 1")
            return await scenario(connection)
        finally:
            connection.terminate()

    return asyncio.run(played())


async def begun(connection: OwnConnection) -> Any:
    transaction = connection.transaction(isolation="read_committed")
    await connection.begin_with_next(transaction)
    return transaction


def trips(connection: OwnConnection) -> int:
    """Count what asyncpg waited for."""
    return int(connection._protocol.queries_count)


@pytest.fixture
def url(postgres_url: str) -> str:
    execute(postgres_url, "CREATE TABLE kept (value bigint)")
    return postgres_url


def make_serializable(url: str) -> None:
    [(name,)] = execute(url, "SELECT current_database()")
    execute(url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")


def test_a_begin_is_no_trip_and_what_follows_is_inside(url: str) -> None:
    async def scenario(connection: OwnConnection) -> None:
        before = trips(connection)
        transaction = await begun(connection)
        assert not connection.is_in_transaction()

        assert await connection.rows(WRITE, [1]) == [(1,)]

        assert trips(connection) == before + 1
        assert connection.is_in_transaction()
        await transaction.rollback()

    on_own(url, scenario)

    assert execute(url, "SELECT * FROM kept") == []


def test_its_isolation_is_the_one_that_was_asked_for(url: str) -> None:
    make_serializable(url)

    async def scenario(connection: OwnConnection) -> Any:
        await begun(connection)
        await connection.rows(NUMBER, [1])
        return await connection.fetchval("SHOW transaction_isolation")

    assert on_own(url, scenario) == "read committed"


def test_a_statement_that_is_not_prepared_yet_is_inside_too(url: str) -> None:
    make_serializable(url)

    async def scenario(connection: OwnConnection) -> Any:
        transaction = await begun(connection)
        await connection.rows(f"{WRITE}, current_setting('transaction_isolation')", [1])
        assert connection.is_in_transaction()
        isolation = await connection.fetchval("SHOW transaction_isolation")
        await transaction.rollback()
        return isolation

    assert on_own(url, scenario) == "read committed"

    assert execute(url, "SELECT * FROM kept") == []


def test_a_first_statement_that_the_server_refuses_leaves_a_transaction_to_undo(url: str) -> None:
    async def scenario(connection: OwnConnection) -> None:
        transaction = await begun(connection)
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.rows(DIVIDE, [0])
        assert connection.is_in_transaction()

        await transaction.rollback()

        assert await connection.rows(DIVIDE, [1]) == [(1,)]
        assert not connection.is_in_transaction()

    on_own(url, scenario)


def test_a_first_statement_that_cannot_be_sent_leaves_a_transaction_to_undo(url: str) -> None:
    """Its BEGIN was sent by then, and the server's answer to it comes with the next one."""

    async def scenario(connection: OwnConnection) -> None:
        transaction = await begun(connection)
        with pytest.raises(asyncpg.DataError):
            await connection.rows(WRITE, ["no number"])

        await transaction.rollback()

        assert await connection.rows(WRITE, [1]) == [(1,)]
        assert not connection.is_in_transaction()

    on_own(url, scenario)

    assert execute(url, "SELECT * FROM kept") == [(1,)]


@pytest.mark.parametrize("way", ["COMMIT", "ROLLBACK"])
def test_a_transaction_in_which_nothing_was_said_ends_as_any_other(url: str, way: str) -> None:
    async def scenario(connection: OwnConnection) -> None:
        transaction = await begun(connection)

        await (transaction.commit() if way == "COMMIT" else transaction.rollback())

        assert not connection.is_in_transaction()
        assert await connection.rows(WRITE, [1]) == [(1,)]

    on_own(url, scenario)

    assert execute(url, "SELECT * FROM kept") == [(1,)]


def test_what_the_driver_itself_is_asked_for_comes_after_the_begin(url: str) -> None:
    async def scenario(connection: OwnConnection) -> None:
        transaction = await begun(connection)
        assert await connection.execute("INSERT INTO kept VALUES (1)") == "INSERT 0 1"
        await transaction.rollback()

    on_own(url, scenario)

    assert execute(url, "SELECT * FROM kept") == []


def test_a_transaction_of_asyncpgs_inside_is_a_savepoint(url: str) -> None:
    async def fail_inside(connection: OwnConnection) -> None:
        async with connection.transaction():
            await connection.execute("INSERT INTO kept VALUES (2)")
            await connection.fetchval("SELECT 1 / 0")

    async def scenario(connection: OwnConnection) -> None:
        transaction = await begun(connection)
        await connection.rows(WRITE, [1])
        with pytest.raises(asyncpg.DivisionByZeroError):
            await fail_inside(connection)
        await transaction.commit()

    on_own(url, scenario)

    assert execute(url, "SELECT * FROM kept") == [(1,)]


def test_a_transaction_that_cannot_be_started_swallows_nothing(url: str) -> None:
    async def scenario(connection: OwnConnection) -> None:
        await connection.execute("BEGIN")
        with pytest.raises(asyncpg.InterfaceError, match="manually started"):
            await begun(connection)

        assert await connection.execute("COMMIT") == "COMMIT"
        assert not connection.is_in_transaction()

    on_own(url, scenario)


def test_a_statement_that_the_server_forgot_is_never_said_outside_of_its_transaction(url: str) -> None:
    async def scenario(connection: OwnConnection) -> None:
        await connection.execute("DEALLOCATE ALL")
        transaction = await begun(connection)
        with pytest.raises(asyncpg.InvalidSQLStatementNameError):
            await connection.rows(WRITE, [1])
        await transaction.rollback()

        transaction = await begun(connection)
        await connection.rows(WRITE, [2])
        await transaction.commit()

    on_own(url, scenario)

    assert execute(url, "SELECT * FROM kept") == [(2,)]


def test_nothing_is_held_back_where_a_pooler_forgets_what_is_prepared(url: str) -> None:
    async def scenario(connection: OwnConnection) -> None:
        transaction = await begun(connection)
        assert connection.is_in_transaction()
        await connection.rows(WRITE, [1])
        await transaction.rollback()

    on_own(url, scenario, pooler=True)

    assert execute(url, "SELECT * FROM kept") == []
