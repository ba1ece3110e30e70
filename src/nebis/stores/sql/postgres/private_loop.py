"""An event loop on a thread of its own, for blocking callers of a driver that only knows asyncio."""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from nebis.flow import Flow
from nebis.ports.store import AsyncSessions

T = TypeVar("T")


_selectors: weakref.WeakSet[selectors.BaseSelector] = weakref.WeakSet()


def _forget_parent() -> None:
    """Cut a forked child off from the loops that it inherited (F094).

    It shares their sockets with its parent, and the kernel's list of those that are watched. Were it to tidy up at its
    own end, asyncpg would say farewell to the server in the parent's name, and the parent's loop would go deaf.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for selector in list(_selectors):
        for key in list(selector.get_map().values()):
            os.dup2(nowhere, key.fd)
        selector.close()
    os.close(nowhere)
    _selectors.clear()


os.register_at_fork(after_in_child=_forget_parent)


class PrivateLoop:
    """One daemon thread that runs one event loop until it is closed."""

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        _selectors.add(self._selector)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            _selectors.discard(self._selector)
            self._loop.close()


class _Process:
    """What one process opened; a forked child opens its own (F094)."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.opened: tuple[PrivateLoop, AsyncSessions] | None = None


class SessionsOnPrivateLoop:
    """Blocking sessions over asyncio ones, with a loop that is started when first needed and anew in each process."""

    def __init__(self, open_sessions: Callable[[], AsyncSessions]) -> None:
        self._open_sessions = open_sessions
        self._processes: dict[int, _Process] = {}

    def run(self, flow: Flow[T]) -> T:
        """Perform a store flow and wait for it."""
        process = self._process()
        with process.lock:
            if process.opened is None:
                process.opened = (PrivateLoop("nebis-asyncpg"), self._open_sessions())
            loop, sessions = process.opened
        return loop.call(sessions.run(flow))

    def close(self) -> None:
        """Close every connection, and the loop."""
        process = self._process()
        with process.lock:
            opened, process.opened = process.opened, None
        if opened is not None:
            loop, sessions = opened
            loop.call(sessions.close())
            loop.close()

    def _process(self) -> _Process:
        return self._processes.setdefault(os.getpid(), _Process())
