"""End an attempt: store the outcome, give the key back, or say that nobody can tell."""

from __future__ import annotations

from typing import Final, assert_never

from nebis.core.answers import Doubtful, Intended, Kept, Locked, Refusal, Refused, Running
from nebis.core.record import Effect, EffectsMode, Outcome, OutcomeKind, Record, State, make_outcome
from nebis.core.verbs import Doubt, Release, Suspend, Withdraw, make_complete
from nebis.errors import EffectInDoubt, EffectTimedOut, InDoubt, ResultUnstorable, Retryable
from nebis.flow import Flow
from nebis.flows.late import keep_late
from nebis.flows.persist import UNANSWERED, insist, send_owned
from nebis.flows.request import Disposition, Ending, Failed, Finished, Request, Vanished, finished, make_finished
from nebis.flows.welcome import weigh
from nebis.ports.asks import Raised, Returned, Settled, Tell, make_apply, make_tell_completed
from nebis.ports.observer import (
    DoubtRaised,
    Event,
    OwnershipLost,
    Released,
    Suspended,
    Withdrawn,
)
from nebis.ports.store import StoreFailure

DOUBT_HANDLER_RAISED = "handler-raised"
DOUBT_CODE_CHANGED = "code-changed"
DOUBT_EFFECT_OPEN = "effect-left-open"
DOUBT_EFFECT_TIMED_OUT = "effect-timed-out"
_SUCCEEDED: Final = OutcomeKind.SUCCEEDED
"""Looked up once: nearly every outcome is one."""
LONGEST_REASON = 200
"""A reason is a word for people and metrics; whatever is longer is a payload."""


def settle(request: Request, record: Record, end: Returned[object] | Raised | Settled) -> Flow[Ending]:
    """Turn a handler's end into what is stored and what its caller is told."""
    if isinstance(end, Settled):
        yield from weigh(request, end.outcome)
        return Finished(record_id=record.record_id, outcome=end.outcome, is_replay=False)
    if isinstance(end, Returned):
        if end.never_asked is not None or left_open(end) is not None:
            return (yield from _unfinished(request, record, end))
        return (yield from complete(request, record, rendered(request, end.value)))
    error, disposition = classified(request, end.error)
    match disposition:
        case Disposition.REJECT:
            if end.never_asked is not None or left_open(end) is not None:
                return (yield from _unfinished(request, record, end))
            body = request.encode_rejection(error)
            return (yield from complete(request, record, Outcome(kind=OutcomeKind.REJECTED, body=body)))
        case Disposition.WITHDRAW:
            withdraw = Withdraw(ownership=record.ownership, nothing_happened=True)
            return (yield from _give_back(request, record, error, withdraw))
        case Disposition.RETRY:
            release = Release(ownership=record.ownership, nothing_happened=True)
            return (yield from _give_back(request, record, error, release))
        case Disposition.DOUBT:
            return (yield from doubt(request, record, error))
        case Disposition.BY_MODE:
            if record.mode is EffectsMode.OPAQUE:
                return (yield from doubt(request, record, error))
            return (yield from _give_back(request, record, error, Release(ownership=record.ownership)))
        case _:
            assert_never(disposition)


def left_open(end: Returned[object] | Raised) -> Effect | None:
    """Return the effect of which the handler does not know whether it happened, although it ended with an outcome."""
    return next((effect for effect in end.effects if effect.is_open), None)


def _unfinished(request: Request, record: Record, end: Returned[object] | Raised) -> Flow[Ending]:
    """End an attempt that has an outcome but may not have one yet.

    The code that runs now never asked for an effect that is recorded, or it went on after one without an answer, which
    is asked for again where that is safe.
    """
    if end.never_asked is not None:
        changed = EffectInDoubt(DOUBT_CODE_CHANGED, operation_id=str(record.record_id))
        return (yield from doubt(request, record, changed))
    unanswered = EffectInDoubt(DOUBT_EFFECT_OPEN, operation_id=str(record.record_id))
    return (yield from suspend(request, record, unanswered))


def classified(request: Request, error: Exception) -> tuple[Exception, Disposition]:
    """Ask what an exception says. A hook that fails says nothing, and its own error is what its author must see."""
    try:
        return error, request.classify(error)
    except Exception as broken:  # noqa: BLE001 - code of the application; the attempt must end whatever it does.
        broken.__cause__ = error
        return broken, Disposition.BY_MODE


