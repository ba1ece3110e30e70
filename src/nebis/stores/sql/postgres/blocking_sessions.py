"""Blocking sessions: connections of our own or borrowed ones, each used by one flow at a time."""

from __future__ import annotations

import os
import threading
from typing import Any, Generic, Protocol, TypeVar

from nebis.flow import Ask, Flow, drive
from nebis.ports.store import StoreFailure
from nebis.stores.sql.postgres.conversation import Conversation, conversations
from nebis.stores.sql.postgres.failures import Trouble, Unreachable, refused_admission
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.startup import Primary, admit

T = TypeVar("T")
C = TypeVar("C")


class BlockingDriver(Protocol[C]):
    """What sessions need of a driver."""

    def connect(self) -> C:
        """Open a connection or raise `Unreachable`."""
        ...

    def is_idle(self, connection: C) -> bool:
        """Say whether the connection is open, outside any transaction and with no unread answer (F023, F024)."""
        ...

    def is_reusable(self, connection: C) -> bool:
        """Say whether it is worth keeping, after a flow, for a look by `is_idle` before the next one."""
        ...

    def perform(self, connection: C, ask: Ask[Any]) -> Any:
        """Do one ask of a conversation; raise whatever the driver raises."""
        ...

    def describe(self, error: Exception) -> Trouble:
        """Describe what `perform` raised."""
        ...

    def listen_to_warnings(self, connection: C, conversation: Conversation) -> Any:
        """Let the conversation hear what the server says unasked; return what `stop_listening` needs."""
        ...

    def stop_listening(self, connection: C, listening: Any) -> None:
        """Undo `listen_to_warnings`."""
        ...

    def discard(self, connection: C) -> None:
        """Cut the connection, whatever it is doing; never raise."""
        ...


class BlockingSource(Protocol[C]):
    """Where connections come from and go back to."""

    is_pinned: bool
    """Whether its connections already hold our settings."""

    def take(self) -> C:
        """Return an idle connection or raise `DefiniteFailure`."""
        ...

    def give_back(self, connection: C, *, is_spoilt: bool) -> None:
        """Take a connection back, or throw a spoilt one away."""
        ...

    def close(self) -> None:
        """Close what is ours."""
        ...


class BlockingSqlSessions(Generic[C]):
    """Runs flows on the connections of one source; safe to share between threads."""

    def __init__(self, driver: BlockingDriver[C], source: BlockingSource[C], settings: Settings) -> None:
        self._driver = driver
        self._source = source
        self._new_conversation = conversations(driver, settings, is_pinned=source.is_pinned)

    def run(self, flow: Flow[T]) -> T:
        """Perform a store flow on one connection and give it back, or throw it away after anything indefinite."""
        connection = self._source.take()
        conversation = self._new_conversation()
        try:
            return _converse(self._driver, connection, conversation, flow)
        finally:
            self._source.give_back(connection, is_spoilt=conversation.is_spoilt)

    def close(self) -> None:
        """Close every connection that is ours; one that is in use closes when it is given back."""
        self._source.close()


class _Process:
    """The connections of one process: a forked child must never touch those of its parent (F094)."""

    def __init__(self, size: int) -> None:
        self.idle: list[Any] = []
        self.free = threading.Semaphore(size)


class OwnConnections(Generic[C]):
    """Connections that Nebis opens, when first needed and anew in each process.

    A connection is opened by the thread that needs it, so that its caller learns at once why that failed; after a
    restart of the server there is no back-off to wait out.
    """

    def __init__(
        self, driver: BlockingDriver[C], primary: Primary, settings: Settings, *, size: int, is_pinned: bool
    ) -> None:
        self.is_pinned = is_pinned
        self._driver = driver
        self._primary = primary
        self._settings = settings
        self._size = size
        self._new_conversation = conversations(driver, settings, is_pinned=is_pinned)
        # By process id. Entries of a parent stay referenced, so that nothing ever closes its connections from here.
        self._processes: dict[int, _Process] = {}
        self._is_closed = False

    def take(self) -> C:
        """Return an idle connection, the one used last, or open one."""
        if self._is_closed:
            raise Unreachable("these connections were closed")
        process = self._process()
        if not process.free.acquire(timeout=self._settings.acquire_timeout_seconds):
            raise Unreachable(
                f"all {self._size} connections are busy and none came back "
                f"within {self._settings.acquire_timeout_seconds:g} s"
            )
        try:
            return self._idle(process) or self._open()
        except BaseException:
            process.free.release()
            raise

    def give_back(self, connection: C, *, is_spoilt: bool) -> None:
        """Keep a connection for the next flow unless it may be in the middle of something."""
        process = self._process()
        if is_spoilt or self._is_closed or not self._driver.is_reusable(connection):
            self._driver.discard(connection)
        else:
            process.idle.append(connection)
        process.free.release()

    def close(self) -> None:
        """Close all idle connections of this process, and every other one when it comes back."""
        self._is_closed = True
        idle = self._process().idle
        while idle:
            self._driver.discard(idle.pop())

    def _process(self) -> _Process:
        pid = os.getpid()
        # Both steps are atomic, and no lock is held that a fork could copy in its locked state.
        return self._processes.get(pid) or self._processes.setdefault(pid, _Process(self._size))

    def _idle(self, process: _Process) -> C | None:
        while True:
            try:
                connection: C = process.idle.pop()
            except IndexError:
                return None
            if self._driver.is_idle(connection):
                return connection
            self._driver.discard(connection)

    def _open(self) -> C:
        connection = self._driver.connect()
        conversation = self._new_conversation()
        try:
            _converse(self._driver, connection, conversation, admit(self._primary))
        except BaseException as error:
            self._driver.discard(connection)
            if isinstance(error, StoreFailure):
                raise refused_admission(error) from None
            raise
        return connection


def _converse(driver: BlockingDriver[C], connection: C, conversation: Conversation, flow: Flow[T]) -> T:
    listening = driver.listen_to_warnings(connection, conversation)
    try:
        return drive(conversation.hold(flow), lambda ask: driver.perform(connection, ask))
    finally:
        driver.stop_listening(connection, listening)
