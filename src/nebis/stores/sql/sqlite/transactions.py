"""Transactions in which the application's own rows and the outcome are committed together."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from nebis.flow import Ask, Flow, drive
from nebis.stores.sql.asks import Begin, Commit, Query, Rollback, Row, Write
from nebis.stores.sql.sqlite.connection import Connection
from nebis.stores.sql.sqlite.failures import failure_of
from nebis.stores.sql.sqlite.sessions import SqliteSessions

T = TypeVar("T")

_WHOLE = "nebis_transaction"
"""A savepoint that lives exactly as long as the transaction that we began."""
_PART = "nebis_verb"
"""A savepoint around one store flow, so that a flow that fails leaves nothing behind."""


class Place(Protocol):
    """Where a transaction's connection comes from and goes to."""

    def take(self) -> Connection:
        """Return a connection that nobody else uses."""
        ...

    def give_back(self) -> None:
        """Let go of it, whatever state it is in."""
        ...


class OwnPlace:
    """A connection of the store's own, apart from the one that serves everybody: a transaction may take its time."""

    def __init__(self, idle: list[SqliteSessions], open_sessions: Callable[[], SqliteSessions]) -> None:
        self._idle = idle
        self._open_sessions = open_sessions
        self._taken: SqliteSessions | None = None

    def take(self) -> Connection:
        """Return an idle connection, or a new one."""
        try:
            taken = self._idle.pop()
        except IndexError:
            taken = self._open_sessions()
        connection = taken.take()
        self._taken = taken
        return connection

    def give_back(self) -> None:
        """Keep the connection for the next transaction; one that is broken reopens by itself."""
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.give_back()
            self._idle.append(taken)


class JoinedPlace:
    """The application's own connection, which stays open."""

    def __init__(self, join: Callable[[], Connection]) -> None:
        self._join = join
        self._joined: Connection | None = None

    def take(self) -> Connection:
        """Return the connection after checking that we can keep our promise on it."""
        self._joined = self._join()
        return self._joined

    def give_back(self) -> None:
        """Leave it without a transaction."""
        if self._joined is not None:
            self._joined.settle()


class SqliteTransaction:
    """One transaction, which holds the write lock of the whole file from its beginning to its end."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._taken: Connection | None = None

    @property
    def connection(self) -> sqlite3.Connection:
        """Return the connection that the application writes its rows with."""
        return self._open().raw

    def begin(self) -> None:
        """Take the write lock; raise `RowLocked` if others keep it for longer than the busy timeout."""
        self._taken = self._place.take()
        try:
            self._taken.perform(Begin())
            self._say(f"SAVEPOINT {_WHOLE}")
        except BaseException:
            self.rollback()
            raise

    def run(self, flow: Flow[T]) -> T:
        """Perform a store flow inside the transaction."""
        return drive(flow, self._perform)

    def settle(self, flow: Flow[T]) -> T | None:
        """Perform the last store flow inside the transaction, or return None if somebody else ended it."""
        return self.run(flow) if self.is_same() else None

    def is_same(self) -> bool:
        """Tell whether our savepoint is still there: a commit or rollback by anybody else would have ended it."""
        raw = self._open().raw
        try:
            raw.execute(f"RELEASE {_WHOLE}")
            raw.execute(f"SAVEPOINT {_WHOLE}")
        except sqlite3.Error:
            return False
        return True

    def commit(self) -> None:
        """Commit, and let the connection go either way."""
        try:
            self._open().perform(Commit())
        finally:
            self._end()

    def rollback(self) -> None:
        """Undo everything that is not committed."""
        if self._taken is not None:
            self._end()

    def _end(self) -> None:
        self._taken = None
        self._place.give_back()

    def _perform(self, ask: Ask[Any]) -> Any:
        match ask:
            case Query() | Write():
                return self._open().perform(ask)
            case Begin():
                return self._say(f"SAVEPOINT {_PART}")
            case Commit():
                return self._say(f"RELEASE {_PART}")
            case Rollback():
                self._say(f"ROLLBACK TO {_PART}")
                return self._say(f"RELEASE {_PART}")
            case _:
                raise AssertionError(f"a SQLite transaction cannot perform {type(ask).__name__}")

    def _say(self, text: str) -> None:
        try:
            self._open().raw.execute(text)
        except sqlite3.Error as error:
            # Nothing of this transaction is committed yet, so whatever it was, it was refused.
            raise failure_of(error, in_commit=False) from error

    def _open(self) -> Connection:
        assert self._taken is not None, "The transaction has not begun, or is over."
        return self._taken


class ThreadConnection:
    """What the application writes its rows with under asyncio: the connection, by way of the thread that has it."""

    def __init__(self, transaction: AsyncSqliteTransaction) -> None:
        self._transaction = transaction

    async def execute(self, text: str, parameters: Sequence[object] | dict[str, object] = ()) -> list[Row]:
        """Run one statement and return its rows."""
        return await self.run(lambda raw: raw.execute(text, parameters).fetchall())

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the connection, on the thread."""
        return await self._transaction.call(work)


class AsyncSqliteTransaction:
    """The same transaction on a thread of its own: a cancelled caller leaves, what runs goes on to its end."""

    is_shielded = True

    def __init__(self, transaction: SqliteTransaction) -> None:
        self._transaction = transaction
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nebis-sqlite-transaction")

    @property
    def connection(self) -> ThreadConnection:
        """Return what the application writes its rows with."""
        return ThreadConnection(self)

    async def begin(self) -> None:
        """Take the write lock."""
        try:
            await self._on_thread(self._transaction.begin)
        except BaseException:
            # A begin that was left behind would keep the lock for ever.
            self._thread.submit(self._transaction.rollback)
            self._thread.shutdown(wait=False)
            raise

    async def run(self, flow: Flow[T]) -> T:
        """Perform a store flow inside the transaction."""
        return await self._on_thread(lambda: self._transaction.run(flow))

    async def call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the connection."""
        return await self._on_thread(lambda: work(self._transaction.connection))

    async def settle(self, flow: Flow[T]) -> T | None:
        """Perform the last store flow inside the transaction, or return None if somebody else ended it."""
        return await self._on_thread(lambda: self._transaction.settle(flow))

    async def is_same(self) -> bool:
        """Tell whether nobody else ended the transaction."""
        return await self._on_thread(self._transaction.is_same)

    async def commit(self) -> None:
        """Commit, whether or not the caller stays to hear of it."""
        try:
            await self._on_thread(self._transaction.commit)
        finally:
            self._thread.shutdown(wait=False)

    async def rollback(self) -> None:
        """Undo everything that is not committed, and end the thread."""
        with suppress(RuntimeError):  # The thread has ended: so has the transaction.
            await self._on_thread(self._transaction.rollback)
        self._thread.shutdown(wait=False)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))
