"""Batches on an event loop: it runs their statements itself, and a thread does what waits for the disk."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nebis.flow import Ask, Flow

if TYPE_CHECKING:
    from nebis.stores.sql.sqlite.sessions import SqliteSessions

T = TypeVar("T")

SLOW_SECONDS: Final = 0.05
"""A loop that was held up for so long has met a slow disk; from memory the largest batch takes a few milliseconds."""

BATCHES_APART: Final = 20
"""How many batches go to the thread as a whole after a slow one."""


HAND_OVER_SECONDS: Final = 0.001
"""How long the loop stands still for the thread to begin a commit; mostly that takes a tenth of it."""


class LoopTurns:
    """What one event loop asks of one connection, in its order.

    On a thread every statement gives up the interpreter's lock several times, and a busy loop is slow to hand it back:
    a batch spent more time on getting the lock than on its way to the disk. So the statements of a batch run on the
    loop, and the thread does what may have to wait: the commit, and a begin while others keep the file locked.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sessions: SqliteSessions) -> None:
        self._loop = loop
        self._sessions = sessions
        # A thread of its own: one that waited for the connection on behalf of another loop could not bring it back.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nebis-sqlite")
        self._started_by = os.getpid()
        self._begins = Lock()
        """Released by the thread when it begins a commit."""
        self._on_thread = 0
        self._is_committing = False
        self._waiting: deque[tuple[Flow[Any], asyncio.Future[Any]]] = deque()
        self._batches_apart = 0

    def belong_to(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Tell whether they are this loop's, in the process that started the thread."""
        # Threads do not survive a fork, but the object that stands for them does.
        return self._loop is loop and self._started_by == os.getpid()

    def run(self, flow: Flow[T]) -> asyncio.Future[T]:
        """Perform a flow of which only reads come before its transaction; not at all if it is cancelled before."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((flow, future))
        self._go_on()
        return future

    def call(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Do some work on the thread, after everything that is there already."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit(future, work, *args)
        return future

    def end(self, last: Callable[[], None]) -> asyncio.Future[None]:
        """Do a last piece of work on the thread, after all that was asked for, and end it."""
        while self._waiting:
            flow, future = self._waiting.popleft()
            self._submit(future, self._sessions.run, flow)
        ended = self.call(last)
        self._thread.shutdown(wait=False)
        return ended

    def _go_on(self) -> None:
        """Perform what waits, unless it is worth waiting for: a commit is over soon, and then it is the loop's turn."""
        while self._waiting and not (self._is_committing and self._on_thread == 1):
            flow, future = self._waiting.popleft()
            if future.cancelled():
                flow.close()
            elif self._on_thread or self._batches_apart:
                self._batches_apart = max(0, self._batches_apart - 1)
                self._submit(future, self._sessions.run, flow)
            else:
                self._start(flow, future)

    def _start(self, flow: Flow[Any], future: asyncio.Future[Any]) -> None:
        started = self._loop.time()
        try:
            ask = self._sessions.start(flow)
        except StopIteration as end:
            future.set_result(end.value)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer of whoever waits.
            future.set_exception(error)
        else:
            if ask is None:
                self._submit(future, self._sessions.run, flow)
            else:
                self._is_committing = True
                self._hand_over(flow, future, ask)
        if self._loop.time() - started > SLOW_SECONDS:
            self._batches_apart = BATCHES_APART

    def _hand_over(self, flow: Flow[Any], future: asyncio.Future[Any], ask: Ask[Any]) -> None:
        """Let the thread finish a batch, and let it begin before the loop goes on.

        A busy loop lets go of the interpreter only when it has nothing left to do. The disk would be idle until then,
        and the loop would be while the disk is not.
        """
        self._begins.acquire(blocking=False)
        self._submit(future, self._finish, flow, ask, future)
        self._begins.acquire(timeout=HAND_OVER_SECONDS)

    def _finish(self, flow: Flow[T], ask: Ask[Any], future: asyncio.Future[T]) -> T:
        self._begins.release()
        return self._sessions.finish(flow, ask, partial(self._call_loop, _tell, future, None))

    def _submit(self, future: asyncio.Future[Any], work: Callable[..., Any], *args: object) -> None:
        self._on_thread += 1
        self._thread.submit(self._do, future, work, *args)

    def _do(self, future: asyncio.Future[Any], work: Callable[..., Any], *args: object) -> None:
        """Do some work, on the thread, and tell the loop. A future of the thread's own would be told to nobody."""
        try:
            result, error = work(*args), None
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it is the answer of whoever waits.
            result, error = None, raised
        self._call_loop(self._came_back, future, error, result)

    def _call_loop(self, act: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # It is closed, so nobody waits any more.
            self._loop.call_soon_threadsafe(act, *args)

    def _came_back(self, future: asyncio.Future[Any], error: BaseException | None, result: object) -> None:
        self._on_thread -= 1
        # Only an idle thread is given a commit, so that is what comes back first.
        self._is_committing = False
        _tell(future, error, result)
        self._go_on()


def _tell(future: asyncio.Future[Any], error: BaseException | None, result: object) -> None:
    if future.done():
        return  # It was cancelled, or told before.
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
