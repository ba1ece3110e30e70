"""The guarded transaction: rows and outcome in one commit, under the record's own lock."""

from dataclasses import replace
from uuid import UUID

import pytest

from nebis import ClaimLost, NotConfirmed, StoreUnavailable, WriteInDoubt
from nebis.core.answers import Kept, Locked, Refusal, Refused
from nebis.core.record import Fence, Nonce, Outcome, OutcomeKind, Record, RecordId, State
from nebis.core.verbs import Complete, Doubt
from nebis.flows.guarded import DOUBT_ENDED_INSIDE, begin_guarded, commit_guarded, leave_guarded, not_mine
from nebis.ports.asks import (
    Barrier,
    TransactionBegin,
    TransactionCommit,
    TransactionHold,
    TransactionIsSame,
    TransactionRollback,
    TransactionSettle,
)
from nebis.ports.observer import Completed, DoubtRaised
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, StoreFailure
from tests.flows.scripted import ScriptedWorld
from tests.flows.specimens import completed, owned, quick

REQUEST = quick()
RECORD = owned(REQUEST)
OUTCOME = Outcome(kind=OutcomeKind.SUCCEEDED, body=REQUEST.encode("done"))
COMPLETE = Complete(ownership=RECORD.ownership, outcome=OUTCOME, retention=REQUEST.policy.kept)
ABOUT = {"operation": "pay", "operation_id": str(RECORD.record_id)}
UNKNOWN = IndefiniteFailure("the connection broke")
REFUSED = DefiniteFailure("a deadlock")


def rollbacks(world: ScriptedWorld) -> int:
    return len(world.of(TransactionRollback))


def test_transaction_begins_by_locking_the_record() -> None:
    world = ScriptedWorld(says={TransactionHold: [RECORD]})

    world.run(begin_guarded(RECORD, REQUEST.policy))

    assert [type(ask) for ask in world.asked if isinstance(ask, TransactionBegin | TransactionHold)] == [
        TransactionBegin,
        TransactionHold,
    ]
    assert rollbacks(world) == 0


def test_lock_that_somebody_holds_for_a_moment_is_waited_for() -> None:
    world = ScriptedWorld(says={TransactionHold: [Locked(), Locked(), RECORD]})

    world.run(begin_guarded(RECORD, REQUEST.policy))

    assert rollbacks(world) == 0


@pytest.mark.parametrize(
    "says",
    [{TransactionHold: [Locked()]}, {TransactionHold: [UNKNOWN]}, {TransactionBegin: [REFUSED]}],
)
def test_transaction_that_cannot_begin_is_rolled_back_and_says_that_nothing_ran(
    says: dict[type, list[Locked | StoreFailure]],
) -> None:
    world = ScriptedWorld(says=says)

    with pytest.raises(StoreUnavailable):
        world.run(begin_guarded(RECORD, REQUEST.policy))

    assert rollbacks(world) == 1


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, Refusal.ABSENT),
        (replace(RECORD, record_id=RecordId(UUID(int=8))), Refusal.OTHER_LIFE),
        (replace(RECORD, fence=Fence(2)), Refusal.FENCED),
        (replace(RECORD, nonce=Nonce(b"o" * 16)), Refusal.FENCED),
        (replace(RECORD, state=State.IN_DOUBT), Refusal.IN_DOUBT),
        (completed(RECORD, OUTCOME.body), Refusal.COMPLETED),
    ],
)
def test_transaction_of_an_attempt_that_lost_its_record_never_begins(found: Record | None, reason: Refusal) -> None:
    """F048: a zombie learns it here, before its first row."""
    world = ScriptedWorld(says={TransactionHold: [found]})

    with pytest.raises(ClaimLost) as raised:
        world.run(begin_guarded(RECORD, REQUEST.policy))

    assert raised.value.reason == reason
    assert rollbacks(world) == 1


def test_own_record_is_recognised() -> None:
    assert not_mine(RECORD, RECORD.ownership) is None


def test_outcome_is_written_inside_and_told_after_the_commit() -> None:
    world = ScriptedWorld(Kept())

    world.run(commit_guarded(RECORD, REQUEST.policy, OUTCOME))

    assert world.verbs == [COMPLETE]
    assert len(world.of(TransactionCommit)) == 1
    assert world.told == [Completed(**ABOUT, kind=OutcomeKind.SUCCEEDED)]
    assert rollbacks(world) == 0


