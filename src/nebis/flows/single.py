"""Single transaction: claim, business rows and outcome in one commit. For short, purely local work.

There is no committed claim, hence no lease, no zombie and nothing to recover; a twin meanwhile is told that the key is
in flight.
"""

from __future__ import annotations

from functools import partial
from typing import assert_never

from nebis.core.answers import (
    ClaimAnswer,
    Granted,
    Kept,
    Locked,
)
from nebis.core.record import Outcome, OutcomeKind, Record, State
from nebis.core.verbs import Claim, Doubt, make_complete
from nebis.errors import InFlight, NotConfirmed, StoreUnavailable, WriteInDoubt
from nebis.flow import Flow
from nebis.flows.enter import RETRY_AFTER_SECONDS, outlast_twins
from nebis.flows.execute import without_running
from nebis.flows.guarded import DOUBT_ENDED_INSIDE, learn, tell_ended_inside, undo
from nebis.flows.persist import send_claim, send_owned
from nebis.flows.request import Disposition, Ending, Failed, Request, finished, make_finished
from nebis.flows.settle import classified, doubt, rendered
from nebis.flows.welcome import weigh, welcome
from nebis.ports.asks import (
    MakeClaim,
    Raised,
    Returned,
    RunHandler,
    Settled,
    Tell,
    TellClaimed,
    TellCompleted,
    TransactionApply,
    TransactionBegin,
    TransactionCommit,
    TransactionRollback,
    TransactionSettle,
)
from nebis.ports.messages import Message
from nebis.ports.observer import Released, Withdrawn
from nebis.ports.store import IndefiniteFailure, RowLocked, StoreFailure


def execute_single(request: Request) -> Flow[Ending]:
    """Run the handler inside the transaction that claims; anything but a commit leaves nothing behind."""
    claim = yield from MakeClaim(request.claim)
    claim = yield from welcome(request, claim)
    record = yield from _enter(request, claim)
    if not isinstance(record, Record):
        return record
    end = yield from RunHandler(record)
    match end:
        case Settled():
            return (yield from _commit(request, claim, record, end.outcome, end.messages))
        case Returned():
            return (yield from _commit(request, claim, record, rendered(request, end.value)))
        case Raised():
            if (yield from undo()):
                yield from _doubt_ended_inside(request, claim, record)
            return (yield from _raised(request, claim, record, end.error))
        case _:
            assert_never(end)


def _enter(request: Request, claim: Claim) -> Flow[Record | Ending]:
    """Come to own the record inside a transaction, or say how the request ends without running."""
    answer = yield from _claim_inside(claim)
    answer = yield from outlast_twins(claim, request, partial(_claim_inside, claim), answer)
    if isinstance(answer, Locked):
        raise InFlight(claim.operation, operation_id=None, retry_after_seconds=RETRY_AFTER_SECONDS)
    yield from TellClaimed(answer)
    return answer.record if isinstance(answer, Granted) else without_running(answer)


def _claim_inside(claim: Claim) -> Flow[ClaimAnswer | Locked]:
    """Claim within a transaction, which stays open only if the claim is granted; `Locked` if a twin is in one."""
    try:
        yield from TransactionBegin()
        answer = yield from _claim(claim)
    except StoreFailure as failure:
        yield from TransactionRollback()
        # Nothing was committed, so even an indefinite failure is a definite refusal here.
        raise StoreUnavailable(failure.detail) from failure
    if not isinstance(answer, Granted):
        yield from TransactionRollback()
    return answer


def _claim(claim: Claim) -> Flow[ClaimAnswer | Locked]:
    try:
        answer = yield from TransactionApply(claim)
    except RowLocked:
        return Locked()
    assert isinstance(answer, ClaimAnswer | Locked)
    return answer


