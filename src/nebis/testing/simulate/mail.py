"""Messages of a run: who stages, relays, reads and applies them, on the real flows of relays and consumers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from nebis.consuming.intake import Intake, Unfit, declare_consumer
from nebis.core.record import Record
from nebis.core.secret import Secrets
from nebis.declaration import Declaration, PolicyOptions, derived_uuid
from nebis.delivery import Delivery, Incoming, Later, Parked
from nebis.errors import NotYet
from nebis.flow import Ask, Flow
from nebis.flows.admit import AttemptsUsedUp, admit
from nebis.flows.guarded import begin_guarded, commit_guarded, leave_guarded
from nebis.flows.relay import RelayPolicy, relay_once
from nebis.flows.request import Request
from nebis.flows.settle import rendered
from nebis.flows.stage import new_message
from nebis.policy import Local
from nebis.ports.asks import Pause, Settled
from nebis.ports.messages import Message
from nebis.ports.store import StoreFailure
from nebis.recovery import Run
from nebis.testing.simulate.faults import LEASE_SECONDS, Trouble
from nebis.testing.simulate.trades import SECRETS, Mood

CONSUMER = "consumer"
TOPIC = "charges"
MESSAGES_EACH = 2
"""Staged by every operation that commits rows of its own."""
RELAYING = RelayPolicy(
    batch=3,
    lease=timedelta(seconds=LEASE_SECONDS),
    publish_timeout=timedelta(seconds=LEASE_SECONDS / 2),
    backoff_longest=timedelta(seconds=8),
)
ATTEMPTS_LIMIT = 60
"""More than there are faults in a run: whatever is parked was parked wrongly."""
_SOMETIMES = frozenset({Trouble.RAISE, Trouble.GIVE_UP})


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How messages are read in one run."""

    is_sequenced: bool
    """The consumer goes by offsets."""
    is_single: bool
    """It runs in the transaction that claims."""
    counts: bool
    """The broker counts its deliveries."""
    takes_heads_first: bool
    """Relays get what PostgreSQL would give them, else what SQLite would."""


@dataclass(frozen=True, slots=True)
class ReadNext(Ask[Delivery | None]):
    """Get the message of a partition at an offset, or now and then an earlier one once more; None at its end."""

    partition: str
    offset: int


@dataclass(frozen=True, slots=True)
class Acknowledge(Ask[None]):
    """Tell the broker that everything up to an offset is done with; raises if it may not have heard."""

    partition: str
    offset: int


@dataclass(frozen=True, slots=True)
class WriteEntry(Ask[None]):
    """Write a message into the consumer's ledger, in the open transaction of the turn."""

    incoming: Incoming[Any]


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a consumer's handler is run with: for a delivery, or by a worker that found the message in the store."""

    intake: Intake
    request: Request
    incoming: Incoming[Any]
    is_single: bool = False


def staged_by(record: Record) -> tuple[Message, ...]:
    """Return what an operation has to tell, in this order and under ids that every attempt makes alike."""
    return tuple(
        new_message(
            TOPIC,
            {"life": str(record.record_id), "number": number},
            id=str(derived_uuid(record.record_id, f"message {number}")),
            ordering_key=record.tenant,
        )
        for number in range(MESSAGES_EACH)
    )


@lru_cache(maxsize=16)
def intake_of(habits: Habits) -> Intake:
    """Declare the consumer."""

    def handle(incoming: Incoming[dict[str, Any]]) -> None:
        raise AssertionError(f"never called with {incoming.topic}: the simulation brings its own handler")

    # The annotations of a function in a function are text, which is read where the module's names are.
    handle.__annotations__ = {"incoming": Incoming[dict[str, Any]], "return": None}
    options: PolicyOptions = {
        "lease": timedelta(seconds=LEASE_SECONDS),
        "renewal": timedelta(seconds=LEASE_SECONDS / 3),
        "confirm": timedelta(seconds=LEASE_SECONDS / 2),
        "effect_timeout": timedelta(seconds=LEASE_SECONDS / 2),
        "backoff_longest": timedelta(seconds=4),
        "single_transaction": habits.is_single,
    }
    return declare_consumer(
        CONSUMER,
        handle,
        is_async=False,
        effects=Local,
        dedup=None,
        sequence=habits.is_sequenced,
        attempts_limit=ATTEMPTS_LIMIT,
        fingerprint=None,
        undo=None,
        queries=None,
        options=options,
    )


def relay() -> Flow[None]:
    """Publish until there is nothing left, as a relay does; what a round cannot do is left to the next one."""
    try:
        while (yield from relay_once(RELAYING)).taken:
            pass
    except (NotYet, StoreFailure):
        return


def read(partition: str, offset: int, intake: Intake) -> Flow[None]:
    """Take the messages of a partition in, one after the other, until its end."""
    while True:
        delivery = yield from ReadNext(partition, offset)
        if delivery is None:
            return
        yield from _take_in(intake, delivery)
        assert delivery.offset is not None, "this broker counts"
        with suppress(StoreFailure):  # Whatever the broker did not hear of, it delivers once more.
            yield from Acknowledge(partition, delivery.offset)
        offset = max(offset, delivery.offset + 1)


def _take_in(intake: Intake, delivery: Delivery) -> Flow[None]:
    while True:
        admitted = intake.admitted(SECRETS, delivery)
        assert not isinstance(admitted, Unfit), f"a message of ours is unfit: {admitted}"
        admission, incoming = admitted
        consumption = Consumption(intake, admission.request, incoming, admission.is_single)
        try:
            verdict = yield from Run(admit(admission), lambda held=consumption: held)
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError("a reader of messages is told, nothing is raised to it") from error
        assert not isinstance(verdict, Parked), f"a message of ours is parked: {verdict}"
        if not isinstance(verdict, Later):
            return
        yield from Pause(verdict.after_seconds)


def consume(consumption: Consumption, record: Record) -> Flow[object]:
    """Apply a message: one row, in the transaction that also holds the outcome."""
    if record.attempts > consumption.intake.attempts_limit:
        raise AttemptsUsedUp
    yield from Mood(_SOMETIMES)
    outcome = rendered(consumption.request, None)
    if consumption.is_single:
        yield from WriteEntry(consumption.incoming)
        yield from Mood(_SOMETIMES)
        return Settled(outcome)
    policy = consumption.request.policy
    yield from begin_guarded(record, policy)
    try:
        yield from WriteEntry(consumption.incoming)
        yield from Mood(_SOMETIMES)
    except Exception:
        yield from leave_guarded(record, policy)
        raise
    yield from commit_guarded(record, policy, outcome)
    return Settled(outcome)


@dataclass(frozen=True, slots=True)
class Reading:
    """The consumer, as a worker goes on with it."""

    intake: Intake

    @property
    def declaration(self) -> Declaration[Any, Any]:
        """Return what the consumer is."""
        return self.intake.declaration

    def resumed(self, secrets: Secrets, record: Record) -> tuple[Request, Any]:
        """Return what runs a stored record; its handler is only a name for the turn."""
        request, incoming = self.declaration.resume(secrets, record)
        consumption = Consumption(self.intake, request, incoming)
        return request, lambda: consumption


def reading(habits: Habits) -> Mapping[str, Reading]:
    """Return what a worker has to know about the consumer."""
    return {CONSUMER: Reading(intake_of(habits))}