def rendered(request: Request, value: object) -> Outcome:
    """Render a result once, before anything is stored; one that cannot be kept is a final, honest answer (O6)."""
    try:
        return make_outcome(kind=_SUCCEEDED, body=request.encode(value))
    except ResultUnstorable as error:
        return Outcome(kind=OutcomeKind.UNSTORABLE, body=request.encode_rejection(error))


def complete(request: Request, record: Record, outcome: Outcome) -> Flow[Ending]:
    """Store the outcome, and answer with it only once the store confirmed it (I11)."""
    verb = make_complete(ownership=record.ownership, outcome=outcome, retention=request.policy.kept)
    answer: Kept | Intended | Refused | Locked | StoreFailure
    try:
        answer = yield make_apply(verb)
    except StoreFailure as failure:
        answer = failure
    if isinstance(answer, UNANSWERED):
        answer = yield from insist(verb, request.policy.confirm_seconds, answer)
    if isinstance(answer, Refused):
        yield from keep_late(record, request.policy, verb, answer)
        return (yield from lost(record, answer))
    if request.meters:
        yield from weigh(request, outcome)
    yield make_tell_completed(record, outcome.kind)
    return make_finished(record_id=record.record_id, outcome=outcome, is_replay=False)


def _give_back(request: Request, record: Record, error: Exception, verb: Release | Withdraw) -> Flow[Ending]:
    """Give the key back if the record is clean; go on later if it is dirty and can; otherwise it is in doubt."""
    answer = yield from send_owned(verb, request.policy.confirm_seconds)
    if isinstance(answer, Kept):
        happened = Released if isinstance(verb, Release) else Withdrawn
        yield from Tell(happened(operation=record.operation, operation_id=str(record.record_id)))
        return Failed(record=record, error=error)
    assert isinstance(answer, Refused)
    if answer.reason is not Refusal.DIRTY:
        return (yield from lost(record, answer))
    return (yield from suspend(request, record, error))


def suspend(request: Request, record: Record, error: Exception) -> Flow[Ending]:
    """Let a successor go on at once, where that cannot make an effect twice; otherwise the record is in doubt."""
    verb = Suspend(ownership=record.ownership)
    answer = yield from send_owned(verb, request.policy.confirm_seconds)
    if isinstance(answer, Kept):
        yield from Tell(Suspended(operation=record.operation, operation_id=str(record.record_id)))
        return Failed(record=record, error=error)
    assert isinstance(answer, Refused)
    if answer.reason is not Refusal.NOT_RESUMABLE:
        return (yield from lost(record, answer))
    return (yield from doubt(request, record, error))


def doubt(request: Request, record: Record, error: Exception) -> Flow[Ending]:
    """Say that nobody can tell what happened, under a reason that people can act on."""
    verb = Doubt(ownership=record.ownership, reason=_reason(error))
    answer = yield from send_owned(verb, request.policy.confirm_seconds)
    if isinstance(answer, Refused):
        return (yield from lost(record, answer))
    event: Event = DoubtRaised(operation=record.operation, operation_id=str(record.record_id), reason=verb.reason)
    yield from Tell(event)
    return Failed(record=record, error=error, doubt_reason=verb.reason)


def _reason(error: Exception) -> str:
    """Return the handler's own word if it gave one. What other exceptions carry may be somebody's payload (SEC24)."""
    if isinstance(error, EffectTimedOut):
        return DOUBT_EFFECT_TIMED_OUT
    if not isinstance(error, InDoubt | Retryable):
        return DOUBT_HANDLER_RAISED
    # Every store can keep printable text; not every one keeps a NUL or half of a surrogate pair.
    return "".join(character if character.isprintable() else "?" for character in str(error.reason)[:LONGEST_REASON])


def lost(record: Record, refused: Refused) -> Flow[Ending]:
    """Answer for an owner that was fenced: with the winner's bytes if there are any, never with its own (I11)."""
    yield from Tell(
        OwnershipLost(operation=record.operation, operation_id=str(record.record_id), reason=refused.reason)
    )
    return seen(record, refused.found)


def seen(record: Record, found: Record | None) -> Ending:
    """Say what a re-read means to the caller of `record`; another life of the key is not its own (F071)."""
    if found is None or found.record_id != record.record_id:
        return Vanished()
    match found.state:
        case State.COMPLETED:
            return finished(found, is_replay=True)
        case State.IN_DOUBT:
            return Doubtful(record=found)
        case State.IN_PROGRESS:
            return Running(record=found, lease_left_us=0)
        case State.AVAILABLE | State.EXPIRED:
            return Vanished()
        case _:
            assert_never(found.state)