def test_transaction_that_somebody_ended_inside_is_in_doubt() -> None:
    world = ScriptedWorld(Kept(), says={TransactionSettle: [None]})

    with pytest.raises(WriteInDoubt):
        world.run(commit_guarded(RECORD, REQUEST.policy, OUTCOME))

    assert world.verbs == [Doubt(ownership=RECORD.ownership, reason=DOUBT_ENDED_INSIDE)]
    assert world.told == [DoubtRaised(**ABOUT, reason=DOUBT_ENDED_INSIDE)]
    assert not world.of(TransactionCommit)


def test_transaction_that_failed_before_its_commit_left_nothing() -> None:
    world = ScriptedWorld(says={TransactionSettle: [REFUSED]})

    with pytest.raises(StoreUnavailable, match="rolled back"):
        world.run(commit_guarded(RECORD, REQUEST.policy, OUTCOME))

    assert rollbacks(world) == 1
    assert not world.of(TransactionCommit)


def test_block_that_raised_after_somebody_ended_the_transaction_is_in_doubt() -> None:
    world = ScriptedWorld(Kept(), says={TransactionIsSame: [False]})

    with pytest.raises(WriteInDoubt):
        world.run(leave_guarded(RECORD, REQUEST.policy))

    assert world.verbs == [Doubt(ownership=RECORD.ownership, reason=DOUBT_ENDED_INSIDE)]
    assert rollbacks(world) == 1


@pytest.mark.parametrize("line", [True, REFUSED])
def test_block_that_raised_is_rolled_back(line: bool | DefiniteFailure) -> None:
    world = ScriptedWorld(says={TransactionIsSame: [line]})

    world.run(leave_guarded(RECORD, REQUEST.policy))

    assert world.verbs == []
    assert rollbacks(world) == 1


def test_doubt_about_a_record_that_was_taken_over_is_not_announced() -> None:
    world = ScriptedWorld(Refused(reason=Refusal.FENCED, found=RECORD), says={TransactionSettle: [None]})

    with pytest.raises(WriteInDoubt):
        world.run(commit_guarded(RECORD, REQUEST.policy, OUTCOME))

    assert world.told == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(Refused(reason=Refusal.COMPLETED, found=RECORD), Refusal.COMPLETED), (Locked(), Refusal.FENCED)],
)
def test_outcome_that_is_refused_takes_the_rows_with_it(answer: Refused | Locked, reason: Refusal) -> None:
    world = ScriptedWorld(answer)

    with pytest.raises(ClaimLost) as raised:
        world.run(commit_guarded(RECORD, REQUEST.policy, OUTCOME))

    assert raised.value.reason == reason
    assert rollbacks(world) == 1
    assert not world.of(TransactionCommit)


def test_commit_that_was_refused_left_nothing() -> None:
    world = ScriptedWorld(Kept(), says={TransactionCommit: [REFUSED]})

    with pytest.raises(StoreUnavailable, match="rolled back"):
        world.run(commit_guarded(RECORD, REQUEST.policy, OUTCOME))

    assert world.told == []


def test_lost_commit_that_the_barrier_finds_done_was_done() -> None:
    """F012: decided under the lock, by nonce, never by a plain read."""
    done = completed(RECORD, OUTCOME.body)
    world = ScriptedWorld(
        Kept(), says={TransactionCommit: [UNKNOWN], Barrier: [Locked(), IndefiniteFailure("again"), done]}
    )

    world.run(commit_guarded(RECORD, REQUEST.policy, OUTCOME))

    assert len(world.of(Barrier)) == 3
    assert world.told == [Completed(**ABOUT, kind=OutcomeKind.SUCCEEDED)]


def test_lost_commit_that_the_barrier_finds_undone_was_not() -> None:
    """F013."""
    world = ScriptedWorld(Kept(), says={TransactionCommit: [UNKNOWN], Barrier: [RECORD]})

    with pytest.raises(StoreUnavailable, match="nothing was committed"):
        world.run(commit_guarded(RECORD, REQUEST.policy, OUTCOME))

    assert world.told == []


def test_lost_commit_of_an_attempt_that_was_taken_over_is_lost() -> None:
    world = ScriptedWorld(Kept(), says={TransactionCommit: [UNKNOWN], Barrier: [replace(RECORD, fence=Fence(5))]})

    with pytest.raises(ClaimLost):
        world.run(commit_guarded(RECORD, REQUEST.policy, OUTCOME))


def test_lost_commit_that_stays_unknown_is_told_as_such() -> None:
    world = ScriptedWorld(Kept(), says={TransactionCommit: [UNKNOWN], Barrier: [Locked()]})

    with pytest.raises(NotConfirmed):
        world.run(commit_guarded(RECORD, REQUEST.policy, OUTCOME))

    assert world.told == []
