"""Access to the file: one connection per process, shared by its threads, or by its event loop through one thread."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar
from weakref import WeakSet

from nebis.flow import Flow, drive
from nebis.ports.store import DefiniteFailure
from nebis.stores.sql.sqlite.connection import Connection
from nebis.stores.sql.sqlite.journal import Journal
from nebis.stores.sql.sqlite.location import DatabaseFile

T = TypeVar("T")


class SqliteSessions:
    """Blocking access: writers of one process queue here, those of several at SQLite's own lock."""

    def __init__(self, file: DatabaseFile, journal: Journal, busy_seconds: float) -> None:
        self._file = file
        self._journal = journal
        self._busy_seconds = busy_seconds
        self._turn = Lock()
        self._connection: Connection | None = None
        self._opened_by = 0
        _all_sessions.add(self)

    def run(self, flow: Flow[T]) -> T:
        """Perform a flow from its first ask to its last, with nobody else in between."""
        self._refuse_inherited_connection()
        with self._turn:
            connection = self._open()
            try:
                return drive(flow, connection.perform)
            finally:
                connection.settle()
                if not connection.is_usable:
                    # Closing and reading again is how an indefinite commit is settled here: nothing is in flight.
                    self._disconnect()

    def close(self) -> None:
        """Close the connection; the next run would open it again."""
        with self._turn:
            self._disconnect()

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._file, self._journal, self._busy_seconds)
            self._opened_by = os.getpid()
        else:
            self._file.check()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _refuse_inherited_connection(self) -> None:
        """Refuse where somebody forked past Python: SQLite's locks are lost on the way, and nothing can mend that."""
        if self._connection is not None and self._opened_by != os.getpid():
            raise DefiniteFailure("the process was forked with the database open; open the store after the fork")

    def prepare_fork(self) -> None:
        """Close before the fork: a child that inherits an open file would believe in locks that it does not hold."""
        self._turn.acquire()
        self._disconnect()

    def recover_from_fork(self) -> None:
        """Let parent and child each open a connection of their own."""
        self._turn.release()


class AsyncSqliteSessions:
    """Asyncio access: every flow runs on one thread, so that no commit can be cancelled half-way."""

    def __init__(self, sessions: SqliteSessions) -> None:
        self._sessions = sessions
        self._thread: ThreadPoolExecutor | None = None
        self._started_by = 0

    async def run(self, flow: Flow[T]) -> T:
        """Perform a flow on the thread. A cancelled caller leaves, the flow goes on to its end."""
        running = asyncio.get_running_loop().run_in_executor(self._executor(), self._sessions.run, flow)
        return await asyncio.shield(running)

    async def close(self) -> None:
        """Close the connection, after what is running, and end the thread."""
        executor, self._thread = self._executor(), None
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(executor, self._sessions.close))
        executor.shutdown(wait=False)

    def _executor(self) -> ThreadPoolExecutor:
        # Threads do not survive a fork, but the object that stands for them does.
        if self._thread is None or self._started_by != os.getpid():
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nebis-sqlite")
            self._started_by = os.getpid()
        return self._thread


_all_sessions: WeakSet[SqliteSessions] = WeakSet()
_held_for_fork: list[SqliteSessions] = []


def _before_fork() -> None:
    for sessions in list(_all_sessions):
        sessions.prepare_fork()
        _held_for_fork.append(sessions)


def _after_fork() -> None:
    while _held_for_fork:
        _held_for_fork.pop().recover_from_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
