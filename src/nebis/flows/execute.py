"""Run an operation once for a key, however often it is asked: claim, run, complete; or replay, refuse, wait."""

from __future__ import annotations

from typing import assert_never

from nebis.core.answers import (
    ClaimAnswer,
    Doubtful,
    Gone,
    Granted,
    Locked,
    Replay,
    Reused,
    Running,
    Unreadable,
)
from nebis.core.record import Record
from nebis.errors import StoreUnavailable
from nebis.flow import Flow
from nebis.flows.enter import enter
from nebis.flows.request import Ending, Request, finished
from nebis.flows.settle import settle
from nebis.ports.asks import KeepAlive, RunHandler, Tell
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
    if not isinstance(begun, Record):
        return begun
    end = yield from RunHandler(begun)
    return (yield from settle(request, begun, end))


def begin(request: Request) -> Flow[Record | Ending]:
    """Come to own the record, which is renewed from now on; or say how the request ends without running."""
    answer = yield from enter(request)
    if isinstance(answer, Locked):
        # A twin's uncommitted single transaction holds the key: whatever it will be, it is not ours to run now.
        raise StoreUnavailable("a transaction that is not committed yet holds this key")
    yield from Tell(told(answer))
    if not isinstance(answer, Granted):
        return without_running(answer)
    record = answer.record
    yield from KeepAlive(record, request.policy.lease_us, request.policy.renewal.total_seconds())
    return record


def without_running(answer: Replay | Running | Reused | Doubtful | Gone | Unreadable) -> Ending:
    """Say how a request ends that found its key taken."""
    if isinstance(answer, Replay):
        return finished(answer.record, is_replay=True)
    return answer


def told(answer: ClaimAnswer) -> Event:
    """Return what observers are told about a claim."""
    record: Record = answer.record
    operation, operation_id = record.operation, str(record.record_id)
    match answer:
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
