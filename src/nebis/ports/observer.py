"""The observer port: one typed event for each thing that can happen to a request.

An event names the operation and the public id of the record; never the tenant, the key or any body (SEC24, SEC25).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from nebis.core.answers import (
    ClaimAnswer,
    Doubtful,
    Gone,
    Grant,
    Granted,
    Refusal,
    Replay,
    Reused,
    Running,
    Unreadable,
)
from nebis.core.record import EffectVerdict, OutcomeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to one record."""

    operation: str
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(Event):
    """An attempt came to own the record."""

    how: Grant
    attempt: int
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed(Event):
    """A request was answered with the stored outcome."""

    kind: OutcomeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInFlight(Event):
    """A request met a running attempt and was told to come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKeyReused(Event):
    """A request brought another command under a known key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInDoubt(Event):
    """A request met a record that nobody may run again."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundExpired(Event):
    """A request came after its answer was dropped and was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTooFast(Event):
    """A request brought one fresh key more than a limit or a quota allows; nothing is recorded under the id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundUnreadable(Event):
    """A request met a record made with an unknown fingerprint version and was refused."""

    fingerprint_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(Event):
    """An attempt stored the outcome."""

    kind: OutcomeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Event):
    """An attempt failed before any effect and gave the key back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn(Event):
    """An attempt forgot its claim: the request should never have been one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended(Event):
    """An attempt stopped half-way; a successor may go on at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtRaised(Event):
    """An attempt ended without anybody knowing whether its effect happened. Alert on this one."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectIntended(Event):
    """An effect may happen from now on."""

    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectKnown(Event):
    """An effect ended and its result is stored."""

    effect: str
    verdict: EffectVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectReplayed(Event):
    """An attempt got an earlier attempt's result instead of calling again."""

    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LateResult(Event):
    """An attempt did its work after it had lost the record, so the result could not be stored. Alert on this one."""

    effect: str | None
    """None for the outcome of the whole operation."""
    reason: Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedBack(Event):
    """An operation was rejected after some of its effects had happened; these are undone from now on."""

    effects: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtEnded(Event):
    """A record left doubt by evidence: its open effect is known to have happened, or cannot happen any more."""

    effect: str
    verdict: EffectVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtExpired(Event):
    """A record stayed in doubt until its deadline and was closed as unknown, for good. Alert on this one."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp(Event):
    """No worker will try this record again: nothing happened under it, and its client may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipLost(Event):
    """An attempt found that another one owns its record, or that the record is settled."""

    reason: Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class NotConfirmedYet(Event):
    """The store did not confirm a write in time; the process goes on trying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageParked(Event):
    """A consumer keeps a message aside for a person; the id is that of the parked message. Alert on this one."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageIgnored(Event):
    """A consumer got a message whose offset is applied already; the id is what it would be parked under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFound(Event):
    """A consumer went past offsets that never came; the id is what the message would be parked under."""

    partition: str
    first: int
    last: int


Observer: TypeAlias = Callable[[Event], None]
"""Called in the process, in order, after the store confirmed. What it raises is logged and goes no further."""


def claimed(answer: ClaimAnswer) -> Event:
    """Return what observers are told about a claim."""
    operation, operation_id = answer.record.operation, str(answer.record.record_id)
    match answer:  # In the order of how often they come.
        case Granted():
            return AttemptStarted(
                operation=operation,
                operation_id=operation_id,
                how=answer.how,
                attempt=answer.record.attempts,
                fence=answer.record.fence,
            )
        case Replay():
            assert answer.record.outcome_kind is not None  # I3
            return Replayed(operation=operation, operation_id=operation_id, kind=answer.record.outcome_kind)
        case Running():
            return FoundInFlight(operation=operation, operation_id=operation_id)
        case Reused():
            return FoundKeyReused(operation=operation, operation_id=operation_id)
        case Doubtful():
            return FoundInDoubt(operation=operation, operation_id=operation_id, reason=answer.record.doubt_reason or "")
        case Gone():
            return FoundExpired(operation=operation, operation_id=operation_id)
        case Unreadable():
            return FoundUnreadable(
                operation=operation, operation_id=operation_id, fingerprint_version=answer.record.fingerprint_version
            )
        case _:
            assert_never(answer)
