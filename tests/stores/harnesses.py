"""Harnesses of the stores that ship with Nebis, each of them as any store's author would write it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TypeVar

import psycopg

from nebis.flow import Flow
from nebis.ports.store import AsyncBackend, BlockingSessions
from nebis.stores.memory import MemoryStore
from nebis.stores.memory import open_async as open_memory_async
from nebis.stores.memory import open_blocking as open_memory
from nebis.stores.sql.postgres.backend import open_async as open_postgres_async
from nebis.stores.sql.postgres.backend import open_blocking as open_postgres
from nebis.stores.sql.sqlite.backend import open_async as open_sqlite_async
from nebis.stores.sql.sqlite.backend import open_blocking as open_sqlite
from nebis.testing.conformance import Connection, Harness, connection_of, connection_on_private_loop
from tests.engines.postgres import PostgresServer

T = TypeVar("T")

# Long enough for every race of the suite, short enough for the test that waits until it is over.
BUSY_SECONDS = 0.5
EMPTYING = (
    "DELETE FROM nebis_attempt",
    "DELETE FROM nebis_effect",
    "DELETE FROM nebis_record",
    "DELETE FROM nebis_late_result",
    "DELETE FROM nebis_meta WHERE name LIKE 'secret%'",
)


class MemoryHarness(Harness):
    def __init__(self, opening: Callable[[MemoryStore], Connection]) -> None:
        self._opening = opening
        self._store = MemoryStore()

    def fresh(self) -> Connection:
        self._store = MemoryStore()
        return self.connect()

    def connect(self) -> Connection:
        return self._opening(self._store)


@dataclass(frozen=True, slots=True)
class _KeptOpen:
    """Sessions that survive the test that closes them: logging in anew would take longer than most tests."""

    sessions: BlockingSessions

    def run(self, flow: Flow[T]) -> T:
        return self.sessions.run(flow)

    def close(self) -> None:
        pass


class _DatabaseHarness(Harness):
    """A database that is emptied, not made anew, for each test."""

    def __init__(self) -> None:
        self._main_url = self.create()
        self._url = self._main_url
        self._main = self.open(self._main_url)
        self._main.run(self._main.store.migrate())

    def create(self) -> str:
        raise NotImplementedError

    def open(self, url: str) -> Connection:
        raise NotImplementedError

    def empty(self, url: str) -> None:
        raise NotImplementedError

    def fresh(self) -> Connection:
        self._url = self._main_url
        self.empty(self._url)
        return replace(self._main, sessions=_KeptOpen(self._main.sessions))

    def blank(self) -> Connection:
        self._url = self.create()
        return self.connect()

    def connect(self) -> Connection:
        return self.open(self._url)

    def close(self) -> None:
        self._main.close()


class SqliteHarness(_DatabaseHarness):
    locks_single_records = False

    def __init__(self, folder: Path, opening: Callable[[str], Connection]) -> None:
        self._folder = folder
        self._opening = opening
        self._numbers = count()
        super().__init__()

    def create(self) -> str:
        return f"sqlite:///{self._folder}/{next(self._numbers)}.db"

    def open(self, url: str) -> Connection:
        return self._opening(url)

    def empty(self, url: str) -> None:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.executescript(f"BEGIN IMMEDIATE; {'; '.join(EMPTYING)}; COMMIT;")
        connection.close()


class PostgresHarness(_DatabaseHarness):
    def __init__(self, server: PostgresServer, opening: Callable[[str], Connection]) -> None:
        self._server = server
        self._opening = opening
        super().__init__()

    def create(self) -> str:
        return self._server.create_database()

    def open(self, url: str) -> Connection:
        return self._opening(url)

    def empty(self, url: str) -> None:
        with psycopg.connect(url) as connection:
            for statement in EMPTYING:
                connection.execute(statement.encode())


def memory(store: MemoryStore) -> Connection:
    return connection_of(open_memory(store))


def memory_async(store: MemoryStore) -> Connection:
    async def opening() -> AsyncBackend:
        return open_memory_async(store)

    return connection_on_private_loop(opening)


def sqlite(url: str) -> Connection:
    return connection_of(open_sqlite(url, busy_seconds=BUSY_SECONDS))


def sqlite_async(url: str) -> Connection:
    async def opening() -> AsyncBackend:
        return open_sqlite_async(url, busy_seconds=BUSY_SECONDS)

    return connection_on_private_loop(opening)


def psycopg_blocking(url: str) -> Connection:
    return connection_of(open_postgres(url))


def psycopg_async(url: str) -> Connection:
    async def opening() -> AsyncBackend:
        return open_postgres_async(url)

    return connection_on_private_loop(opening)


def asyncpg(url: str) -> Connection:
    async def opening() -> AsyncBackend:
        return open_postgres_async(url.replace("postgresql://", "postgresql+asyncpg://"))

    return connection_on_private_loop(opening)
