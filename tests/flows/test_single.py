"""The single transaction: claim, rows and outcome in one commit."""

from dataclasses import replace

import pytest

from nebis import InDoubt, InFlight, NotConfirmed, Rejected, Retryable, StoreUnavailable, Wait, WriteInDoubt
from nebis.core.answers import Grant, Granted, Kept, Locked, Refusal, Refused, Replay, Running
from nebis.core.record import Nonce, Outcome, OutcomeKind, Record
from nebis.core.verbs import Claim, Complete, Doubt
from nebis.flows.request import Failed, Finished, finished
from nebis.flows.single import execute_single
from nebis.ports.asks import (
    Barrier,
    RunHandler,
    Settled,
    TransactionBegin,
    TransactionCommit,
    TransactionIsSame,
    TransactionRollback,
    TransactionSettle,
)
from nebis.ports.observer import (
    AttemptStarted,
    Completed,
    DoubtRaised,
    Event,
    FoundInFlight,
    Released,
    Replayed,
    Withdrawn,
)
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked
from tests.flows.scripted import Line, ScriptedWorld
from tests.flows.specimens import Unwanted, classified, completed, owned, quick, rejection

REQUEST = quick()
RECORD = owned(REQUEST)
TWINS = replace(RECORD, nonce=Nonce(b"o" * 16))
GRANTED = Granted(record=RECORD, how=Grant.NEW)
ABOUT = {"operation": "pay", "operation_id": str(RECORD.record_id)}
DONE = Outcome(kind=OutcomeKind.SUCCEEDED, body=REQUEST.encode("done"))
UNKNOWN = IndefiniteFailure("the connection broke")
REFUSED = DefiniteFailure("no connection")


def kinds(world: ScriptedWorld) -> list[type]:
    return [type(verb) for verb in world.verbs]


def events(world: ScriptedWorld) -> list[type[Event]]:
    return [type(event) for event in world.told]


@pytest.mark.parametrize("result", ["done", Settled(DONE)])
def test_claim_and_outcome_are_committed_at_once(result: object) -> None:
    world = ScriptedWorld(GRANTED, Kept(), handler=lambda _: result)

    ending = world.run(execute_single(REQUEST))

    assert ending == Finished(record_id=RECORD.record_id, outcome=DONE, is_replay=False)
    assert kinds(world) == [Claim, Complete]
    assert len(world.of(TransactionCommit)) == 1
    assert events(world) == [AttemptStarted, Completed]


@pytest.mark.parametrize("failure", [UNKNOWN, REFUSED])
def test_transaction_that_cannot_begin_ran_nothing(failure: IndefiniteFailure | DefiniteFailure) -> None:
    world = ScriptedWorld(GRANTED, says={TransactionBegin: [failure]})

    with pytest.raises(StoreUnavailable):
        world.run(execute_single(REQUEST))

    assert not world.of(RunHandler)


@pytest.mark.parametrize("failure", [UNKNOWN, REFUSED])
def test_claim_that_fails_ran_nothing(failure: IndefiniteFailure | DefiniteFailure) -> None:
    world = ScriptedWorld(failure)

    with pytest.raises(StoreUnavailable):
        world.run(execute_single(REQUEST))

    assert not world.of(RunHandler)
    assert len(world.of(TransactionRollback)) == 1


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        (Running(record=RECORD, lease_left_us=1), FoundInFlight),
        (Replay(record=completed(RECORD, DONE.body)), Replayed),
    ],
)
def test_key_that_is_not_free_is_answered_as_anywhere_and_leaves_no_transaction(
    answer: Running | Replay, event: type[Event]
) -> None:
    world = ScriptedWorld(answer)

    ending = world.run(execute_single(REQUEST))

    assert isinstance(ending, Running | Finished)
    assert events(world) == [event]
    assert not world.of(RunHandler)
    assert len(world.of(TransactionRollback)) == 1


@pytest.mark.parametrize("line", [Locked(), RowLocked("a twin's insert")])
def test_key_in_a_twins_open_transaction_is_in_flight(line: Line) -> None:
    """F045: nobody waits at the index, and nothing is known of the twin yet."""
    world = ScriptedWorld(line)

    with pytest.raises(InFlight) as told:
        world.run(execute_single(REQUEST))

    assert told.value.operation_id is None
    assert not world.of(RunHandler)
    assert len(world.of(TransactionRollback)) == 1


