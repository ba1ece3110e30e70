"""Attempts on an event loop, in the hands of a handler or of an integration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from nebis.answering import original
from nebis.core.record import Record, RecordId
from nebis.declaration import AttemptView, checked_resource
from nebis.effects import Recall
from nebis.errors import MisuseError
from nebis.flow import drive_async
from nebis.flows.attach import attach_resource, extend_retention
from nebis.flows.effect import run_effect
from nebis.flows.execute import begin, concluded
from nebis.flows.request import Ending, Request
from nebis.flows.step import run_step
from nebis.planning import plan_effect, plan_step
from nebis.policy import microseconds
from nebis.ports.asks import Raised, Returned
from nebis.runtime.async_turn import AsyncTurn
from nebis.runtime.driven_turn import OpeningTurn
from nebis.runtime.eventloop import AsyncWorld
from nebis.transaction import AsyncTransaction


class AsyncAttempt(AttemptView):
    """One try at running an operation, in the hands of its handler."""

    __slots__ = ("_turn",)

    def __init__(self, record: Record, turn: AsyncTurn, request: Request) -> None:
        super().__init__(record, request)
        self._turn = turn

    @property
    def lost(self) -> bool:
        """Tell whether another attempt took over; the handler is then cancelled at its next await."""
        return self._turn.is_lost

    async def resource(self, type: str, id: str) -> None:  # noqa: A002 - the words of `nebis list --resource`.
        """Name what this operation works on; shown while it runs, in `show` and `list`, and in the tombstone."""
        await drive_async(
            attach_resource(self.record, self._request.policy, checked_resource(type, id)), self._turn.perform
        )

    async def effect(
        self,
        name: str,
        call: Callable[..., Any],
        /,
        *arguments: Any,
        recall: Recall,
        returns: object | None = None,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - of the downstream; cancelling the caller is not it.
        **named: Any,
    ) -> Any:
        """Call a downstream once for this record, whatever happens to the attempts; return its result.

        The intent and a derived key are stored before the call, the result after it; a later attempt gets that result
        without calling. The call gets `idempotency_key=` (and `fence=`, `timeout_seconds=`, `deadline=`) where it takes
        them. Its result goes through the type that it is annotated with, or `returns`. `Rejected` raised by the call is
        stored and raised again; `Retryable` says that it never reached the downstream. Anything else, and an answer
        that is not there in time, leaves the effect open: the next attempt asks again where its class allows.
        """
        if self._turn.transaction is not None:
            raise MisuseError(
                "An effect inside an open transaction could happen and be rolled back here; call it before."
            )
        planned = plan_effect(
            self._request, self.record, name, call, (arguments, named), recall=recall, returns=returns, timeout=timeout
        )
        flow = run_effect(self.record, self._request.policy, self._turn.ledger, planned.plan)
        return planned.decode(await self._turn.detached(flow))

    async def step(
        self,
        name: str,
        call: Callable[..., Any],
        /,
        *arguments: Any,
        connection: object | None = None,
        returns: object | None = None,
        **named: Any,
    ) -> Any:
        """Run a local step once for this record: its rows and its checkpoint commit together; return its result.

        `call` gets the transaction's connection and then the arguments; without `connection=` it is one to the
        store's own database. With it, reserve, call and settle can be written around external effects.
        """
        planned = plan_step(self._request, self.record, name, call, (arguments, named), returns=returns)
        self._turn.target = connection
        flow = run_step(self.record, self._request.policy, self._turn.ledger, planned.plan)
        return planned.decode(await self._turn.detached(flow))

    async def original(self, operation_id: str | UUID) -> Any:
        """Return what the operation of that id was answered, where this request repeats it under a fresh key.

        For a handler that finds a unique row of its own made already. None: nothing is kept, answer from the row.
        Raises `NaturalKeyReused` if that one was asked for something else, `OriginalUnsettled` if it still runs.
        """
        found = await self._turn.find_by_id(RecordId(UUID(str(operation_id))))
        return original(self._request, self.record, found)

    async def extend_retention(self, span: timedelta) -> None:
        """Keep the answer for at least that long from now: upward only, a shorter span changes nothing."""
        await drive_async(extend_retention(self.record, self._request.policy, microseconds(span)), self._turn.perform)

    def transaction(self, target: object | None = None) -> AsyncTransaction:
        """Open a transaction whose rows and outcome are committed together; call `tx.finish(result)` inside it.

        Without a target it runs on a connection to the store's own database, `tx.connection`. With one it joins a
        connection or session that the application already has there.
        """
        return AsyncTransaction(self._turn, target, self.record, self._request)


class AsyncOpenAttempt:
    """An attempt that an integration runs by itself: it owns the record until it is settled or abandoned."""

    __slots__ = ("_turn", "attempt")

    def __init__(self, record: Record, turn: Beginning, request: Request) -> None:
        turn.record = record
        self.attempt = AsyncAttempt(record, turn, request)
        self._turn = turn

    def settle(self, end: Returned[Any] | Raised) -> Awaitable[Ending]:
        """Store how it ended, and say what its caller may be told now that the store confirmed it.

        Whoever cancels what is returned stops waiting; the store is told all the same.
        """
        turn = self._turn
        return self._rested(end) if turn.has_to_rest else turn.conclude(end)

    async def _rested(self, end: Returned[Any] | Raised) -> Ending:
        try:
            await self._turn.rest()
        except BaseException:
            await self._turn.close()
            raise
        return await self._turn.conclude(end)

    async def abandon(self) -> None:
        """Let go without a word, as a crash would: the lease decides."""
        await self._turn.close()


class Beginning(OpeningTurn):
    """A claim on its way, for an integration that runs the work itself."""

    is_driven = False

    def __init__(self, world: AsyncWorld, request: Request) -> None:
        world.require_open()
        OpeningTurn.__init__(self, world)
        self._request = request

    def begin(self) -> asyncio.Future[Record | Ending]:
        """Return what its caller waits for.

        Cancelled with it, the claim goes on, and has to be abandoned.
        """
        return self.start(begin(self._request))

    def conclude(self, end: Returned[Any] | Raised) -> Awaitable[Ending]:
        """Store how the work ended, driven from answer to answer as the claim was; return what tells its ending."""
        assert self.record is not None  # It was opened.
        try:
            flow = concluded(self._request, self.record, self.ended(end))
        except BaseException:
            self.forget()
            raise
        return cast("Awaitable[Ending]", self.start(flow, self._context))

    def opened(self, begun: Record | Ending) -> AsyncOpenAttempt | Ending:
        """Return what the claim came to."""
        return AsyncOpenAttempt(begun, self, self._request) if isinstance(begun, Record) else begun


class Leading(Beginning):
    """A claim that leads on to the work by itself: where it is granted, nobody has to be woken before that begins."""

    def lead(self) -> asyncio.Future[Ending | None]:
        """Return what its caller waits for: how the request ends without work, or None from whoever did the work."""
        return cast("asyncio.Future[Ending | None]", self.begin())

    def granted(self, opened: AsyncOpenAttempt, ended: asyncio.Future[Any]) -> None:
        """Begin the work, whose end `ended` is told; it is cancelled where the caller is gone. Must not raise."""
        raise NotImplementedError

    def _tell_result(self, result: Record | Ending) -> None:
        if isinstance(result, Record):
            self.granted(AsyncOpenAttempt(result, self, self._request), self._end())
        else:
            super()._tell_result(result)
