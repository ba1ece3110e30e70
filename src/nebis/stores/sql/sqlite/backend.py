"""Opening a SQLite store from its URL."""

from __future__ import annotations

from typing import Literal, TypeVar

from nebis.errors import MisuseError
from nebis.flow import Flow, drive
from nebis.ports.store import (
    AsyncBackend,
    AsyncTransaction,
    BlockingBackend,
    BlockingTransaction,
    Capabilities,
    Tier,
)
from nebis.stores.sql.dialect import sqlite_dialect
from nebis.stores.sql.joining import adapter_for
from nebis.stores.sql.joining.sqlite import AsyncJoinedTransaction, JoinedTransaction, lent
from nebis.stores.sql.sqlite.connection import Connection, join_connection, lend_connection
from nebis.stores.sql.sqlite.journal import Journal, chosen_journal
from nebis.stores.sql.sqlite.location import DatabaseFile, check_location, path_of
from nebis.stores.sql.sqlite.sessions import AsyncSqliteSessions, SqliteSessions
from nebis.stores.sql.sqlite.transactions import (
    AsyncSqliteTransaction,
    JoinedPlace,
    OwnPlace,
    SqliteTransaction,
    ThreadConnection,
)
from nebis.stores.sql.verbs import SqlStore

T = TypeVar("T")

BUSY_SECONDS = 5.0
"""How long a write waits for other processes. Shorter refuses under bursts, longer outlives a client's patience."""

JournalWish = Literal["wal", "rollback"]


class Opened:
    """One file, opened with one way of journalling; it hands out sessions with a connection each."""

    def __init__(self, url: str, journal: JournalWish, busy_seconds: float) -> None:
        path = path_of(url)
        check_location(path)
        self.journal = chosen_journal(journal)
        self._file = DatabaseFile(path)
        self._busy_seconds = busy_seconds
        self._idle: list[SqliteSessions] = []
        self.store = SqlStore(sqlite_dialect(), _capabilities(self.journal))

    def transaction(self, target: object | None) -> BlockingTransaction:
        """Return a transaction on a connection of our own, or on the application's."""
        if target is None:
            return self._own_transaction()
        library = adapter_for(target)
        if library is not None:
            return JoinedTransaction(library, self._joined)
        return SqliteTransaction(JoinedPlace(lambda: self._joined(target)))

    def async_transaction(self, target: object | None) -> AsyncTransaction:
        """Return a transaction on a thread of its own, or the one of a library that brings such a thread."""
        if target is None:
            return AsyncSqliteTransaction(self._own_transaction())
        library = adapter_for(target)
        if library is None:
            raise MisuseError("Under asyncio a SQLite transaction runs on the store's connection; hand in none.")
        return AsyncJoinedTransaction(library, self._joined)

    def lend(self, target: object, flow: Flow[T]) -> T:
        """Perform a store flow inside a transaction that the application began on this connection."""
        library = adapter_for(target)
        if library is not None:
            return library.hands().do(lent(self._lent, flow))
        return drive(flow, self._lent(target).perform)

    async def async_lend(self, target: object, flow: Flow[T]) -> T:
        """Do the same under asyncio, where a connection of SQLite lives on a thread."""
        if isinstance(target, ThreadConnection):
            return await target.run(lambda raw: drive(flow, self._lent(raw).perform))
        library = adapter_for(target)
        if library is None:
            raise MisuseError("Under asyncio hand in the connection of a transaction of ours, or one of SQLAlchemy.")
        return await library.async_hands().do(lent(self._lent, flow))

    def _lent(self, raw: object) -> Connection:
        return lend_connection(raw, self._file, self._busy_seconds)

    def _own_transaction(self) -> SqliteTransaction:
        return SqliteTransaction(OwnPlace(self._idle, self.sessions))

    def _joined(self, raw: object) -> Connection:
        return join_connection(raw, self._file, self.journal, self._busy_seconds)

    def shared_sessions(self) -> SqliteSessions:
        """Return access through the connection that serves everybody; closing it closes idle ones too."""
        return SqliteSessions(self._file, self.journal, self._busy_seconds, companions=self._idle)

    def sessions(self) -> SqliteSessions:
        """Return access through a connection of its own, which opens when it is first used."""
        return SqliteSessions(self._file, self.journal, self._busy_seconds)


def open_blocking(url: str, *, journal: JournalWish = "wal", busy_seconds: float = BUSY_SECONDS) -> BlockingBackend:
    """Open `sqlite:///relative` or `sqlite:////absolute`; raise `ConfigError` where no database can be kept safely."""
    opened = Opened(url, journal, busy_seconds)
    return BlockingBackend(
        store=opened.store,
        sessions=opened.shared_sessions(),
        beat=opened.sessions,
        transaction=opened.transaction,
        lend=opened.lend,
    )


def open_async(url: str, *, journal: JournalWish = "wal", busy_seconds: float = BUSY_SECONDS) -> AsyncBackend:
    """Open the same for asyncio."""
    opened = Opened(url, journal, busy_seconds)
    return AsyncBackend(
        store=opened.store,
        sessions=AsyncSqliteSessions(opened.shared_sessions()),
        beat=opened.sessions,
        lanes=2,
        transaction=opened.async_transaction,
        lend=opened.async_lend,
    )


def _capabilities(journal: Journal) -> Capabilities:
    return Capabilities(
        name="sqlite",
        tier=Tier.FULL,
        survives_restart=True,
        joins_transactions=True,
        wakes_other_processes=False,
        assumptions=(
            "every process that uses the file runs on this machine, and the file is on a local disk",
            "the disk keeps what it said it has written",
            journal.assumption,
        ),
    )