def test_twin_that_may_wait_is_answered_once_the_transaction_ended() -> None:
    world = ScriptedWorld(Locked(), Locked(), Replay(record=completed(RECORD, DONE.body)))

    ending = world.run(execute_single(quick(in_flight=Wait())))

    assert isinstance(ending, Finished)
    assert ending.is_replay
    assert len(world.of(TransactionBegin)) == len(world.of(TransactionRollback)) == 3


def test_store_that_is_held_as_a_whole_is_busy_not_in_flight() -> None:
    """F042."""
    world = ScriptedWorld(says={TransactionBegin: [RowLocked("the file")]})

    with pytest.raises(StoreUnavailable):
        world.run(execute_single(REQUEST))


def raising(error: Exception) -> ScriptedWorld:
    def handler(_: Record) -> object:
        raise error

    return ScriptedWorld(GRANTED, Kept(), handler=handler)


@pytest.mark.parametrize(("error", "event"), [(Retryable("busy"), Released), (Unwanted(), Withdrawn)])
def test_failed_handler_leaves_nothing_behind(error: Exception, event: type[Event]) -> None:
    world = raising(error)
    request = replace(REQUEST, classify=classified) if isinstance(error, Unwanted) else REQUEST

    assert world.run(execute_single(request)) == Failed(record=RECORD, error=error)
    assert kinds(world) == [Claim]
    assert events(world) == [AttemptStarted, event]


def doubting(*script: Line) -> tuple[ScriptedWorld, InDoubt]:
    error = InDoubt("bank-unreachable")

    def handler(_: Record) -> object:
        raise error

    return ScriptedWorld(*script, handler=handler), error


def test_handler_that_says_that_nobody_can_tell_puts_the_key_in_doubt() -> None:
    """Its rows are undone, but whatever it speaks of was not in the transaction; nobody may run it again."""
    world, error = doubting(GRANTED, GRANTED, Kept())

    ending = world.run(execute_single(REQUEST))

    assert ending == Failed(record=RECORD, error=error, doubt_reason="bank-unreachable")
    assert world.verbs[-1] == Doubt(ownership=RECORD.ownership, reason="bank-unreachable")
    assert len(world.of(TransactionRollback)) == 1
    assert events(world) == [AttemptStarted, DoubtRaised]


def test_handlers_doubt_that_meets_a_faster_twin_is_told_to_its_caller() -> None:
    world, error = doubting(GRANTED, Running(record=RECORD, lease_left_us=1))

    assert world.run(execute_single(REQUEST)) == Failed(record=RECORD, error=error)
    assert kinds(world) == [Claim, Claim]


def test_handlers_doubt_that_cannot_be_stored_is_not_confirmed() -> None:
    world, _ = doubting(GRANTED, REFUSED)

    with pytest.raises(NotConfirmed):
        world.run(execute_single(REQUEST))


def rejecting(*script: Line) -> ScriptedWorld:
    def handler(_: Record) -> object:
        raise Rejected("declined")

    return ScriptedWorld(*script, handler=handler)


def test_rejection_is_stored_without_the_rows() -> None:
    world = rejecting(GRANTED, GRANTED, Kept())

    ending = world.run(execute_single(REQUEST))

    outcome = Outcome(kind=OutcomeKind.REJECTED, body=rejection("declined"))
    assert ending == Finished(record_id=RECORD.record_id, outcome=outcome, is_replay=False)
    assert kinds(world) == [Claim, Claim, Complete]


def test_rejection_that_meets_a_faster_twin_answers_with_the_twins_outcome() -> None:
    replay = Replay(record=completed(RECORD, DONE.body))
    world = rejecting(GRANTED, replay, replay)

    ending = world.run(execute_single(REQUEST))

    assert isinstance(ending, Finished)
    assert ending.outcome == DONE


def test_transaction_that_somebody_ended_inside_is_in_doubt() -> None:
    """The claim is repeated: it is there if that somebody committed, and comes anew if it was rolled back."""
    world = ScriptedWorld(GRANTED, GRANTED, Kept(), says={TransactionSettle: [None]})

    with pytest.raises(WriteInDoubt):
        world.run(execute_single(REQUEST))

    assert kinds(world) == [Claim, Claim, Doubt]
    assert events(world) == [AttemptStarted, DoubtRaised]
    assert not world.of(TransactionCommit)


