"""One step of the state machine, and the names of all steps that there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from nebis.core.answers import Refusal, Refused
from nebis.core.quick import maker
from nebis.core.record import Record, State

A_co = TypeVar("A_co", covariant=True)


class Edge(StrEnum):
    """Every way in which a verb can be accepted or answered; refusals are counted by their reason."""

    CLAIM_NEW = "claim: new"
    CLAIM_NEW_AFTER_AVAILABLE = "claim: available past its time is new"
    CLAIM_NEW_AFTER_FORGOTTEN = "claim: tombstone past its time is new"
    CLAIM_AVAILABLE = "claim: available"
    CLAIM_TAKEN_OVER = "claim: lapsed and clean is taken over"
    CLAIM_RESUMED = "claim: lapsed and dirty is resumed"
    CLAIM_DOUBTED = "claim: lapsed and not resumable goes in doubt"
    CLAIM_OWN = "claim: own claim recognised"
    CLAIM_REPLAY = "claim: replay"
    CLAIM_RUNNING = "claim: in flight"
    CLAIM_RUNNING_AWAITED = "claim: in flight, marked as awaited"
    CLAIM_REUSED = "claim: key reused"
    CLAIM_UNREADABLE = "claim: unknown fingerprint version"
    CLAIM_DOUBTFUL = "claim: in doubt"
    CLAIM_RUN_AGAIN = "claim: expired runs again"
    CLAIM_GONE = "claim: expired is refused"
    TAKE_OVER_CLEAN = "take over: clean"
    TAKE_OVER_RESUMED = "take over: dirty is resumed"
    TAKE_OVER_DOUBTED = "take over: not resumable goes in doubt"
    TAKE_OVER_OWN = "take over: own one recognised"
    TAKE_OVER_GIVEN_UP_CLEAN = "take over: recoveries used up, clean becomes available"
    TAKE_OVER_GIVEN_UP_DIRTY = "take over: recoveries used up, dirty goes in doubt"
    RENEWED = "renew"
    INTENDED = "intend: opened"
    INTENDED_AGAIN = "intend: open effect called again"
    INTENDED_REPEATED = "intend: repeated"
    CHECKPOINTED = "checkpoint: open effect known"
    CHECKPOINTED_CLEAN = "checkpoint: nothing happened, clean again"
    CHECKPOINTED_FROM_DOUBT = "checkpoint: late owner ends the doubt"
    CHECKPOINTED_LOCAL = "checkpoint: transactional step"
    CHECKPOINT_REPEATED = "checkpoint: repeated"
    COMPLETED = "complete: in progress"
    COMPLETED_FROM_DOUBT = "complete: late owner ends the doubt"
    COMPLETE_REPEATED = "complete: repeated"
    SUSPENDED = "suspend"
    RELEASED = "release"
    RELEASE_REPEATED = "release: repeated"
    WITHDRAWN = "withdraw"
    WITHDRAW_REPEATED = "withdraw: repeated"
    DOUBTED = "doubt"
    DOUBT_REPEATED = "doubt: repeated"
    TURNED_BACK = "turn back"
    TURN_BACK_REPEATED = "turn back: repeated"
    ATTACHED = "attach"
    RESOLVED_ENDED = "resolve: ended"
    RESOLVED_EFFECT_KNOWN = "resolve: effect known, goes on"
    RESOLVED_DID_NOT_HAPPEN_AVAILABLE = "resolve: did not happen, available"
    RESOLVED_DID_NOT_HAPPEN_GOES_ON = "resolve: did not happen, goes on after earlier effects"
    RESOLVED_CALL_AGAIN = "resolve: called again"
    RESOLVE_REPEATED = "resolve: repeated"
    EXPIRED = "expire"
    PURGED = "purge"
    FORGOTTEN = "forget"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[A_co]):
    """What a verb makes of a record: the next record (None is no record at all) and the answer."""

    record: Record | None
    answer: A_co
    edge: Edge


make_step: Final = maker(Step)


def refuse(record: Record | None, reason: Refusal) -> Step[Refused]:
    """Change nothing and say why."""
    return Step(record=record, answer=Refused(reason=reason, found=record), edge=Edge.REFUSED)


_NOT_RUNNING = {
    State.COMPLETED: Refusal.COMPLETED,
    State.AVAILABLE: Refusal.AVAILABLE,
    State.IN_DOUBT: Refusal.IN_DOUBT,
    State.EXPIRED: Refusal.EXPIRED,
    State.IN_PROGRESS: Refusal.IN_PROGRESS,
}


def refusal_of_state(record: Record) -> Refusal:
    """Name the state that a verb did not expect."""
    return _NOT_RUNNING[record.state]


def changed(record: Record, **changes: Any) -> Record:
    """Return the record with other values; the names are checked by `dataclasses.replace`."""
    return replace(record, **changes)
