"""The asyncio world: performs asks on an event loop, each attempt in a task that the world owns."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, cast

from nebis.core.answers import Answer, Locked, Refusal
from nebis.core.record import Record
from nebis.core.verbs import Claim, Verb
from nebis.errors import StoreUnavailable
from nebis.flow import Ask, Flow, drive_async
from nebis.flows.drain import let_go
from nebis.ports.asks import Apply, MakeClaim, Tell, TellClaimed, TellCompleted
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

_AT_ONCE: Final = frozenset({MakeClaim, Tell, TellClaimed, TellCompleted})
"""Asks that take no time and hold nothing."""

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
        self.counting = counting if keeps_house else None
        self.observers: tuple[Observer, ...] = tuple(observers)
        self.signals = Signals()
        self._batcher = AsyncBatcher(self._send)
        self.apply: Callable[[Verb], asyncio.Future[Answer | Locked]] = self._batcher.apply
        """Applies one verb together with others, and wakes whoever waits for its record."""
        self.carry: Callable[[Verb], Awaitable[Answer | Locked]] = self._batcher.carry
        """Does the same for a task of ours, for less where there are no others."""
        self.heartbeat = Heartbeat(backend.store, backend.beat, self.signals.applied)
        self._housekeeping = Housekeeping(backend.store, backend.beat, counting, recover) if keeps_house else None
        self._listener = backend.listen(self.signals.wake) if backend.listen is not None else None
        self._claiming: set[asyncio.Future[Answer | Locked]] = set()
        """What callers wait for themselves."""
        self._tasks: dict[asyncio.Task[None], asyncio.Future[Any]] = {}
        """What goes on whatever becomes of its caller, who waits for the other."""
        self.is_closing = False
        self._is_over = False

    async def run(self, flow: Flow[T], handler: AsyncHandler, *, single: Single | None = None) -> T:
        """Run an engine flow: cancelling the caller only detaches it (F075).

        A cancelled effect may have happened, so nobody may cancel it just because a client hung up. What takes no time
        is done here, and the answer to a claim is waited for here: where its caller is cancelled meanwhile, a task of
        ours sends the very same claim again, which the store recognises. With anything else the flow goes on in such a
        task. So a replay needs none, but where nobody else is there: then that task also carries the claim to the store
        and back, instead of another one.
        """
        if self.is_closing:
            self.require_open()
        turn = AsyncTurn(self, handler, single)
        claiming, performs = self._claiming, turn.performs
        try:
            ask = next(flow)
            while True:
                try:
                    if type(ask) in _AT_ONCE:
                        answer = performs[type(ask)](turn, ask)
                    elif type(ask) is Apply and type(ask.verb) is Claim and not self._batcher.is_quiet:
                        waiter: Any = performs[Apply](turn, ask)
                        claiming.add(waiter)
                        try:
                            answer = await waiter
                        finally:
                            claiming.discard(waiter)
                    else:
                        break
                except asyncio.CancelledError:
                    if not self._is_over:
                        self._go_on(flow, ask, turn).cancel()  # Nobody waits for its end.
                    raise
                except BaseException as error:  # noqa: BLE001 - the flow decides; what it does not catch goes on to the caller.
                    ask = flow.throw(error)
                else:
                    ask = flow.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        if self._is_over:
            raise asyncio.CancelledError  # As those were that ran when the process ended.
        ended: asyncio.Future[T] = self._go_on(flow, ask, turn)
        return await ended

    def _go_on(self, flow: Flow[T], ask: Ask[Any], turn: AsyncTurn) -> asyncio.Future[T]:
        """Run the rest of a flow, from this ask on, in a task of our own; return what tells how it ended."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()
        turn.task = task = loop.create_task(self._rest(flow, ask, turn, ended))
        self._tasks[task] = ended
        return ended

    async def _rest(  # noqa: C901 - in one piece, as every coroutine inside another is paid at each of its steps.
        self, flow: Flow[T], ask: Ask[Any], turn: AsyncTurn, ended: asyncio.Future[T]
    ) -> None:
        performs, task = turn.performs, turn.task
        assert task is not None  # It is this one.
        try:
            try:
                while True:
                    try:
                        answer = performs[type(ask)](turn, ask)
                        if hasattr(answer, "__await__"):
                            answer = await answer
                    except BaseException as error:  # noqa: BLE001 - the flow decides, as with every driver.
                        ask = flow.throw(error)
                    else:
                        ask = flow.send(answer)
            except StopIteration as stop:
                result: T = stop.value
            finally:
                turn.forget()
                if turn.transaction is not None:
                    await turn.close()
        except asyncio.CancelledError:
            ended.cancel()
            raise
        except BaseException as error:
            if not ended.done():  # A caller that was cancelled waits no longer, and will not ask for it.
                ended.set_exception(error)
            if not isinstance(error, Exception):
                task.add_done_callback(asyncio.Task.exception)  # Else the loop would complain that nobody asked.
                raise
        else:
            if not ended.done():
                ended.set_result(result)
        finally:
            del self._tasks[task]

    def turn(self) -> AsyncTurn:
        """Return a turn for work that is not called by us; whoever takes it closes it."""
        self.require_open()
        return AsyncTurn(self, _nobody)

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
        await self._batcher.close()
        await self.backend.sessions.close()

    async def _wait_for_all(self, grace_seconds: float) -> None:
        """Wait for what runs, and for what that begins: a claim that is granted now is still attempted."""
        ends_at = time.monotonic() + grace_seconds
        while under_way := self._under_way():
            _, left = await asyncio.wait(under_way, timeout=max(0.0, ends_at - time.monotonic()))
            if left:
                return

    def _under_way(self) -> list[asyncio.Future[Any]]:
        for task in [task for task in self._tasks if task.done()]:
            # Cancelled before its first step: it ran nothing of what ends it.
            self._tasks.pop(task).cancel()
        return [*self._claiming, *self._tasks]

    async def _end_all(self) -> None:
        """End what is still there as a crash would end it; handlers whose claim was let go are cancelled by now."""
        self._is_over = True
        for each in self._under_way():
            each.cancel()
        if under_way := self._under_way():
            await asyncio.wait(under_way, timeout=LAST_WORDS_SECONDS)
            self._under_way()

    async def _let_go(self, watch: Watch) -> None:
        """Give an attempt back that still runs; its next write is refused once a successor came (F078)."""
        try:
            await drive_async(let_go(watch.ownership), lambda ask: self.apply(watch.sends(cast("Apply", ask).verb)))
        except StoreFailure as failure:
            log.warning("an attempt was not given back (%s); its lease decides", failure.detail)
        watch.lose(Refusal.MOVED_ON)


def _nobody(_record: Record, _turn: AsyncTurn) -> Awaitable[object]:
    raise AssertionError("this turn has no handler of its own")
