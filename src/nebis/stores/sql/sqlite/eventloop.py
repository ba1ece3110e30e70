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
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from nebis.flow import Ask, Flow
from nebis.ports.store import DefiniteFailure
from nebis.stores.sql.asks import Write, Written
from nebis.stores.sql.sqlite.plural import BoundWrite, bound_write

if TYPE_CHECKING:
    from nebis.stores.sql.sqlite.sessions import SqliteSessions

T = TypeVar("T")
Told: TypeAlias = Callable[[BaseException | None, Any], None]
"""Hears how something ended: by an error, or with a result."""

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
    A batch that is a single write goes to the thread as a whole: SQLite lets go of the interpreter once, until all is
    on the disk, and whatever comes before and after that is done on the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sessions: SqliteSessions) -> None:
        self._loop = loop
        self._sessions = sessions
        # A thread of its own: one that waited for the connection on behalf of another loop could not bring it back.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nebis-sqlite")
        self._started_by = os.getpid()
        self._begins = Lock()
        """Released by the thread when it begins what it was handed."""
        self._on_thread = 0
        self._brief_on_thread = 0
        """How many of those are commits and single writes, which are over soon."""
        self._waiting: deque[tuple[Flow[Any], Ask[Any], asyncio.Future[Any]]] = deque()
        """Flows that wait for the connection, each with what it asks for."""
        self._batches_apart = 0
        self._has_ended = False

    def belong_to(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Tell whether they are this loop's, in the process that started the thread."""
        # Threads do not survive a fork, but the object that stands for them does.
        return self._loop is loop and self._started_by == os.getpid()

    def run(self, flow: Flow[T]) -> asyncio.Future[T]:
        """Perform a flow of which only reads come before its transaction; not at all if it is cancelled before."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._advance(flow, future, flow.send, None)
        self._go_on()
        return future

    def call(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Do some work on the thread, after everything that is there already."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit(partial(_tell, future), work, *args)
        return future

    def end(self, last: Callable[[], None]) -> asyncio.Future[None]:
        """Do a last piece of work on the thread, after all that was asked for, and end it."""
        while self._waiting:
            self._run_on_thread(*self._waiting.popleft())
        self._has_ended = True
        ended = self.call(last)
        self._thread.shutdown(wait=False)
        return ended

    def _advance(
        self, flow: Flow[Any], future: asyncio.Future[Any], go_on: Callable[[Any], Ask[Any]], given: object
    ) -> None:
        """Let a flow without a connection go on, until it asks for something."""
        try:
            ask = go_on(given)
        except StopIteration as end:
            _tell(future, None, end.value)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer of whoever waits.
            _tell(future, error, None)
        else:
            if self._has_ended:
                flow.close()
                _tell(future, DefiniteFailure("the store was closed before this was written"), None)
            else:
                self._waiting.append((flow, ask, future))

    def _go_on(self) -> None:
        """Perform what waits, one after the other.

        A single write goes to the thread at once, behind what it does already. Anything else waits for a thread that
        is soon idle, and with it all that comes after: then it is the loop's turn.
        """
        while self._waiting:
            flow, ask, future = self._waiting[0]
            if self._on_thread and self._on_thread == self._brief_on_thread and not isinstance(ask, Write):
                return
            self._waiting.popleft()
            if future.cancelled():
                flow.close()
            elif isinstance(ask, Write):
                self._write(flow, future, ask)
            elif self._on_thread or self._batches_apart:
                self._batches_apart = max(0, self._batches_apart - 1)
                self._run_on_thread(flow, ask, future)
            else:
                self._start(flow, ask, future)

    def _start(self, flow: Flow[Any], ask: Ask[Any], future: asyncio.Future[Any]) -> None:
        started = self._loop.time()
        try:
            left = self._sessions.start(flow, ask)
        except StopIteration as end:
            future.set_result(end.value)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer of whoever waits.
            future.set_exception(error)
        else:
            if left is None:
                self._run_on_thread(flow, ask, future)
            else:
                told = partial(_tell, future)
                self._submit_brief(told, self._sessions.finish, flow, left, partial(self._call_loop, told, None))
        if self._loop.time() - started > SLOW_SECONDS:
            self._batches_apart = BATCHES_APART

    def _write(self, flow: Flow[Any], future: asyncio.Future[Any], write: Write) -> None:
        """Have a flow's write done by the thread, and go on with the answer."""
        try:
            bound = bound_write(write)
        except BaseException as error:  # noqa: BLE001 - as if the connection had found out.
            self._advance(flow, future, flow.throw, error)
        else:
            self._submit_brief(partial(self._written, flow, future), self._unless_cancelled, future, bound)

    def _unless_cancelled(self, future: asyncio.Future[Any], write: BoundWrite) -> tuple[Written, bool]:
        if future.cancelled():
            raise asyncio.CancelledError
        return self._sessions.write(write)

    def _written(
        self, flow: Flow[Any], future: asyncio.Future[Any], error: BaseException | None, result: tuple[Written, bool]
    ) -> None:
        if error is not None:
            self._advance(flow, future, flow.throw, error)
            return
        written, is_checkpoint_due = result
        self._advance(flow, future, flow.send, written)
        if is_checkpoint_due and not self._has_ended:
            self._submit(_ignore, self._sessions.checkpoint)

    def _run_on_thread(self, flow: Flow[Any], ask: Ask[Any], future: asyncio.Future[Any]) -> None:
        told = partial(_tell, future)
        self._submit(told, self._sessions.run_from, flow, ask, partial(self._call_loop, told, None))

    def _submit(self, told: Told, work: Callable[..., Any], *args: object) -> None:
        """Have some work done by the thread, after all that it has to do already; `told` is called on the loop."""
        self._on_thread += 1
        self._thread.submit(self._do, 0, told, work, *args)

    def _submit_brief(self, told: Told, work: Callable[..., Any], *args: object) -> None:
        """Do the same with what is over soon. A thread that is idle begins it before the loop goes on.

        A busy loop lets go of the interpreter only when it has nothing left to do. The disk would be idle until then,
        and the loop would be while the disk is not.
        """
        is_idle = not self._on_thread
        self._on_thread += 1
        self._brief_on_thread += 1
        if is_idle:
            self._begins.acquire(blocking=False)
            self._thread.submit(self._begin, told, work, *args)
            self._begins.acquire(timeout=HAND_OVER_SECONDS)
        else:
            self._thread.submit(self._do, 1, told, work, *args)

    def _begin(self, told: Told, work: Callable[..., Any], *args: object) -> None:
        self._begins.release()
        self._do(1, told, work, *args)

    def _do(self, brief: int, told: Told, work: Callable[..., Any], *args: object) -> None:
        """Do some work, on the thread, and tell the loop. A future of the thread's own would be told to nobody."""
        try:
            result, error = work(*args), None
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it is the answer of whoever waits.
            result, error = None, raised
        self._call_loop(self._came_back, brief, told, error, result)

    def _call_loop(self, act: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # It is closed, so nobody waits any more.
            self._loop.call_soon_threadsafe(act, *args)

    def _came_back(self, brief: int, told: Told, error: BaseException | None, result: object) -> None:
        self._on_thread -= 1
        self._brief_on_thread -= brief
        told(error, result)
        self._go_on()


def _tell(future: asyncio.Future[Any], error: BaseException | None, result: object) -> None:
    if future.done():
        return  # It was cancelled, or told before.
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _ignore(_error: BaseException | None, _result: object) -> None:
    """Tell nobody: what was not copied now stays in the log, and the next one tries again."""
