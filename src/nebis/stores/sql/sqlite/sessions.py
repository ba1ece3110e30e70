"""Access to the file: one connection per process, shared by its threads, or by its event loop and a thread of that."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakSet

from nebis.flow import Ask, Flow, drive
from nebis.ports.store import DefiniteFailure, RowLocked
from nebis.stores.sql.asks import Written
from nebis.stores.sql.sqlite.connection import Connection, open_connection
from nebis.stores.sql.sqlite.eventloop import LoopTurns
from nebis.stores.sql.sqlite.journal import Journal
from nebis.stores.sql.sqlite.location import DatabaseFile
from nebis.stores.sql.sqlite.plural import BoundWrite

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

    def run_from(self, flow: Flow[T], ask: Ask[Any], tell: Callable[[T], None]) -> T:
        """Do the same for a flow that has asked for something already. As `finish`, it tells before a checkpoint."""
        self.take()
        return self.finish(flow, ask, tell)

    def write(self, write: BoundWrite) -> tuple[Written, bool]:
        """Perform a write that is all of its transaction; say also whether it is time to `checkpoint`."""
        connection = self.take()
        try:
            return connection.perform(write), connection.is_checkpoint_due
        finally:
            self.give_back(may_checkpoint=False)

    def checkpoint(self) -> None:
        """Copy the log into the database, if it is still time."""
        self.take()
        self.give_back()

    def start(self, flow: Flow[Any], ask: Ask[Any]) -> Ask[Any] | None:
        """Perform as much of a flow as can be done without waiting; it raises what the flow raises, and its end.

        Return the ask that may have to wait: `finish` goes on there, and must be called, by whatever thread. None if
        not even the connection is there: then nothing has begun.
        """
        connection = self._taken_at_once()
        if connection is None:
            return None
        connection.may_wait = False
        try:
            while not connection.takes_long(ask):
                try:
                    result = connection.perform(ask)
                except BaseException as error:  # noqa: BLE001 - the flow decides, as in `drive`.
                    if isinstance(error, RowLocked) and not connection.has_begun:
                        return ask  # It has done nothing, so it can be asked again.
                    ask = flow.throw(error)
                else:
                    ask = flow.send(result)
        except BaseException:
            self.give_back()
            raise
        finally:
            connection.may_wait = True
        return ask

    def finish(self, flow: Flow[T], ask: Ask[Any], tell: Callable[[T], None]) -> T:
        """Perform the rest of a flow that was started, from the ask on that may have to wait.

        What it returns is told before, where a checkpoint comes first: that is nothing to wait for.
        """
        assert self._connection is not None, "The flow was not started here."
        perform = self._connection.perform
        try:
            while True:
                try:
                    result = perform(ask)
                except BaseException as error:  # noqa: BLE001 - the flow decides, as in `drive`.
                    ask = flow.throw(error)
                else:
                    ask = flow.send(result)
        except StopIteration as end:
            value: T = end.value
            if self._connection.is_checkpoint_due:
                tell(value)
            return value
        finally:
            self.give_back()

    def _taken_at_once(self) -> Connection | None:
        """Take the connection if it is open and free; never where to begin or to read can wait for a writer."""
        if self._connection is None or not self._journal.is_wal or _was_forked_open():
            return None
        if not self._turn.acquire(blocking=False):
            return None
        try:
            if self._connection is not None:
                self._file.check()
                return self._connection
        except DefiniteFailure:
            pass  # Whoever takes it in earnest is told.
        self._turn.release()
        return None

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

    def give_back(self, *, may_checkpoint: bool = True) -> None:
        """Undo what was left open and let the next one have the connection."""
        try:
            if self._connection is not None:
                self._connection.settle(may_checkpoint=may_checkpoint)
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
    """Asyncio access: what may wait runs on a thread, so that no commit holds up the loop or is cancelled half-way."""

    def __init__(self, sessions: SqliteSessions) -> None:
        self._sessions = sessions
        self._turns: LoopTurns | None = None

    async def run(self, flow: Flow[T]) -> T:
        """Perform a flow on the thread. A cancelled caller leaves, the flow goes on to its end."""
        return await asyncio.shield(self._loop_turns().call(self._sessions.run, flow))

    def run_unshielded(self, flow: Flow[T]) -> asyncio.Future[T]:
        """Perform a batch of ours, or nothing of it if it is cancelled before its turn."""
        return self._loop_turns().run(flow)

    async def close(self) -> None:
        """Close the connection, after what is running, and end the thread."""
        turns, self._turns = self._loop_turns(), None
        await asyncio.shield(turns.end(self._sessions.close))

    def _loop_turns(self) -> LoopTurns:
        loop = asyncio.get_running_loop()
        if self._turns is None or not self._turns.belong_to(loop):
            self._turns = LoopTurns(loop, self._sessions)
        return self._turns


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