def _commit(
    request: Request, claim: Claim, record: Record, outcome: Outcome, messages: tuple[Message, ...] = ()
) -> Flow[Ending]:
    """Write the outcome and commit everything at once."""
    try:
        verb = make_complete(ownership=record.ownership, outcome=outcome, retention=request.policy.kept)
        answer = yield from TransactionSettle(verb, messages)
        if answer is not None:
            assert isinstance(answer, Kept)  # I2: nobody else can have seen a claim that is not committed.
            yield from TransactionCommit()
    except IndefiniteFailure as failure:
        yield from TransactionRollback()
        found = yield from learn(claim.identity, request.policy, failure)
        if found is not None and found.ownership == record.ownership and found.state is State.IN_PROGRESS:
            # Nothing but a COMMIT inside can have left the claim without its outcome.
            yield from _doubt_ended_inside(request, claim, record)
        return _decided(record, found, failure)
    except StoreFailure as failure:
        yield from TransactionRollback()
        raise StoreUnavailable(f"the transaction was refused and rolled back: {failure.detail}") from failure
    if answer is None:
        yield from TransactionRollback()
        yield from _doubt_ended_inside(request, claim, record)
    yield from weigh(request, outcome)
    yield from TellCompleted(record, outcome.kind)
    return make_finished(record_id=record.record_id, outcome=outcome, is_replay=False)


def _decided(record: Record, found: Record | None, failure: StoreFailure) -> Ending:
    """Say what became of a COMMIT whose answer was lost: it alone can have left this very claim behind."""
    if found is not None and found.ownership == record.ownership and found.state is State.COMPLETED:
        return finished(found, is_replay=False)
    raise StoreUnavailable("the COMMIT was lost on its way and nothing was committed") from failure


def _doubt_ended_inside(request: Request, claim: Claim, record: Record) -> Flow[None]:
    """Put the key in doubt and raise it: whoever ended the transaction committed the claim with some of the rows.

    Or undid it with all of them, and may have committed others since; then the key is claimed anew, only to say so.
    """
    claimed = yield from _claim_outside(request, claim)
    if isinstance(claimed, Granted):
        verb = Doubt(ownership=claimed.record.ownership, reason=DOUBT_ENDED_INSIDE)
        if isinstance((yield from send_owned(verb, request.policy.confirm_seconds)), Kept):
            yield from tell_ended_inside(claimed.record)
    raise WriteInDoubt(DOUBT_ENDED_INSIDE, operation_id=str(record.record_id))


def _claim_outside(request: Request, claim: Claim) -> Flow[ClaimAnswer | Locked]:
    """Claim the key anew, outside the transaction that was undone, only to say what became of it."""
    try:
        return (yield from send_claim(claim, request.policy.confirm_seconds))
    except StoreFailure as failure:
        raise NotConfirmed(failure.detail) from failure


def _in_doubt(request: Request, claim: Claim, record: Record, error: Exception) -> Flow[Ending]:
    """Take a handler at its word that nobody can tell: our rows are undone, but it knows of something else."""
    claimed = yield from _claim_outside(request, claim)
    if isinstance(claimed, Granted):
        return (yield from doubt(request, claimed.record, error))
    # A twin came in between and is told the truth about itself; this one must not be taken for a clean failure.
    return Failed(record=record, error=error)


def _raised(request: Request, claim: Claim, record: Record, error: Exception) -> Flow[Ending]:
    """End an attempt whose rows are undone: only a definite rejection, or a doubt, leaves anything behind."""
    error, disposition = classified(request, error)
    if disposition is Disposition.DOUBT:
        return (yield from _in_doubt(request, claim, record, error))
    if disposition is not Disposition.REJECT:
        happened = Withdrawn if disposition is Disposition.WITHDRAW else Released
        yield from Tell(happened(operation=record.operation, operation_id=str(record.record_id)))
        return Failed(record=record, error=error)
    again = yield from _enter(request, claim)
    if not isinstance(again, Record):
        return again
    outcome = Outcome(kind=OutcomeKind.REJECTED, body=request.encode_rejection(error))
    return (yield from _commit(request, claim, again, outcome))
