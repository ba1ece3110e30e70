"""One pass of recovery over a store: what is due, and what became of it. Written once for both worlds.

It runs only operations that are registered here, by name, and nothing that a row says (SEC32).
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from nebis.core.answers import Doubtful, GivenUp
from nebis.core.record import Record, RecordId, State
from nebis.core.secret import Secrets
from nebis.declaration import Declaration
from nebis.errors import NebisError
from nebis.flow import Ask, Flow
from nebis.flows.reconcile import Reconciled, reconcile
from nebis.flows.recover import due_at, give_up, recover
from nebis.flows.request import Failed, Finished, Request
from nebis.policy import Policy
from nebis.ports.store import Scan
from nebis.runtime.blocking import BlockingWorld
from nebis.runtime.eventloop import AsyncWorld
from nebis.runtime.jitter import shuffled
from nebis.subject import Subject

log = logging.getLogger("nebis.recovery")

PAGE_LIMIT = 100
"""Records read at a time; each is looked at on its own, so that a bad one keeps nobody waiting (F060)."""


class Deed(StrEnum):
    """What a pass did with one record."""

    FINISHED = "finished"
    FAILED = "failed"
    """Its handler failed again; it is tried again later."""
    DOUBTED = "doubted"
    """It went in doubt."""
    GIVEN_UP = "given_up"
    """Its tries are used up; nothing happened under it, and its client may try."""
    RECONCILED = "reconciled"
    """It left doubt by evidence."""
    EXPIRED = "expired"
    """It was in doubt until its deadline and is closed as unknown."""
    STILL_IN_DOUBT = "still_in_doubt"
    MOVED_ON = "moved_on"
    """Somebody else was faster."""
    NOT_DUE = "not_due"
    """It is backing off."""
    CLIENT_ONLY = "client_only"
    """Only its client's next request can go on with it."""
    UNREGISTERED = "unregistered"
    """Its operation is not declared in this process."""
    UNREADABLE = "unreadable"
    """Its command is not what this code declares."""
    ERROR = "error"
    """Looking after it failed; others are not affected."""


IDLE_DEEDS = frozenset({Deed.STILL_IN_DOUBT, Deed.MOVED_ON, Deed.NOT_DUE, Deed.CLIENT_ONLY})


@dataclass(slots=True)
class Report:
    """What a pass did, and what it could not do."""

    deeds: Counter[Deed] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    """By operation: records that this process cannot run, because it does not know the operation or its command."""
    swept: int = 0
    """How many records were expired, purged or forgotten."""
    redriven: int = 0
    """How many parked messages were sent in again."""

    @property
    def is_idle(self) -> bool:
        """Tell whether there is nothing to say about this pass."""
        return not self.swept and not self.redriven and all(deed in IDLE_DEEDS for deed in self.deeds)

    def add(self, record: Record, deed: Deed) -> None:
        """Count what was done with a record."""
        self.deeds[deed] += 1
        if deed in (Deed.UNREGISTERED, Deed.UNREADABLE):
            self.skipped[record.operation] += 1

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        deeds = {deed.value: number for deed, number in sorted(self.deeds.items())}
        skipped = dict(sorted(self.skipped.items()))
        return {"records": deeds, "skipped": skipped, "swept": self.swept, "redriven": self.redriven}

    def __str__(self) -> str:
        told = [f"{number} {deed.value.replace('_', ' ')}" for deed, number in sorted(self.deeds.items())]
        if self.swept:
            told.append(f"{self.swept} swept")
        if self.redriven:
            told.append(f"{self.redriven} parked messages sent in again")
        unknown = ", ".join(f"{name} ({number})" for name, number in sorted(self.skipped.items()))
        return ", ".join(told or ["nothing to do"]) + (f"; not runnable here: {unknown}" if unknown else "")


class Patience:
    """Which records this worker leaves alone for a while, because looking after them just failed."""

    def __init__(self) -> None:
        self._waits: dict[RecordId, tuple[int, float]] = {}
        self._seen: set[RecordId] = set()

    def is_over(self, record: Record) -> bool:
        """Tell whether a record may be looked after again."""
        self._seen.add(record.record_id)
        _, until = self._waits.get(record.record_id, (0, 0.0))
        return time.monotonic() >= until

    def lose(self, record: Record, policy: Policy) -> None:
        """Leave a record alone, each time for longer."""
        tries, _ = self._waits.get(record.record_id, (0, 0.0))
        pause = min(policy.backoff_first * 2 ** min(tries, 40), policy.backoff_longest)
        self._waits[record.record_id] = (tries + 1, time.monotonic() + pause.total_seconds())

    def forget_the_rest(self) -> None:
        """Forget records that the last pass did not meet any more."""
        self._waits = {record_id: wait for record_id, wait in self._waits.items() if record_id in self._seen}
        self._seen = set()


class Recoverable(Protocol):
    """An operation that can be run from a stored record."""

    @property
    def declaration(self) -> Declaration[Any, Any]:
        """Return what the operation is."""
        ...

    def resumed(self, secrets: Secrets, record: Record) -> tuple[Request, Callable[..., Any]]:
        """Return what runs a stored record; raise a `NebisError` if its command cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class ReadPage(Ask[list[Record]]):
    """Read one page of records."""

    scan: Scan


@dataclass(frozen=True, slots=True)
class ReadClock(Ask[int]):
    """Read the store's clock."""


