"""Asyncio connections of our own, each used by one flow at a time, and what flows need of any other ones."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from nebis.flow import Ask, drive_async
from nebis.ports.store import StoreFailure
from nebis.stores.sql.postgres.conversation import Conversation, conversations
from nebis.stores.sql.postgres.failures import Trouble, Unreachable, refused_admission
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.startup import Primary, admit

C = TypeVar("C")


class AsyncDriver(Protocol[C]):
    """What sessions need of a driver; the twin of `BlockingDriver`."""

    async def connect(self) -> C:
        """Open a connection or raise `Unreachable`."""
        ...

    def is_idle(self, connection: C) -> bool:
        """Say whether the connection is open, outside any transaction and with no unread answer (F023, F024)."""
        ...

    def is_reusable(self, connection: C) -> bool:
        """Say whether it is worth keeping, after a flow, for a look by `is_idle` before the next one."""
        ...

    def perform(self, connection: C, ask: Ask[Any]) -> Awaitable[Any] | Any:
        """Do one ask of a conversation, or return what does; raise whatever the driver raises."""
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
        """Cut the connection, whatever it is doing; never raise, not even when its loop is closed."""
        ...


class AsyncSource(Protocol[C]):
    """Where connections come from and go back to."""

    is_pinned: bool
    """Whether its connections already hold our settings."""

    def take_now(self) -> C | None:
        """Return an idle connection if that takes no waiting; None leaves it to `take`."""
        ...

    async def take(self) -> C:
        """Return an idle connection or raise `DefiniteFailure`."""
        ...

    def give_back_now(self, connection: C, *, is_spoilt: bool) -> bool:
        """Do what `give_back` does and return True, if that takes no waiting."""
        ...

    async def give_back(self, connection: C, *, is_spoilt: bool) -> None:
        """Take a connection back, or throw a spoilt one away."""
        ...

    async def close(self) -> None:
        """Close what is ours."""
        ...


class _Home:
    """The connections of one event loop in one process: they work nowhere else (F094).

    Counted here and not by an `asyncio.Semaphore`, which cannot be had without awaiting it.
    """

    def __init__(self, size: int) -> None:
        self.idle: list[Any] = []
        self.left = size
        """How many more may be in use."""
        self.queue: deque[asyncio.Future[None]] = deque()
        """Who waits for one to come back; there are none left as long as anybody does."""

    def free(self) -> None:
        """Let another one be in use: that of whoever waited longest, or of whoever comes next."""
        while self.queue:
            waiter = self.queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.left += 1

    async def await_free(self, seconds: float) -> None:
        """Wait for one to come back; raise `TimeoutError` if none does in time."""
        waiter = asyncio.get_running_loop().create_future()
        self.queue.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException:  # However it ends, a connection that came meanwhile is for the next, and none is lost.
            if waiter.done() and not waiter.cancelled():
                self.free()  # It came at the very moment when nobody wanted it any more.
            elif waiter in self.queue:
                self.queue.remove(waiter)
            raise


class OwnAsyncConnections(Generic[C]):
    """Connections that Nebis opens, when first needed and anew in each process and event loop."""

    def __init__(
        self, driver: AsyncDriver[C], primary: Primary, settings: Settings, *, size: int, is_pinned: bool
    ) -> None:
        self.is_pinned = is_pinned
        self._driver = driver
        self._primary = primary
        self._settings = settings
        self._size = size
        self._new_conversation = conversations(driver, settings, is_pinned=is_pinned)
        # Entries of a parent process stay referenced, so that nothing ever closes its connections from here.
        self._homes: dict[tuple[int, asyncio.AbstractEventLoop], _Home] = {}
        self._is_closed = False

    def take_now(self) -> C | None:
        """Return the connection used last if it is idle."""
        home = self._homes.get((os.getpid(), asyncio.get_running_loop()))
        if home is None or self._is_closed or not home.left or not home.idle:
            return None
        connection: C = home.idle.pop()
        if not self._driver.is_idle(connection):
            self._driver.discard(connection)
            return None
        home.left -= 1
        return connection

    async def take(self) -> C:
        """Return an idle connection, the one used last, or open one."""
        if self._is_closed:
            raise Unreachable("these connections were closed")
        home = self._home()
        if home.left:
            home.left -= 1
        else:
            await self._await_free(home)
        try:
            return self._idle(home) or await self._open()
        except BaseException:
            home.free()
            raise

    async def _await_free(self, home: _Home) -> None:
        try:
            await home.await_free(self._settings.acquire_timeout_seconds)
        except TimeoutError:
            raise Unreachable(
                f"all {self._size} connections are busy and none came back "
                f"within {self._settings.acquire_timeout_seconds:g} s"
            ) from None

    def give_back_now(self, connection: C, *, is_spoilt: bool) -> bool:
        """Keep a connection for the next flow unless it may be in the middle of something."""
        home = self._home()
        if is_spoilt or self._is_closed or not self._driver.is_reusable(connection):
            self._driver.discard(connection)
        else:
            home.idle.append(connection)
        home.free()
        return True

    async def give_back(self, connection: C, *, is_spoilt: bool) -> None:
        """Do the same."""
        self.give_back_now(connection, is_spoilt=is_spoilt)

    async def close(self) -> None:
        """Close all idle connections of this loop, and every other one when it comes back."""
        self._is_closed = True
        self._empty(self._home())
        # A cut transport is closed by the loop a moment later.
        await asyncio.sleep(0)

    def _home(self) -> _Home:
        key = (os.getpid(), asyncio.get_running_loop())
        home = self._homes.get(key)
        if home is None:
            self._leave_closed_loops()
            home = self._homes[key] = _Home(self._size)
        return home

    def _leave_closed_loops(self) -> None:
        for pid, loop in list(self._homes):
            if pid == os.getpid() and loop.is_closed():
                self._empty(self._homes.pop((pid, loop)))

    def _empty(self, home: _Home) -> None:
        while home.idle:
            self._driver.discard(home.idle.pop())

    def _idle(self, home: _Home) -> C | None:
        while home.idle:
            connection: C = home.idle.pop()
            if self._driver.is_idle(connection):
                return connection
            self._driver.discard(connection)
        return None

    async def _open(self) -> C:
        driver, conversation = self._driver, self._new_conversation()
        connection = await driver.connect()
        try:
            listening = driver.listen_to_warnings(connection, conversation)
            await drive_async(conversation.hold(admit(self._primary)), partial(driver.perform, connection))
            driver.stop_listening(connection, listening)
        except BaseException as error:
            driver.discard(connection)
            if isinstance(error, StoreFailure):
                raise refused_admission(error) from None
            raise
        return connection
