"""What many teams write themselves: insert the key, do the work, update the row. No fingerprint, lease or fence."""

import asyncio
import json
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import asyncpg  # type: ignore[import-untyped]  # The driver ships no types.
import psycopg2
import psycopg2.pool
from psycopg_pool import AsyncConnectionPool

from benchmarks.contender import AsyncCall, BlockingCall, Places
from benchmarks.work import Work

POOL_SIZE = 20
_TABLE = "CREATE TABLE IF NOT EXISTS naive (key text PRIMARY KEY, status int, body {json}, created timestamptz {now})"
_POSTGRES_TABLE = _TABLE.format(json="jsonb", now="DEFAULT now()")
_SQLITE_TABLE = _TABLE.format(json="text", now="DEFAULT CURRENT_TIMESTAMP")


@asynccontextmanager
async def psycopg_async(places: Places, work: Work) -> AsyncIterator[AsyncCall]:
    """Use psycopg as its documentation shows: what is done with a connection of the pool is committed at the end."""
    async with _psycopg(places, work, autocommit=False) as call:
        yield call


@asynccontextmanager
async def psycopg_autocommit(places: Places, work: Work) -> AsyncIterator[AsyncCall]:
    """Do the same without BEGIN and COMMIT: each statement is a transaction, for those who know that setting."""
    async with _psycopg(places, work, autocommit=True) as call:
        yield call


@asynccontextmanager
async def _psycopg(places: Places, work: Work, *, autocommit: bool) -> AsyncIterator[AsyncCall]:
    pool = AsyncConnectionPool(
        places.postgres_url, min_size=POOL_SIZE, max_size=POOL_SIZE, open=False, kwargs={"autocommit": autocommit}
    )
    async with pool:
        await pool.wait()
        async with pool.connection() as connection:
            await connection.execute(_POSTGRES_TABLE)

        async def call(key: str) -> object:
            async with pool.connection() as connection:
                cursor = await connection.execute(
                    "INSERT INTO naive (key) VALUES (%s) ON CONFLICT DO NOTHING RETURNING key", (key,)
                )
                if await cursor.fetchone() is None:
                    cursor = await connection.execute("SELECT body FROM naive WHERE key = %s", (key,))
                    row = await cursor.fetchone()
                    return row and row[0]
            answer = await work.run()
            async with pool.connection() as connection:
                await connection.execute(
                    "UPDATE naive SET status = 200, body = %s WHERE key = %s", (json.dumps(answer), key)
                )
            return answer

        yield call


@asynccontextmanager
async def asyncpg_async(places: Places, work: Work) -> AsyncIterator[AsyncCall]:
    async with asyncpg.create_pool(places.postgres_url, min_size=POOL_SIZE, max_size=POOL_SIZE) as pool:
        await pool.execute(_POSTGRES_TABLE)

        async def call(key: str) -> object:
            async with pool.acquire() as connection:
                row = await connection.fetchrow(
                    "INSERT INTO naive (key) VALUES ($1) ON CONFLICT DO NOTHING RETURNING key", key
                )
                if row is None:
                    body = await connection.fetchval("SELECT body FROM naive WHERE key = $1", key)
                    return body and json.loads(body)
            answer = await work.run()
            async with pool.acquire() as connection:
                await connection.execute(
                    "UPDATE naive SET status = 200, body = $2 WHERE key = $1", key, json.dumps(answer)
                )
            return answer

        yield call


@asynccontextmanager
async def psycopg2_threads(places: Places, work: Work) -> AsyncIterator[BlockingCall]:
    pool = psycopg2.pool.ThreadedConnectionPool(POOL_SIZE, POOL_SIZE, places.postgres_url)
    # This pool raises when it is empty instead of waiting.
    free = threading.Semaphore(POOL_SIZE)

    def using(statement: str, values: tuple[object, ...]) -> tuple[object, ...] | None:
        with free:
            connection = pool.getconn()
            try:
                with connection, connection.cursor() as cursor:
                    cursor.execute(statement, values)
                    found: tuple[object, ...] | None = cursor.fetchone() if cursor.description else None
                    return found
            finally:
                pool.putconn(connection)

    def call(key: str) -> object:
        if using("INSERT INTO naive (key) VALUES (%s) ON CONFLICT DO NOTHING RETURNING key", (key,)) is None:
            row = using("SELECT body FROM naive WHERE key = %s", (key,))
            return row and row[0]
        answer = work.run_blocking()
        using("UPDATE naive SET status = 200, body = %s WHERE key = %s", (json.dumps(answer), key))
        return answer

    using(_POSTGRES_TABLE, ())
    try:
        yield call
    finally:
        pool.closeall()


def _sqlite_caller(places: Places, run: Callable[[], object]) -> BlockingCall:
    """Return a function that has a connection to itself, in WAL mode with a sync at every commit."""
    free: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()

    def connect() -> sqlite3.Connection:
        path = places.directory / "naive.db"
        connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(_SQLITE_TABLE)
        return connection

    def call(key: str) -> object:
        try:
            connection = free.get_nowait()
        except queue.Empty:
            connection = connect()
        try:
            if not connection.execute("INSERT OR IGNORE INTO naive (key) VALUES (?)", (key,)).rowcount:
                (body,) = connection.execute("SELECT body FROM naive WHERE key = ?", (key,)).fetchone()
                return body and json.loads(body)
            answer = run()
            connection.execute("UPDATE naive SET status = 200, body = ? WHERE key = ?", (json.dumps(answer), key))
            return answer
        finally:
            free.put(connection)

    return call


@asynccontextmanager
async def sqlite_threads(places: Places, work: Work) -> AsyncIterator[BlockingCall]:
    yield _sqlite_caller(places, work.run_blocking)


@asynccontextmanager
async def sqlite_async(places: Places, work: Work) -> AsyncIterator[AsyncCall]:
    """One connection on one thread behind the event loop, as asyncio wrappers of sqlite3 have it."""
    blocking = _sqlite_caller(places, work.run_blocking)
    with ThreadPoolExecutor(max_workers=1) as executor:

        async def call(key: str) -> object:
            return await asyncio.get_running_loop().run_in_executor(executor, blocking, key)

        yield call
