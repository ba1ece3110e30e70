"""Claim, then guarded transaction: business rows and outcome in one commit, under the record's own row lock."""

from __future__ import annotations

from collections.abc import Callable

from nebis.core.answers import Kept, Locked, Refusal, Refused
from nebis.core.record import Effect, Outcome, Ownership, Record, State
from nebis.core.verbs import Checkpoint, Complete, Doubt
from nebis.errors import ClaimLost, NotConfirmed, StoreUnavailable, WriteInDoubt
from nebis.flow import Flow
from nebis.flows.persist import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, send_owned
from nebis.policy import Policy
from nebis.ports.asks import (
    Barrier,
    Elapsed,
    Pause,
    Tell,
    TellCompleted,
    TransactionBegin,
    TransactionCommit,
    TransactionHold,
    TransactionIsSame,
    TransactionRollback,
    TransactionSettle,
)
from nebis.ports.messages import Message
from nebis.ports.observer import DoubtRaised, EffectKnown
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, StoreFailure

DOUBT_ENDED_INSIDE = "transaction-ended-inside"


def begin_guarded(record: Record, policy: Policy) -> Flow[None]:
    """Start the transaction by locking the record: the lock is the owner's proof of life while it works.

    Raises `ClaimLost` if another attempt owns the record.
    """
    try:
        yield from TransactionBegin()
        found = yield from _held(record.identity, policy.confirm_seconds)
    except StoreFailure as failure:
        yield from TransactionRollback()
        raise StoreUnavailable(failure.detail) from failure
    reason = not_mine(found, record.ownership)
    if reason is not None:
        yield from TransactionRollback()
        raise ClaimLost(record.operation, reason)


def _held(identity: bytes, budget_seconds: float) -> Flow[Record | None]:
    """Hold the record; a renewal or a twin's look may hold it for a moment, nobody else may."""
    began = yield from Elapsed()
    pause_seconds = FIRST_PAUSE_SECONDS
    while True:
        found = yield from TransactionHold(identity)
        if not isinstance(found, Locked):
            return found
        if (yield from Elapsed()) - began > budget_seconds:
            raise DefiniteFailure("somebody holds the record in an open transaction")
        yield from Pause(pause_seconds)
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


def not_mine(found: Record | None, ownership: Ownership) -> Refusal | None:
    """Tell why a record that was read under its lock is not this owner's to finish, or None if it is."""
    if found is None:
        return Refusal.ABSENT
    if found.record_id != ownership.record_id:
        return Refusal.OTHER_LIFE
    if found.fence != ownership.fence or found.nonce != ownership.nonce:
        return Refusal.FENCED
    return None if found.state is State.IN_PROGRESS else Refusal(found.state.value)


def commit_guarded(record: Record, policy: Policy, outcome: Outcome, messages: tuple[Message, ...] = ()) -> Flow[None]:
    """Write the outcome and commit it with the business rows and the messages, or raise; nothing is half done."""
    verb = Complete(ownership=record.ownership, outcome=outcome, retention=policy.kept)
    yield from _commit(record, policy, TransactionSettle(verb, messages), lambda found: found.state is State.COMPLETED)
    yield from TellCompleted(record, outcome.kind)


def commit_step(record: Record, policy: Policy, step: Effect) -> Flow[None]:
    """Write the checkpoint of a local step and commit it together with the step's rows, or raise."""
    assert step.verdict is not None
    assert step.result is not None
    verb = Checkpoint(
        ownership=record.ownership,
        name=step.name,
        verdict=step.verdict,
        result=step.result,
        transactional_digest=step.digest,
    )
    yield from _commit(record, policy, TransactionSettle(verb), lambda found: found.effect(step.name) is not None)
    yield from Tell(
        EffectKnown(
            operation=record.operation, operation_id=str(record.record_id), effect=step.name, verdict=step.verdict
        )
    )


def _commit(
    record: Record, policy: Policy, write: TransactionSettle, has_happened: Callable[[Record], bool]
) -> Flow[None]:
    """Write and commit.

    Raises `WriteInDoubt` if somebody ended the transaction inside, `ClaimLost` if the record is no longer ours,
    `StoreUnavailable` if it is certain that nothing was committed, `NotConfirmed` if that cannot be learnt in time.
    """
    try:
        answer = yield from write
        if isinstance(answer, Kept):
            yield from TransactionCommit()
            return
    except IndefiniteFailure as failure:
        yield from TransactionRollback()
        _decide(record, (yield from learn(record.identity, policy, failure)), failure, has_happened)
        return
    except DefiniteFailure as failure:
        yield from TransactionRollback()
        raise StoreUnavailable(f"the transaction was refused and rolled back: {failure.detail}") from failure
    yield from TransactionRollback()
    if answer is None:
        yield from _doubt_ended_inside(record, policy)
    raise ClaimLost(record.operation, answer.reason if isinstance(answer, Refused) else Refusal.FENCED)


def leave_guarded(record: Record, policy: Policy) -> Flow[None]:
    """Undo a transaction that ends without an outcome; raise `WriteInDoubt` if somebody ended it inside."""
    if (yield from undo()):
        yield from _doubt_ended_inside(record, policy)


def undo() -> Flow[bool]:
    """Roll back, and tell whether somebody had ended the transaction inside: then some of its rows may be committed."""
    try:
        is_same = yield from TransactionIsSame()
    except StoreFailure:
        is_same = True  # It failed before, and nothing of it was committed.
    yield from TransactionRollback()
    return not is_same


def _doubt_ended_inside(record: Record, policy: Policy) -> Flow[None]:
    """Say, outside the transaction, that some of its rows may be committed and some not; and raise it."""
    verb = Doubt(ownership=record.ownership, reason=DOUBT_ENDED_INSIDE)
    answer = yield from send_owned(verb, policy.confirm_seconds)
    if isinstance(answer, Kept):
        yield from tell_ended_inside(record)
    raise WriteInDoubt(DOUBT_ENDED_INSIDE, operation_id=str(record.record_id))


def tell_ended_inside(record: Record) -> Flow[None]:
    """Tell the observers that the record is in doubt for this reason."""
    yield from Tell(
        DoubtRaised(operation=record.operation, operation_id=str(record.record_id), reason=DOUBT_ENDED_INSIDE)
    )


def learn(identity: bytes, policy: Policy, failure: StoreFailure) -> Flow[Record | None]:
    """Return the record as a COMMIT left it whose answer was lost; raise `NotConfirmed` if that stays unknown.

    A plain read proves nothing while the old transaction may still be under way. Holding the row does: it ended.
    """
    began = yield from Elapsed()
    pause_seconds = FIRST_PAUSE_SECONDS
    while (yield from Elapsed()) - began <= policy.confirm_seconds:
        try:
            found = yield from Barrier(identity)
        except StoreFailure:
            found = Locked()
        if not isinstance(found, Locked):
            return found
        yield from Pause(pause_seconds)
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
    raise NotConfirmed(failure.detail) from failure


def _decide(
    record: Record, found: Record | None, failure: StoreFailure, has_happened: Callable[[Record], bool]
) -> None:
    reason = not_mine(found, record.ownership)
    if found is not None and reason in (None, Refusal.COMPLETED) and has_happened(found):
        return  # By this very owner: the commit happened, only its answer was lost.
    if reason is None:
        raise StoreUnavailable("the COMMIT was lost on its way and nothing was committed") from failure
    raise ClaimLost(record.operation, reason) from failure
