"""One call of one operation, as a value: everything that the engine needs to know and nothing about how it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from nebis.core.answers import Doubtful, Gone, Reused, Running, Unreadable
from nebis.core.marks import Marks
from nebis.core.quick import maker, quick
from nebis.core.record import Effect, Outcome, Record, RecordId, Told, make_outcome
from nebis.core.velocity import Charge
from nebis.deadline import Deadline
from nebis.errors import (
    InDoubt,
    NaturalKeyReused,
    PreconditionFailed,
    PreconditionMalformed,
    PreconditionRequired,
    Rejected,
    Retryable,
)
from nebis.flows.plan import EffectPlan
from nebis.policy import Policy, Wait


class Disposition(StrEnum):
    """What an exception says about what happened."""

    REJECT = "reject"
    """A definite no: stored, and replayed to every retry."""
    RETRY = "retry"
    """Nothing happened, or nothing that another attempt would do twice."""
    DOUBT = "doubt"
    """Nobody can tell."""
    WITHDRAW = "withdraw"
    """The request should never have been one: validation, authentication, rate limit."""
    BY_MODE = "by_mode"
    """Nothing is said; what the operation declared about its effects decides."""


WITHDRAWING: Final = (NaturalKeyReused, PreconditionFailed, PreconditionMalformed, PreconditionRequired)
"""What a handler raises to refuse the request itself, before it did anything: another version may succeed."""


def classify(error: Exception) -> Disposition:
    """Take a handler at its word where it gave one; any other exception says nothing."""
    if isinstance(error, Rejected):
        return Disposition.REJECT
    if isinstance(error, Retryable):
        return Disposition.RETRY
    if isinstance(error, InDoubt):
        return Disposition.DOUBT
    return Disposition.WITHDRAW if isinstance(error, WITHDRAWING) else Disposition.BY_MODE


def _cannot_undo(_record: Record, effect: Effect) -> EffectPlan:
    raise AssertionError(f"{effect.name} is not among the effects that can be undone")


def reveal_nothing(_: Outcome) -> None:
    """Keep a stored outcome to itself."""


@quick
@dataclass(frozen=True, slots=True)
class Request:
    """A command under a key, and the policy of its operation.

    Its fields may be given in their order, for the one place that every request comes through; elsewhere name them.
    """

    claim: Marks
    """Makes the claim from an attempt's random marks; identity and fingerprint are already in it."""
    policy: Policy
    encode: Callable[[object], bytes] = field(repr=False)
    """Renders a result to its final bytes; raises `ResultUnstorable` for one that cannot be kept."""
    encode_rejection: Callable[[Exception], bytes] = field(repr=False)
    derive_key: Callable[[RecordId, str], str] = field(
        repr=False, default=lambda record_id, name: f"{record_id}/{name}"
    )
    """Derives the key under which an effect of a record is known downstream; never from the attempt (F064)."""
    sign_token: Callable[[RecordId, str], str] = field(
        repr=False, default=lambda record_id, name: f"{record_id}.{name}"
    )
    """Signs the one-time token of an effect, for a downstream that burns it."""
    reveal: Callable[[Outcome], object] = field(repr=False, default=reveal_nothing)
    """Reads a stored outcome back for a handler whose request repeats it; None if there is nothing to be shown."""
    classify: Callable[[Exception], Disposition] = classify
    undoable: frozenset[str] = frozenset()
    """Names of effects that the operation can undo."""
    plan_undo: Callable[[Record, Effect], EffectPlan] = field(repr=False, default=_cannot_undo)
    """Plans how to undo one of these that happened; raises `RecordCorrupt` if its result cannot be read."""
    deadline: Deadline | None = None
    """After it nothing new begins; what runs is never stopped by it."""
    may_begin: bool = True
    """False for an expired token, which is only good for what it began in time."""
    charges: tuple[Charge, ...] = ()
    """What a fresh key counts for, and where."""
    seats: tuple[Charge, ...] = ()
    """What is given back once the first attempt has ended."""
    meters: tuple[Charge, ...] = ()
    """Where the size of the answer is counted, once it is stored."""

    @property
    def longest_wait_seconds(self) -> float:
        """Return for how long a twin may wait for the running attempt."""
        in_flight = self.policy.in_flight
        return in_flight.longest.total_seconds() if isinstance(in_flight, Wait) else 0.0


make_request: Final = maker(Request)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The one outcome of the record, as stored (I4): the first caller gets what a replay would get."""

    record_id: RecordId
    outcome: Outcome = field(repr=False)
    is_replay: bool
    expires_at: int | None = None
    """When the answer stops being kept, on the store's clock; known once it was read back."""


make_finished: Final = maker(Finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An attempt that ended without an outcome; its handler's exception goes on to the caller."""

    record: Record
    error: Exception
    doubt_reason: str | None = None
    """Set if nobody can tell what happened; later callers are told the same reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanished:
    """The record is gone, or belongs to another life of the key: nothing can be told to this caller."""


Ending: TypeAlias = Finished | Failed | Vanished | Running | Reused | Doubtful | Gone | Unreadable
"""How a request ends. Values: only façades raise."""


def finished(record: Record | Told, *, is_replay: bool) -> Finished:
    """Return the outcome of a completed record."""
    assert record.outcome_kind is not None  # I3
    assert record.outcome is not None  # I3
    outcome = make_outcome(kind=record.outcome_kind, body=record.outcome)
    return make_finished(record_id=record.record_id, outcome=outcome, is_replay=is_replay, expires_at=record.expires_at)
