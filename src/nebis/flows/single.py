"""Single transaction: claim, business rows and outcome in one commit. For short, purely local work.

There is no committed claim, hence no lease, no zombie and nothing to recover; twins wait at the unique index.
"""

from __future__ import annotations

from typing import assert_never

from nebis.core.answers import ClaimAnswer, Granted, Kept, Locked, Replay
from nebis.core.record import Outcome, OutcomeKind, Record
from nebis.core.verbs import Claim, Complete, Withdraw
from nebis.errors import StoreUnavailable, WriteInDoubt
from nebis.flow import Flow
from nebis.flows.enter import enter
from nebis.flows.execute import told, without_running
from nebis.flows.guarded import DOUBT_ENDED_INSIDE, doubt_ended_inside
from nebis.flows.persist import as_refusal, send_claim, send_owned
from nebis.flows.request import Disposition, Ending, Failed, Finished, Request, finished
from nebis.flows.settle import classified, rendered
from nebis.ports.asks import (
    Draw,
    Raised,
    Returned,
    RunHandler,
    Settled,
    Tell,
    TransactionApply,
    TransactionBegin,
    TransactionCommit,
    TransactionIsSame,
    TransactionRollback,
)
from nebis.ports.observer import Completed, Released, Withdrawn
from nebis.ports.store import IndefiniteFailure, RowLocked, StoreFailure


def execute_single(request: Request) -> Flow[Ending]:
    """Run the handler inside the transaction that claims; anything but a commit leaves nothing behind."""
    drawn = yield from Draw()
    claim = request.claim(drawn.record_id, drawn.nonce)
    record = yield from _claim_inside(claim)
    if record is None:
        # A twin holds the key or has ended: the ordinary way in says which, waits where the policy allows, and, should
        # the key have become free meanwhile, gives it back and tries once more inside a transaction.
        return (yield from _outside(request))
    end = yield from RunHandler(record)
    match end:
        case Settled():
            return (yield from _commit(request, claim, record, end.outcome))
        case Returned():
            return (yield from _commit(request, claim, record, rendered(request, end.value)))
        case Raised():
            yield from TransactionRollback()
            return (yield from _raised(request, claim, record, end.error))
        case _:
            assert_never(end)


def _claim_inside(claim: Claim) -> Flow[Record | None]:
    """Claim within the transaction; None if the key is not free, and then nothing is left behind."""
    try:
        yield from TransactionBegin()
        answer = yield from TransactionApply(claim)
    except RowLocked:
        answer = Locked()
    except StoreFailure as failure:
        yield from TransactionRollback()
        # Nothing was committed, so even an indefinite failure is a definite refusal here.
        raise StoreUnavailable(failure.detail) from failure
    if not isinstance(answer, Granted):
        yield from TransactionRollback()
        return None
    yield from Tell(told(answer))
    return answer.record


def _outside(request: Request) -> Flow[Ending]:
    answer: ClaimAnswer | Locked = yield from enter(request)
    if isinstance(answer, Locked):
        raise StoreUnavailable("a transaction that is not committed yet holds this key")
    if not isinstance(answer, Granted):
        yield from Tell(told(answer))
        return without_running(answer)
    withdraw = Withdraw(ownership=answer.record.ownership)
    yield from send_owned(withdraw, request.policy.confirm.total_seconds())
    raise StoreUnavailable("the transaction that held this key was just rolled back")


def _commit(request: Request, claim: Claim, record: Record, outcome: Outcome) -> Flow[Ending]:
    """Write the outcome and commit everything at once."""
    if not (yield from TransactionIsSame()):
        # Whoever ended the transaction inside committed the claim with some of the rows, or undid it with all of them.
        yield from TransactionRollback()
        yield from doubt_ended_inside(record, request.policy)
        raise WriteInDoubt(DOUBT_ENDED_INSIDE, operation_id=str(record.record_id))
    verb = Complete(ownership=record.ownership, outcome=outcome, retention=request.policy.kept)
    try:
        answer = yield from TransactionApply(verb)
        assert isinstance(answer, Kept)  # I2: nobody else can have seen a claim that is not committed.
        yield from TransactionCommit()
    except IndefiniteFailure as failure:
        yield from TransactionRollback()
        return (yield from _learn(request, claim, failure))
    except StoreFailure as failure:
        yield from TransactionRollback()
        raise StoreUnavailable(f"the transaction was refused and rolled back: {failure.detail}") from failure
    yield from Tell(Completed(operation=record.operation, operation_id=str(record.record_id), kind=outcome.kind))
    return Finished(record_id=record.record_id, outcome=outcome, is_replay=False)


def _learn(request: Request, claim: Claim, failure: StoreFailure) -> Flow[Ending]:
    """Learn what became of a COMMIT whose answer was lost: claim again under the same nonce.

    The unique index makes this claim wait for the old transaction, so its answer is proof: a replay means that it was
    committed, a grant that it never was.
    """
    try:
        answer = yield from send_claim(claim, request.policy.confirm.total_seconds())
    except StoreFailure as again:
        raise as_refusal(again) from failure
    if isinstance(answer, Replay):
        return finished(answer.record, is_replay=answer.record.nonce != claim.nonce)
    if isinstance(answer, Granted):
        yield from send_owned(Withdraw(ownership=answer.record.ownership), request.policy.confirm.total_seconds())
        raise StoreUnavailable("the COMMIT was lost on its way and nothing was committed") from failure
    if isinstance(answer, Locked):
        raise as_refusal(failure) from failure
    return without_running(answer)


def _raised(request: Request, claim: Claim, record: Record, error: Exception) -> Flow[Ending]:
    """End an attempt whose rows are undone: only a definite rejection leaves anything behind."""
    error, disposition = classified(request, error)
    if disposition is not Disposition.REJECT:
        happened = Withdrawn if disposition is Disposition.WITHDRAW else Released
        yield from Tell(happened(operation=record.operation, operation_id=str(record.record_id)))
        return Failed(record=record, error=error)
    again = yield from _claim_inside(claim)
    if again is None:
        return (yield from _outside(request))
    outcome = Outcome(kind=OutcomeKind.REJECTED, body=request.encode_rejection(error))
    return (yield from _commit(request, claim, again, outcome))
