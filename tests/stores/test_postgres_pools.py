"""Pools that belong to the application."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import psycopg_pool
import pytest
from psycopg.rows import dict_row, tuple_row

from nebis.errors import ConfigError
from nebis.ports.store import AsyncBackend, DefiniteFailure, RowLocked
from nebis.stores import open_async, open_blocking
from tests.stores.postgres_ways import ask, ask_in_transaction, execute

OpenPool = Callable[[str], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def _psycopg_pool(url: str) -> AsyncIterator[Any]:
    # As applications have them: rows as dictionaries, implicit transactions. One connection, to see it come back.
    pool = psycopg_pool.AsyncConnectionPool(
        url, kwargs={"row_factory": dict_row}, min_size=1, max_size=1, open=False, timeout=5
    )
    async with pool:
        yield pool


@asynccontextmanager
async def _asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        yield pool


POOLS: dict[str, OpenPool] = {"psycopg": _psycopg_pool, "asyncpg": _asyncpg_pool}


@pytest.fixture(params=POOLS)
def open_pool(request: pytest.FixtureRequest) -> OpenPool:
    return POOLS[request.param]


@pytest.fixture
def url(postgres_url: str) -> str:
    execute(postgres_url, "CREATE TABLE scratch (id bigint PRIMARY KEY)")
    return postgres_url


def test_an_asyncio_pool_is_used_and_left_open(open_pool: OpenPool, url: str) -> None:
    async def scenario() -> None:
        async with open_pool(url) as pool:
            backend: AsyncBackend = open_async(pool, url=url)

            await backend.sessions.run(ask_in_transaction("INSERT INTO scratch VALUES (1)"))
            await backend.sessions.run(ask("INSERT INTO scratch VALUES (:id::bigint)", id=2))
            await backend.sessions.close()

            async with _connection(pool) as connection:
                await connection.execute("INSERT INTO scratch VALUES (3)")

    asyncio.run(scenario())

    assert execute(url, "SELECT id FROM scratch ORDER BY id") == [(1,), (2,), (3,)]


def _connection(pool: Any) -> AbstractAsyncContextManager[Any]:
    context: AbstractAsyncContextManager[Any] = pool.acquire() if isinstance(pool, asyncpg.Pool) else pool.connection()
    return context


def test_our_transactions_on_a_borrowed_connection_make_their_own_settings(open_pool: OpenPool, url: str) -> None:
    execute(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_isolation = 'serializable'")
    settings = "SELECT current_setting('transaction_isolation'), current_setting('lock_timeout')"

    async def scenario() -> None:
        async with open_pool(url) as pool:
            backend = open_async(pool, url=url)

            assert await backend.sessions.run(ask(settings)) == [("read committed", "500ms")]
            assert await backend.sessions.run(ask_in_transaction(settings)) == [("read committed", "500ms")]

            async with _connection(pool) as connection:
                left = await _first_row(connection, settings)
            assert left == ("serializable", "0")

    asyncio.run(scenario())


async def _first_row(connection: Any, text: str) -> tuple[Any, ...]:
    if isinstance(connection, psycopg.AsyncConnection):
        cursor = await psycopg.AsyncCursor(connection, row_factory=tuple_row).execute(text.encode())
        return (await cursor.fetchall())[0]
    return tuple(await connection.fetchrow(text))


def test_a_lock_is_row_locked_and_the_connection_comes_back_clean(open_pool: OpenPool, url: str) -> None:
    async def scenario() -> None:
        async with open_pool(url) as pool:
            backend = open_async(pool, url=url, lock_timeout_seconds=0.05)
            with psycopg.connect(url) as other:
                other.execute("LOCK TABLE scratch")
                with pytest.raises(RowLocked):
                    await backend.sessions.run(ask("INSERT INTO scratch VALUES (1)"))

            await backend.sessions.run(ask("INSERT INTO scratch VALUES (2)"))

    asyncio.run(scenario())

    assert execute(url, "SELECT id FROM scratch") == [(2,)]


def test_a_lost_connection_is_replaced_by_the_pool(open_pool: OpenPool, url: str) -> None:
    async def scenario() -> None:
        async with open_pool(url) as pool:
            backend = open_async(pool, url=url)

            with pytest.raises(DefiniteFailure):
                await backend.sessions.run(ask("SELECT pg_terminate_backend(pg_backend_pid())"))

            assert await backend.sessions.run(ask("SELECT 1")) == [(1,)]

    asyncio.run(scenario())


def test_a_connection_that_its_owner_left_inside_a_transaction_is_not_used_f024(open_pool: OpenPool, url: str) -> None:
    async def scenario() -> None:
        async with open_pool(url) as pool:
            backend = open_async(pool, url=url)
            [(before,)] = await backend.sessions.run(ask("SELECT pg_backend_pid()"))
            if isinstance(pool, psycopg_pool.AsyncConnectionPool):
                connection = await pool.getconn()
                # As it would be after a return that forgot to end what was begun.
                pool._pool.append(connection)
                await connection.execute("SELECT 1")
            else:
                holder = next(iter(pool._holders))
                await holder._con.execute("BEGIN")

            [(after,)] = await backend.sessions.run(ask("SELECT pg_backend_pid()"))

            assert before != after

    asyncio.run(scenario())


def test_a_blocking_pool_is_used_and_left_as_it_was(url: str) -> None:
    with psycopg_pool.ConnectionPool(url, min_size=1, max_size=1, open=True, kwargs={"row_factory": dict_row}) as pool:
        backend = open_blocking(pool, url=url)

        backend.sessions.run(ask_in_transaction("INSERT INTO scratch VALUES (1)"))
        with pytest.raises(DefiniteFailure, match="scratch_pkey"):
            backend.sessions.run(ask("INSERT INTO scratch VALUES (1)"))
        backend.sessions.close()

        with pool.connection() as connection:
            assert not connection.autocommit
            rows: list[object] = list(connection.execute("SELECT id FROM scratch"))
            assert rows == [{"id": 1}]


def test_heartbeats_have_a_connection_of_their_own_beside_an_exhausted_pool_f095(url: str) -> None:
    with psycopg_pool.ConnectionPool(url, min_size=1, max_size=1, open=True) as pool:
        backend = open_blocking(pool, connect=lambda: psycopg.connect(url))

        with pool.connection():
            beat = backend.beat()
            rows = beat.run(ask("SELECT 1"))
            beat.close()

    assert rows == [(1,)]


def test_heartbeats_of_asyncpg_are_blocking_too_f051(url: str) -> None:
    async def scenario() -> None:
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
            backend = open_async(pool, connect=lambda: asyncpg.connect(url))
            beat = backend.beat()

            assert beat.run(ask("SELECT 1")) == [(1,)]
            with pytest.raises(DefiniteFailure):
                beat.run(ask("SELECT nonsense"))
            beat.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("options", [{}, {"url": "postgresql://x/y", "connect": lambda: None}])
def test_a_pool_without_a_way_to_direct_connections_is_refused(url: str, options: dict[str, Any]) -> None:
    with (
        psycopg_pool.ConnectionPool(url, min_size=1, open=True) as pool,
        pytest.raises(ConfigError, match="add url= or connect="),
    ):
        open_blocking(pool, **options)


def test_a_pool_of_the_other_world_is_refused(url: str) -> None:
    with (
        psycopg_pool.ConnectionPool(url, min_size=1, open=True) as pool,
        pytest.raises(ConfigError, match="asyncio code"),
    ):
        open_async(pool, url=url)
    with pytest.raises(ConfigError, match="blocking code"):
        open_blocking(psycopg_pool.AsyncConnectionPool(url, open=False), url=url)