@dataclass(frozen=True, slots=True)
class Run(Ask[Any]):
    """Run an engine flow, in a turn of its own."""

    flow: Flow[Any]
    handler: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What can be recovered here, and for how long."""

    operations: Mapping[str, Recoverable]
    endpoints: Mapping[str, Subject]
    secrets: Secrets
    patience: Patience
    may_go_on: Callable[[], bool]

    def once(self, report: Report) -> Flow[None]:
        """Look after every record that is in doubt, then after every one whose lease is over."""
        # Doubts first: one that ends leaves a record that may be gone on with at once.
        yield from self._each(Scan(states=(State.IN_DOUBT,), limit=PAGE_LIMIT), self._doubtful, report)
        yield from self._each(Scan(lapsed_only=True, limit=PAGE_LIMIT), self._lapsed, report)
        self.patience.forget_the_rest()

    def _each(self, scan: Scan, look: Callable[[Record, int], Flow[Deed]], report: Report) -> Flow[None]:
        """Go through all pages; what one record raises is its own affair."""
        after: tuple[int, bytes] | None = None
        while self.may_go_on():
            now = yield from ReadClock()
            page = yield from ReadPage(_after(scan, after))
            if not page:
                return
            after = (page[-1].lease_until, page[-1].identity)
            # In another order than every other worker, which reads the same page.
            for record in shuffled(page):
                if not self.may_go_on():
                    return
                report.add(record, (yield from self._safely(record, now, look)))

    def _safely(self, record: Record, now: int, look: Callable[[Record, int], Flow[Deed]]) -> Flow[Deed]:
        policy = self._policy(record)
        if policy is None:
            return Deed.UNREGISTERED
        if not self.patience.is_over(record):
            return Deed.NOT_DUE
        try:
            deed = yield from look(record, now)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one record, the others are not to wait (F060).
            # Only the type: what a downstream's client says may be somebody's payload (SEC24).
            log.warning("%s of %s failed (%s)", record.record_id, record.operation, type(error).__name__)
            deed = Deed.ERROR
        if deed in (Deed.ERROR, Deed.UNREADABLE, Deed.STILL_IN_DOUBT):
            self.patience.lose(record, policy)
        return deed

    def _policy(self, record: Record) -> Policy | None:
        operation = self.operations.get(record.operation)
        subject = self.endpoints.get(record.operation) if operation is None else operation.declaration
        return None if subject is None else subject.policy

    def _doubtful(self, record: Record, now: int) -> Flow[Deed]:
        operation = self.operations.get(record.operation)
        inquiry = None if operation is None else operation.declaration.inquiry(record)
        policy = self._policy(record)
        assert policy is not None
        became = yield from Run(reconcile(record, policy, inquiry, now), nobody)
        return _OF_DOUBT[became]

    def _lapsed(self, record: Record, now: int) -> Flow[Deed]:
        operation = self.operations.get(record.operation)
        policy = self._policy(record)
        assert policy is not None
        if not record.may_resume(now) or (operation is None and now >= record.expires_at):
            return _deed((yield from Run(give_up(record, policy), nobody)))
        if operation is None or record.attempts >= (operation.declaration.attempts_limit or sys.maxsize):
            return Deed.CLIENT_ONLY
        if now < due_at(record, policy):
            return Deed.NOT_DUE
        try:
            request, handler = operation.resumed(self.secrets, record)
        except NebisError as error:
            log.info("%s of %s cannot be run by this code: %s", record.record_id, record.operation, error)
            return Deed.UNREADABLE
        return _deed((yield from Run(recover(request, record), handler)))


_OF_DOUBT = {
    Reconciled.GOES_ON: Deed.RECONCILED,
    Reconciled.EXPIRED: Deed.EXPIRED,
    Reconciled.STILL_IN_DOUBT: Deed.STILL_IN_DOUBT,
    Reconciled.MOVED_ON: Deed.MOVED_ON,
}


def _deed(ending: object) -> Deed:
    match ending:
        case Finished():
            return Deed.FINISHED
        case Failed():
            return Deed.FAILED if ending.doubt_reason is None else Deed.DOUBTED
        case Doubtful():
            return Deed.DOUBTED
        case GivenUp():
            return Deed.GIVEN_UP
        case _:
            return Deed.MOVED_ON


def _after(scan: Scan, after: tuple[int, bytes] | None) -> Scan:
    return Scan(states=scan.states, lapsed_only=scan.lapsed_only, limit=scan.limit, after=after)


def nobody(*_: object) -> Any:
    """Stand for the handler of a flow that has none."""
    raise AssertionError("this flow runs no handler")


def perform_blocking(world: BlockingWorld, ask: Ask[Any]) -> Any:
    """Do what a pass asks for, in the calling thread."""
    backend = world.backend
    match ask:
        case ReadPage():
            return backend.sessions.run(backend.store.scan(ask.scan))
        case ReadClock():
            return backend.sessions.run(backend.store.clock())
        case _:
            assert isinstance(ask, Run)
            return world.run(ask.flow, ask.handler)


async def perform_async(world: AsyncWorld, ask: Ask[Any]) -> Any:
    """Do what a pass asks for, on the event loop."""
    backend = world.backend
    match ask:
        case ReadPage():
            return await backend.sessions.run(backend.store.scan(ask.scan))
        case ReadClock():
            return await backend.sessions.run(backend.store.clock())
        case _:
            assert isinstance(ask, Run)
            return await world.run(ask.flow, ask.handler)
