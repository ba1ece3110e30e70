"""The asyncio world: performs asks on an event loop, each attempt in a task that the world owns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from nebis.core.answers import Answer, Locked, Refusal
from nebis.core.verbs import Verb
from nebis.errors import StoreUnavailable
from nebis.flow import Flow, drive_async
from nebis.flows.drain import let_go
from nebis.ports.asks import Apply
from nebis.ports.observer import Observer
from nebis.ports.store import AsyncBackend, StoreFailure
from nebis.runtime.async_batcher import AsyncBatcher, Waiter
from nebis.runtime.async_turn import AsyncHandler
from nebis.runtime.counting import Counting
from nebis.runtime.driven_turn import DrivenTurn
from nebis.runtime.gathering import MOST_LANES, Gathering
from nebis.runtime.heartbeat import Heartbeat, Watch
from nebis.runtime.housekeeping import Housekeeping
from nebis.runtime.retelling import Retelling
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
        self.loop = asyncio.get_running_loop()
        counting = Counting()
        self.counting = counting if keeps_house else None
        self.observers: tuple[Observer, ...] = tuple(observers)
        self.has_leading_ids = backend.store.capabilities.has_leading_ids
        self.signals = Signals()
        self.batcher = AsyncBatcher(self._send, Gathering(lanes=min(MOST_LANES, backend.lanes)))
        self.apply: Callable[[Verb], asyncio.Future[Answer | Locked]] = self.batcher.apply
        """Applies one verb together with others, and wakes whoever waits for its record."""
        self.carry: Callable[[Verb], Awaitable[Answer | Locked]] = self.batcher.carry
        """Does the same for a task of ours, for less where there are no others."""
        self.send: Callable[[Verb, Waiter], None] = self.batcher.send
        """Does the same for whoever takes the answer without a future."""
        self.retelling = Retelling(self)
        """Tells what was told before, without a claim."""
        self.heartbeat = Heartbeat(backend.store, backend.beat, self.signals.applied)
        self._housekeeping = Housekeeping(backend.store, backend.beat, counting, recover) if keeps_house else None
        self._listener = backend.listen(self.signals.wake) if backend.listen is not None else None
        self.under_way: set[DrivenTurn[Any]] = set()
        """What goes on whatever becomes of its caller."""
        self._all_left: asyncio.Event | None = None
        """Set once nothing is under way, where somebody waits for that."""
        self.is_closing = False

    def run(self, flow: Flow[T], handler: AsyncHandler, *, single: Single | None = None) -> asyncio.Future[T]:
        """Run an engine flow; cancelling the future only detaches its caller (F075).

        A cancelled effect may have happened, so nobody may cancel it just because a client hung up.
        """
        self.require_open()
        turn: DrivenTurn[T] = DrivenTurn(self, handler, single)
        return turn.start(flow)

    def waiters(self) -> list[asyncio.Future[Any]]:
        """Return what the callers of all that is under way wait for."""
        return [turn.waiter for turn in self.under_way if turn.waiter is not None and not turn.waiter.done()]

    def left(self, turn: DrivenTurn[Any]) -> None:
        """Take note that a turn is over."""
        self.under_way.discard(turn)
        if self._all_left is not None and not self.under_way:
            self._all_left.set()

    def require_open(self) -> None:
        """Refuse to start anything while the process is ending, so that nothing is claimed that nobody finishes."""
        if self.is_closing:
            raise StoreUnavailable("this process is shutting down")

    async def _send(self, verbs: Sequence[Verb]) -> Sequence[Answer | Locked]:
        answers = await self.backend.sessions.run_unshielded(self.backend.store.apply(verbs))
        if self.signals.is_anybody_waiting:
            for verb in verbs:
                self.signals.applied(verb)
        return answers

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Start nothing new, wait for what runs, let go of what does not end in time, and close every connection."""
        self.is_closing = True
        await self._wait_for_all(grace_seconds)
        for watch in self.heartbeat.let_go():
            await self._let_go(watch)
        await self._end_all()
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)
        if self._housekeeping is not None:
            await asyncio.to_thread(self._housekeeping.close)
        await asyncio.to_thread(self.heartbeat.close)
        await self.batcher.close()
        await self.retelling.close()
        await self.backend.sessions.close()

    async def _wait_for_all(self, grace_seconds: float) -> None:
        """Wait for what runs, and for what that begins: a claim that is granted now is still attempted."""
        self._drop_unbegun()
        if self.under_way:
            self._all_left = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_left.wait(), grace_seconds)

    def _drop_unbegun(self) -> None:
        """Drop those whose task was cancelled before its first step: it ran nothing of what ends it."""
        for turn in list(self.under_way):
            if turn.task is not None and turn.task.done():
                turn.abandon()

    async def _end_all(self) -> None:
        """End what is still there as a crash would end it; handlers whose claim was let go are cancelled by now."""
        tasks = [turn.task for turn in self.under_way if turn.task is not None]
        for turn in [turn for turn in self.under_way if turn.task is None]:
            turn.abandon()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WORDS_SECONDS)
        self._drop_unbegun()

    async def _let_go(self, watch: Watch) -> None:
        """Give an attempt back that still runs; its next write is refused once a successor came (F078)."""
        try:
            await drive_async(let_go(watch.ownership), lambda ask: self.apply(watch.sends(cast("Apply", ask).verb)))
        except StoreFailure as failure:
            log.warning("an attempt was not given back (%s); its lease decides", failure.detail)
        watch.lose(Refusal.MOVED_ON)