def test_handler_that_ended_the_transaction_inside_and_raised_is_in_doubt_too() -> None:
    def handler(_: Record) -> object:
        raise Retryable("busy")

    world = ScriptedWorld(GRANTED, GRANTED, Kept(), handler=handler, says={TransactionIsSame: [False]})

    with pytest.raises(WriteInDoubt):
        world.run(execute_single(REQUEST))

    assert kinds(world) == [Claim, Claim, Doubt]


def test_handler_that_raised_in_a_transaction_that_cannot_even_be_asked_left_nothing() -> None:
    def handler(_: Record) -> object:
        raise Retryable("busy")

    world = ScriptedWorld(GRANTED, handler=handler, says={TransactionIsSame: [REFUSED]})

    assert isinstance(world.run(execute_single(REQUEST)), Failed)


@pytest.mark.parametrize(
    "script",
    [
        (GRANTED, Running(record=RECORD, lease_left_us=1)),
        (GRANTED, GRANTED, Refused(reason=Refusal.FENCED, found=RECORD)),
    ],
)
def test_doubt_that_meets_a_faster_twin_is_told_to_the_caller_only(script: tuple[Line, ...]) -> None:
    world = ScriptedWorld(*script, says={TransactionSettle: [None]})

    with pytest.raises(WriteInDoubt):
        world.run(execute_single(REQUEST))

    assert events(world) == [AttemptStarted]


def test_doubt_that_cannot_be_stored_is_not_confirmed() -> None:
    world = ScriptedWorld(GRANTED, REFUSED, says={TransactionSettle: [None]})

    with pytest.raises(NotConfirmed):
        world.run(execute_single(REQUEST))


def test_commit_that_was_refused_left_nothing() -> None:
    world = ScriptedWorld(GRANTED, Kept(), says={TransactionCommit: [REFUSED]})

    with pytest.raises(StoreUnavailable, match="rolled back"):
        world.run(execute_single(REQUEST))


def lost_commit(found: object) -> ScriptedWorld:
    return ScriptedWorld(GRANTED, Kept(), says={TransactionCommit: [UNKNOWN], Barrier: [found]})


def test_lost_commit_that_the_barrier_finds_done_was_done() -> None:
    """F012: the barrier waits for the old transaction, so what it finds is proof."""
    done = completed(RECORD, DONE.body)

    assert lost_commit(done).run(execute_single(REQUEST)) == finished(done, is_replay=False)


@pytest.mark.parametrize("found", [None, TWINS, completed(TWINS, DONE.body)])
def test_lost_commit_that_the_barrier_finds_undone_left_nothing(found: Record | None) -> None:
    """F013: nothing, or only what a twin made meanwhile."""
    with pytest.raises(StoreUnavailable, match="nothing was committed"):
        lost_commit(found).run(execute_single(REQUEST))


def test_lost_commit_behind_one_that_somebody_made_inside_is_in_doubt() -> None:
    """Only that one can have left this very claim without its outcome, and some of the rows with it."""
    world = ScriptedWorld(GRANTED, Kept(), GRANTED, Kept(), says={TransactionCommit: [UNKNOWN], Barrier: [RECORD]})

    with pytest.raises(WriteInDoubt):
        world.run(execute_single(REQUEST))

    assert kinds(world) == [Claim, Complete, Claim, Doubt]
    assert events(world) == [AttemptStarted, DoubtRaised]


@pytest.mark.parametrize("found", [Locked(), UNKNOWN])
def test_lost_commit_that_stays_unknown_is_told_as_such(found: Locked | IndefiniteFailure) -> None:
    with pytest.raises(NotConfirmed):
        lost_commit(found).run(execute_single(REQUEST))


def test_claim_inside_can_never_be_fenced() -> None:
    """I2: nobody else has seen it, so a store that says otherwise is stopped."""
    world = ScriptedWorld(GRANTED, Refused(reason=Refusal.FENCED, found=RECORD))

    with pytest.raises(AssertionError):
        world.run(execute_single(REQUEST))
