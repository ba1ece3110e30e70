"""Run an operation once for a key, however often it is asked: claim, run, complete; or replay, refuse, wait."""

from __future__ import annotations

from typing import assert_never

from nebis.core.answers import (
    ClaimAnswer,
    Doubtful,
    Gone,
    Granted,
    Replay,
    Reused,
    Running,
    Unreadable,
)
from nebis.core.record import Record
from nebis.flow import Flow
from nebis.flows.enter import enter
from nebis.flows.request import Ending, Request, finished
from nebis.flows.undo import conclude, undo
from nebis.ports.asks import KeepAlive, Raised, Returned, RunHandler, Settled, Tell
from nebis.ports.observer import (
    AttemptStarted,
    Event,
    FoundExpired,
    FoundInDoubt,
    FoundInFlight,
    FoundKeyReused,
    FoundUnreadable,
    Replayed,
)


def execute(request: Request) -> Flow[Ending]:
    """Own the record and run the handler outside any transaction of the claim (C2), or answer without running."""
    begun = yield from begin(request)
    return (yield from run(request, begun)) if isinstance(begun, Record) else begun


def begin(request: Request) -> Flow[Record | Ending]:
    """Come to own the record, which is renewed from now on; or say how the request ends without running.

    A record that is being undone is undone to its end here, since its handler never runs again.
    """
    answer = yield from enter(request)
    yield Tell(told(answer))
    if not isinstance(answer, Granted):
        return without_running(answer)
    return (yield from attend(request, answer.record))


def attend(request: Request, record: Record) -> Flow[Record | Ending]:
    """Keep a record alive that was just granted, and return it, or how it ended where only undoing was left."""
    yield KeepAlive(record, request.policy.lease_us, request.policy.renewal_seconds)
    return (yield from undo(request, record)) if record.is_undoing else record


def run(request: Request, record: Record) -> Flow[Ending]:
    """Give the handler its turn as the owner of the record, and store how it ended."""
    end: Returned[object] | Raised | Settled = yield RunHandler(record)
    return (yield from conclude(request, record, end))


def without_running(answer: Replay | Running | Reused | Doubtful | Gone | Unreadable) -> Ending:
    """Say how a request ends that found its key taken."""
    if isinstance(answer, Replay):
        return finished(answer.record, is_replay=True)
    return answer


def told(answer: ClaimAnswer) -> Event:
    """Return what observers are told about a claim."""
    record: Record = answer.record
    operation, operation_id = record.operation, str(record.record_id)
    match answer:  # In the order of how often they come.
        case Granted():
            return AttemptStarted(
                operation=operation,
                operation_id=operation_id,
                how=answer.how,
                attempt=record.attempts,
                fence=record.fence,
            )
        case Replay():
            assert record.outcome_kind is not None  # I3
            return Replayed(operation=operation, operation_id=operation_id, kind=record.outcome_kind)
        case Running():
            return FoundInFlight(operation=operation, operation_id=operation_id)
        case Reused():
            return FoundKeyReused(operation=operation, operation_id=operation_id)
        case Doubtful():
            return FoundInDoubt(operation=operation, operation_id=operation_id, reason=record.doubt_reason or "")
        case Gone():
            return FoundExpired(operation=operation, operation_id=operation_id)
        case Unreadable():
            return FoundUnreadable(
                operation=operation, operation_id=operation_id, fingerprint_version=record.fingerprint_version
            )
        case _:
            assert_never(answer)
