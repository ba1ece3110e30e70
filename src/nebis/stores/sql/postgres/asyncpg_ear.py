"""LISTEN through asyncpg, on an event loop that belongs to the listening thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # The driver ships no types.

from nebis.ports.store import IndefiniteFailure
from nebis.stores.sql.postgres.asyncpg_driver import Asyncpg
from nebis.stores.sql.postgres.listener import CHANNEL


class AsyncpgEar:
    """One asyncpg connection that listens."""

    def __init__(self, driver: Asyncpg) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False
        self._ended = asyncio.Event()

    def hear(self, heard: Callable[[str], None], ready: Callable[[], None]) -> None:
        """Call `ready` once connected, then `heard` with every payload, until woken; raise when the connection ends."""
        asyncio.run(self._hear(heard, ready))

    def wake(self) -> None:
        """Make `hear` return."""
        with self._lock:
            self._is_woken = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._ended.set)

    async def _hear(self, heard: Callable[[str], None], ready: Callable[[], None]) -> None:
        with self._lock:
            if self._is_woken:
                return
            self._loop = asyncio.get_running_loop()
        try:
            await self._listen(heard, ready)
        finally:
            with self._lock:
                self._loop = None

    async def _listen(self, heard: Callable[[str], None], ready: Callable[[], None]) -> None:
        connection = await self._driver.connect()
        try:
            connection.add_termination_listener(lambda _: self._ended.set())
            await connection.add_listener(CHANNEL, lambda *notification: _pass_on(heard, notification))
            ready()
            await self._ended.wait()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            raise IndefiniteFailure(f"the listening connection was lost ({type(error).__name__})") from None
        finally:
            self._driver.discard(connection)
        if not self._is_woken:
            raise IndefiniteFailure("the listening connection was lost")


def _pass_on(heard: Callable[[str], None], notification: tuple[Any, ...]) -> None:
    _, _, _, payload = notification
    heard(payload)
