"""The asyncio world: performs asks on an event loop, each request in a task that the world owns."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from nebis.core.answers import Answer, Locked, Refusal
from nebis.core.record import Record
from nebis.core.verbs import Verb
from nebis.errors import StoreUnavailable
from nebis.flow import Flow, drive_async
from nebis.flows.drain import let_go
from nebis.ports.asks import (
    Apply,
)
from nebis.ports.observer import Observer
from nebis.ports.store import AsyncBackend, StoreFailure
from nebis.runtime.async_batcher import AsyncBatcher
from nebis.runtime.async_turn import AsyncHandler, AsyncTurn
from nebis.runtime.counting import Counting
from nebis.runtime.heartbeat import Heartbeat, Watch
from nebis.runtime.housekeeping import Housekeeping
from nebis.runtime.signals import Signals
from nebis.runtime.single import Single

log = logging.getLogger("nebis")

LAST_WORDS_SECONDS = 1.0
"""How long cancelled attempts have to end before the connections are closed under them."""

T = TypeVar("T")


class AsyncWorld:
    """What one event loop shares between all its requests."""

    def __init__(
        self,
        backend: AsyncBackend,
        observers: Sequence[Observer] = (),
        *,
        keeps_house: bool = False,
        recover: Callable[[], object] | None = None,
    ) -> None:
        self.backend = backend
        counting = Counting()
        self.observers: tuple[Observer, ...] = (counting, *observers) if keeps_house else tuple(observers)
        self.signals = Signals()
        self._batcher = AsyncBatcher(self._send)
        self.heartbeat = Heartbeat(backend.store, backend.beat, self.signals.applied)
        self._housekeeping = Housekeeping(backend.store, backend.beat, counting, recover) if keeps_house else None
        self._listener = backend.listen(self.signals.wake) if backend.listen is not None else None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_closing = False

    async def run(self, flow: Flow[T], handler: AsyncHandler, *, single: Single | None = None) -> T:
        """Run an engine flow in a task of our own: cancelling the caller only detaches it (F075).

        A cancelled effect may have happened, so nobody may cancel it just because a client hung up.
        """
        self.require_open()
        loop = asyncio.get_running_loop()
        turn = AsyncTurn(self, handler, single)
        ended: asyncio.Future[T] = loop.create_future()
        turn.task = task = loop.create_task(self._turn(flow, turn, ended))
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._done, ended))
        return await ended

    async def _turn(self, flow: Flow[T], turn: AsyncTurn, ended: asyncio.Future[T]) -> None:
        try:
            result = await drive_async(flow, turn.perform)
        finally:
            if turn.is_holding:
                await turn.close()
        if not ended.done():
            ended.set_result(result)

    def _done(self, ended: asyncio.Future[Any], task: asyncio.Task[None]) -> None:
        """Pass on how a turn ended that has no result; a caller that was cancelled waits no longer."""
        self._tasks.discard(task)
        # Retrieved in any case: a detached caller will not ask for it, and the loop would complain.
        error = None if task.cancelled() else task.exception()
        if ended.done():
            return
        if error is None:
            ended.cancel()
        else:
            ended.set_exception(error)

    def turn(self) -> AsyncTurn:
        """Return a turn for work that is not called by us; whoever takes it closes it."""
        self.require_open()
        return AsyncTurn(self, _nobody)

    def require_open(self) -> None:
        """Refuse to start anything while the process is ending, so that nothing is claimed that nobody finishes."""
        if self.is_closing:
            raise StoreUnavailable("this process is shutting down")

    def apply(self, verb: Verb) -> Awaitable[Answer | Locked]:
        """Apply one verb together with others, and wake whoever waits for its record."""
        return self._batcher.apply(verb)

    async def _send(self, verbs: Sequence[Verb]) -> Sequence[Answer | Locked]:
        answers = await self.backend.sessions.run_unshielded(self.backend.store.apply(verbs))
        for verb in verbs:
            self.signals.applied(verb)
        return answers

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Start nothing new, wait for what runs, let go of what does not end in time, and close every connection."""
        self.is_closing = True
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=grace_seconds)
        for watch in self.heartbeat.let_go():
            await self._let_go(watch)
        # Handlers whose claim was let go are cancelled by now; what is still there ends as a crash would end it.
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=LAST_WORDS_SECONDS)
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)
        if self._housekeeping is not None:
            await asyncio.to_thread(self._housekeeping.close)
        await asyncio.to_thread(self.heartbeat.close)
        await self._batcher.close()
        await self.backend.sessions.close()

    async def _let_go(self, watch: Watch) -> None:
        """Give an attempt back that still runs; its next write is refused once a successor came (F078)."""
        try:
            await drive_async(let_go(watch.ownership), lambda ask: self.apply(watch.sends(cast("Apply", ask).verb)))
        except StoreFailure as failure:
            log.warning("an attempt was not given back (%s); its lease decides", failure.detail)
        watch.lose(Refusal.MOVED_ON)


def _nobody(_record: Record, _turn: AsyncTurn) -> Awaitable[object]:
    raise AssertionError("this turn has no handler of its own")
