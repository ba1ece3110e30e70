"""The single transaction: claim, rows and outcome in one commit."""

from dataclasses import replace

import pytest

from nebis import NotConfirmed, Rejected, Retryable, StoreUnavailable, WriteInDoubt
from nebis.core.answers import Grant, Granted, Kept, Locked, Refusal, Refused, Replay, Reused, Running
from nebis.core.record import Outcome, OutcomeKind, Record
from nebis.core.verbs import Claim, Complete, Doubt, Withdraw
from nebis.flows.request import Failed, Finished, finished
from nebis.flows.single import execute_single
from nebis.ports.asks import RunHandler, Settled, TransactionBegin, TransactionCommit, TransactionIsSame
from nebis.ports.observer import AttemptStarted, Completed, Event, FoundInFlight, Released, Replayed, Withdrawn
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked
from tests.flows.scripted import Line, ScriptedWorld
from tests.flows.specimens import Unwanted, classified, completed, owned, quick, rejection

REQUEST = quick()
RECORD = owned(REQUEST)
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


@pytest.mark.parametrize(
    ("inside", "outside", "event"),
    [
        (Running(record=RECORD, lease_left_us=1), Running(record=RECORD, lease_left_us=1), FoundInFlight),
        (RowLocked("a twin's insert"), Replay(record=completed(RECORD, DONE.body)), Replayed),
    ],
)
def test_key_that_is_not_free_is_answered_as_anywhere(
    inside: Line, outside: Running | Replay, event: type[Event]
) -> None:
    world = ScriptedWorld(inside, outside)

    ending = world.run(execute_single(REQUEST))

    assert isinstance(ending, Running | Finished)
    assert events(world) == [event]
    assert not world.of(RunHandler)


def test_key_that_became_free_meanwhile_is_given_back_unused() -> None:
    world = ScriptedWorld(Locked(), GRANTED, Kept())

    with pytest.raises(StoreUnavailable, match="just rolled back"):
        world.run(execute_single(REQUEST))

    assert kinds(world) == [Claim, Claim, Withdraw]
    assert not world.of(RunHandler)


def test_key_that_stays_locked_runs_nothing() -> None:
    world = ScriptedWorld(Locked())

    with pytest.raises(StoreUnavailable, match="holds this key"):
        world.run(execute_single(REQUEST))

    assert not world.of(RunHandler)


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
    world = ScriptedWorld(GRANTED, Kept(), says={TransactionIsSame: [False]})

    with pytest.raises(WriteInDoubt):
        world.run(execute_single(REQUEST))

    assert kinds(world) == [Claim, Doubt]


def test_commit_that_was_refused_left_nothing() -> None:
    world = ScriptedWorld(GRANTED, Kept(), says={TransactionCommit: [REFUSED]})

    with pytest.raises(StoreUnavailable, match="rolled back"):
        world.run(execute_single(REQUEST))


def lost_commit(*later: Line) -> ScriptedWorld:
    return ScriptedWorld(GRANTED, Kept(), *later, says={TransactionCommit: [UNKNOWN]})


def test_lost_commit_that_the_same_claim_finds_done_was_done() -> None:
    """F012: the unique index makes the claim wait for the old transaction, so its answer is proof."""
    done = completed(RECORD, DONE.body)

    assert lost_commit(Replay(record=done)).run(execute_single(REQUEST)) == finished(done, is_replay=False)


def test_lost_commit_that_the_same_claim_finds_undone_is_given_back() -> None:
    """F013."""
    world = lost_commit(GRANTED, Kept())

    with pytest.raises(StoreUnavailable, match="nothing was committed"):
        world.run(execute_single(REQUEST))

    assert kinds(world) == [Claim, Complete, Claim, Withdraw]


def test_lost_commit_overtaken_by_another_command_is_answered_as_such() -> None:
    reused = Reused(record=RECORD)

    assert lost_commit(reused).run(execute_single(REQUEST)) == reused


@pytest.mark.parametrize("line", [Locked(), UNKNOWN])
def test_lost_commit_that_stays_unknown_is_told_as_such(line: Line) -> None:
    with pytest.raises(NotConfirmed):
        lost_commit(line).run(execute_single(REQUEST))


def test_claim_inside_can_never_be_fenced() -> None:
    """I2: nobody else has seen it, so a store that says otherwise is stopped."""
    world = ScriptedWorld(GRANTED, Refused(reason=Refusal.FENCED, found=RECORD))

    with pytest.raises(AssertionError):
        world.run(execute_single(REQUEST))
