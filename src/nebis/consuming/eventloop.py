"""The asyncio consumer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol
from uuid import UUID

from nebis.consuming.intake import REDRIVE_PAUSE_US, Intake, Unfit
from nebis.core.record import Record
from nebis.core.secret import Secrets
from nebis.delivery import Delivery, Done, Incoming, Later, Verdict
from nebis.errors import NotYet
from nebis.flows.admit import Admission, AttemptsUsedUp, admit
from nebis.flows.request import Request
from nebis.recovery import nobody
from nebis.runtime.async_turn import AsyncTurn
from nebis.runtime.eventloop import AsyncWorld
from nebis.runtime.single import Single

Handling = Callable[[Record, AsyncTurn], Awaitable[Any]]


class Face(Protocol):
    """What a consumer is declared on."""

    async def opened(self) -> tuple[AsyncWorld, Secrets]:
        """Return the running world of this process."""
        ...


class Handles(Protocol):
    """The operation that a consumer is."""

    @property
    def handler(self) -> Callable[..., Any]:
        """Return the function that was declared."""
        ...

    def handling(self, request: Request, command: Any) -> Handling:
        """Return what runs it with a command."""
        ...


class AsyncConsumer:
    """A coroutine function that runs once per message, however often the broker delivers it."""

    def __init__(self, nebis: Face, intake: Intake, operation: Handles) -> None:
        self.handler = operation.handler
        self.intake = intake
        self._nebis = nebis
        self._operation = operation

    @property
    def name(self) -> str:
        """Return the name under which records of this consumer are stored."""
        return self.intake.declaration.name

    async def handle(self, delivery: Delivery) -> Verdict:
        """Take a delivery in, and say what to do with it at the broker.

        `Done` and `Parked` are acknowledged, as the message is applied or kept; `Later` is delivered again. Nothing
        that is wrong with the message, its handler or the store is raised.
        """
        try:
            world, secrets = await self._nebis.opened()
            return await self._admit(world, self.intake.admitted(secrets, delivery))
        except NotYet as error:
            return Later(after_seconds=error.retry_after_seconds, reason=error.code)

    async def redrive(self, parked_id: UUID) -> Verdict | None:
        """Send a parked message in again, for one more try; None if it is not there any more."""
        world, secrets = await self._nebis.opened()
        store, sessions = world.backend.store, world.backend.sessions
        parked = await sessions.run(store.find_parked(parked_id))
        if parked is None:
            return None
        verdict = await self._admit(world, self.intake.redriven(secrets, parked))
        if isinstance(verdict, Later) and parked.is_due:
            # Touched, so that it is left alone for a while.
            await sessions.run(store.park(replace(parked, is_due=parked.letter.payload is not None)))
        return verdict

    async def redrive_due(self, may_go_on: Callable[[], bool]) -> int:
        """Send in again what people asked for, and what was in doubt; return how many are applied."""
        world, _ = await self._nebis.opened()
        store, sessions = world.backend.store, world.backend.sessions
        before = await sessions.run(store.clock()) - REDRIVE_PAUSE_US
        due = await sessions.run(store.due_letters(self.name, before=before))
        return sum([isinstance(await self.redrive(parked_id), Done) for parked_id in due if may_go_on()])

    async def _admit(self, world: AsyncWorld, admitted: tuple[Admission, Incoming[Any]] | Unfit) -> Verdict:
        if isinstance(admitted, Unfit):
            return await world.run(admitted.parked(), nobody)
        admission, incoming = admitted
        handle = self._operation.handling(admission.request, incoming)

        def gated(record: Record, turn: AsyncTurn) -> Awaitable[Any]:
            if record.attempts > admission.attempts_limit and not admission.is_redrive:
                raise AttemptsUsedUp
            return handle(record, turn)

        return await world.run(admit(admission), gated, single=Single(None) if admission.is_single else None)
