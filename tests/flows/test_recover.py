"""Going on with a record whose owner is gone."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nebis.core.answers import Answer, Doubtful, GivenUp, Grant, Granted, Kept, Locked, Refusal, Refused
from nebis.core.record import State
from nebis.core.rejection import encode_rejection
from nebis.core.verbs import Complete, Intend, TakeOver, Verb
from nebis.errors import Rejected
from nebis.flows.recover import MovedOn, due_at, give_up, recover
from nebis.flows.request import Finished
from nebis.ports.asks import Attend, RunHandler
from nebis.ports.observer import AttemptStarted, Completed, DoubtRaised, GaveUp
from nebis.ports.store import DefiniteFailure, IndefiniteFailure
from tests.flows.scripted import Line, ScriptedWorld
from tests.flows.specimens import DRAWN, owned, quick
from tests.flows.test_undo import CHARGED, store, undoing

REQUEST = quick()
LAPSED = owned(REQUEST)
OWNED = replace(LAPSED, attempts=2, recoveries=1)
GRANTED = Granted(record=OWNED, how=Grant.TAKEN_OVER)


def test_lapsed_record_is_taken_over_as_it_was_seen_and_run() -> None:
    world = ScriptedWorld(GRANTED, Kept())

    assert isinstance(world.run(recover(REQUEST, LAPSED)), Finished)
    [take_over, complete] = world.verbs
    assert take_over == TakeOver(
        identity=LAPSED.identity,
        record_id=LAPSED.record_id,
        fence_seen=LAPSED.fence,
        nonce=DRAWN.nonce,
        lease_us=REQUEST.policy.lease_us,
        recoveries_limit=REQUEST.policy.recoveries_limit,
    )
    assert isinstance(complete, Complete)
    assert [ask.record for ask in world.of(RunHandler)] == [OWNED]
    assert len(world.of(Attend)) == 1
    assert [type(event) for event in world.told] == [AttemptStarted, Completed]


def test_takeover_whose_answer_was_lost_is_recognised_by_its_nonce() -> None:
    """F009, F014."""
    world = ScriptedWorld(IndefiniteFailure("no answer"), replace(GRANTED, how=Grant.OWN), Kept())

    assert isinstance(world.run(recover(REQUEST, LAPSED)), Finished)
    assert world.verbs[0] == world.verbs[1]


def test_store_that_is_not_there_ends_the_try() -> None:
    with pytest.raises(DefiniteFailure):
        ScriptedWorld(DefiniteFailure("no route to host")).run(recover(REQUEST, LAPSED))


@pytest.mark.parametrize("answer", [Refused(reason=Refusal.MOVED_ON, found=OWNED), Locked()])
def test_record_that_somebody_else_has_is_left_alone(answer: Line) -> None:
    """F059: one of many gets it, and whoever holds the row locked is at work."""
    world = ScriptedWorld(answer)

    assert world.run(recover(REQUEST, LAPSED)) == MovedOn()
    assert not world.of(RunHandler)
    assert world.told == []


def test_record_that_nobody_may_go_on_with_is_in_doubt_and_told() -> None:
    doubted = replace(LAPSED, state=State.IN_DOUBT, doubt_reason="owner-gone")
    world = ScriptedWorld(Doubtful(record=doubted))

    assert world.run(recover(REQUEST, LAPSED)) == Doubtful(record=doubted)
    assert [type(event) for event in world.told] == [DoubtRaised]


def test_record_whose_tries_are_used_up_goes_back_to_its_client() -> None:
    world = ScriptedWorld(GivenUp(record=LAPSED))

    assert world.run(recover(REQUEST, LAPSED)) == GivenUp(record=LAPSED)
    assert [type(event) for event in world.told] == [GaveUp]


def test_record_that_is_being_undone_is_undone_without_its_handler() -> None:
    undone = replace(OWNED, effects=(CHARGED,), is_dirty=True, rejection=encode_rejection(Rejected("no")))

    def answers(verb: Verb) -> Answer | Locked:
        return Granted(record=undone, how=Grant.RESUMED) if isinstance(verb, TakeOver) else store(verb)

    world = ScriptedWorld(answers)

    assert isinstance(world.run(recover(undoing(), LAPSED)), Finished)
    assert not world.of(RunHandler)
    assert [verb.name for verb in world.verbs if isinstance(verb, Intend)] == ["undo:charge"]


def test_record_that_only_a_client_could_go_on_with_is_let_go() -> None:
    world = ScriptedWorld(GivenUp(record=LAPSED))

    assert world.run(give_up(LAPSED, REQUEST.policy)) == GivenUp(record=LAPSED)
    [verb] = world.verbs
    assert isinstance(verb, TakeOver)
    assert verb.recoveries_limit == 0


def test_back_off_is_stored_with_the_record_and_bounded() -> None:
    policy = quick(backoff_first=timedelta(seconds=1), backoff_longest=timedelta(seconds=5)).policy

    waits = [
        (due_at(replace(LAPSED, recoveries=number), policy) - LAPSED.lease_until) / 1_000_000
        for number in (0, 1, 2, 3, 4, 1000)
    ]

    assert waits == [0, 1, 2, 4, 5, 5]
