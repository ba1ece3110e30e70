"""Access to the file: one connection per process, shared by its threads, or by its event loop through one thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar
from weakref import WeakSet

from nebis.flow import Flow, drive
from nebis.ports.store import DefiniteFailure
from nebis.stores.sql.sqlite.connection import Connection, open_connection
from nebis.stores.sql.sqlite.journal import Journal
from nebis.stores.sql.sqlite.location import DatabaseFile

T = TypeVar("T")


class SqliteSessions:
    """Blocking access: writers of one process queue here, those of several at SQLite's own lock."""

    def __init__(
        self, file: DatabaseFile, journal: Journal, busy_seconds: float, *, companions: Sequence[SqliteSessions] = ()
    ) -> None:
        """Open nothing yet. `companions` are closed with this one: idle connections of transactions, as they come."""
        self._file = file
        self._journal = journal
        self._busy_seconds = busy_seconds
        self._companions = companions
        self._turn = Lock()
        self._connection: Connection | None = None
        _forks.sessions.add(self)

    def run(self, flow: Flow[T]) -> T:
        """Perform a flow from its first ask to its last, with nobody else in between."""
        connection = self.take()
        try:
            return drive(flow, connection.perform)
        finally:
            self.give_back()

    def take(self) -> Connection:
        """Wait for the connection; it is the caller's until `give_back`."""
        if _was_forked_open():
            raise DefiniteFailure("the process was forked with the database open; open the store after the fork")
        self._turn.acquire()
        try:
            return self._open()
        except BaseException:
            self._turn.release()
            raise

    def give_back(self) -> None:
        """Undo what was left open and let the next one have the connection."""
        try:
            if self._connection is not None:
                self._connection.settle()
                if not self._connection.is_usable:
                    # Closing and reading again is how an indefinite commit is settled here: nothing is in flight.
                    self._disconnect()
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the connection; the next run would open it again."""
        for companion in self._companions:
            companion.close()
        with self._turn:
            self._disconnect()

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = open_connection(self._file, self._journal, self._busy_seconds)
        else:
            self._file.check()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def prepare_fork(self) -> bool:
        """Close before a fork and say whether that was possible; then the connection waits for `recover_from_fork`."""
        if not self._turn.acquire(timeout=self._busy_seconds):
            return False
        self._disconnect()
        return True

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
        return await asyncio.shield(self.run_unshielded(flow))

    def run_unshielded(self, flow: Flow[T]) -> asyncio.Future[T]:
        """Perform a flow on the thread, or not at all if the caller is cancelled before its turn."""
        return asyncio.get_running_loop().run_in_executor(self._executor(), self._sessions.run, flow)

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


class _Forks:
    """What happens to open files when the process is forked.

    A child that inherits an open database would believe in locks that it does not hold, and so would every connection
    that it opens on the same file. Therefore all are closed before the fork. Where that was impossible, because a
    transaction did not end or because somebody forked past Python, the child refuses to work (F094).
    """

    def __init__(self) -> None:
        self.sessions: WeakSet[SqliteSessions] = WeakSet()
        self.pid = os.getpid()
        self.inherited_open = False
        self._held: list[SqliteSessions] = []
        self._left_open = False

    def before(self) -> None:
        everyone = list(self.sessions)
        self._held = [sessions for sessions in everyone if sessions.prepare_fork()]
        self._left_open = len(self._held) < len(everyone)

    def after_in_parent(self) -> None:
        while self._held:
            self._held.pop().recover_from_fork()

    def after_in_child(self) -> None:
        self.pid = os.getpid()
        self.inherited_open = self.inherited_open or self._left_open
        self.after_in_parent()


_forks = _Forks()
os.register_at_fork(before=_forks.before, after_in_parent=_forks.after_in_parent, after_in_child=_forks.after_in_child)


def _was_forked_open() -> bool:
    return _forks.inherited_open or _forks.pid != os.getpid()
