"""Running an operation, or answering without running."""

from dataclasses import replace

import pytest

from nebis import InFlight
from nebis.core.answers import Answer, Doubtful, Gone, Grant, Granted, Kept, Locked, Replay, Reused, Running, Unreadable
from nebis.core.record import Outcome, OutcomeKind, State
from nebis.core.verbs import Claim, Complete
from nebis.flows.execute import execute
from nebis.flows.request import Finished, finished
from nebis.ports.asks import Attend, MakeClaim, RunHandler
from nebis.ports.observer import (
    AttemptStarted,
    Completed,
    Event,
    FoundExpired,
    FoundInDoubt,
    FoundInFlight,
    FoundKeyReused,
    FoundUnreadable,
    Replayed,
)
from tests.flows.scripted import ScriptedWorld
from tests.flows.specimens import completed, owned, request_of

REQUEST = request_of()
RECORD = owned(REQUEST)
DONE = completed(RECORD, REQUEST.encode("stored"))
ABOUT = {"operation": "pay", "operation_id": str(RECORD.record_id)}


def test_granted_claim_runs_the_handler_and_stores_before_it_answers() -> None:
    world = ScriptedWorld(Granted(record=RECORD, how=Grant.NEW), Kept())

    ending = world.run(execute(REQUEST))

    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=REQUEST.encode("done"))
    assert ending == Finished(record_id=RECORD.record_id, outcome=outcome, is_replay=False)
    assert [type(verb) for verb in world.verbs] == [Claim, Complete]
    assert world.told == [
        AttemptStarted(**ABOUT, how=Grant.NEW, attempt=1, fence=1),
        Completed(**ABOUT, kind=OutcomeKind.SUCCEEDED),
    ]


def test_claim_is_renewed_before_the_handler_has_its_turn() -> None:
    world = ScriptedWorld(Granted(record=RECORD, how=Grant.NEW), Kept())

    world.run(execute(REQUEST))

    kinds = [type(ask) for ask in world.asked]
    assert kinds.count(MakeClaim) == 1
    assert kinds.index(Attend) < kinds.index(RunHandler)
    assert [(ask.answer.record, ask.lease_us, ask.renewal_seconds) for ask in world.of(Attend)] == [
        (RECORD, REQUEST.policy.lease_us, 10.0)
    ]


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        (Running(record=RECORD, lease_left_us=5), FoundInFlight(**ABOUT)),
        (Reused(record=RECORD), FoundKeyReused(**ABOUT)),
        (Doubtful(record=replace(RECORD, doubt_reason="owner-gone")), FoundInDoubt(**ABOUT, reason="owner-gone")),
        (Doubtful(record=RECORD), FoundInDoubt(**ABOUT, reason="")),
        (Gone(record=RECORD), FoundExpired(**ABOUT)),
        (
            Unreadable(record=replace(RECORD, fingerprint_version=9)),
            FoundUnreadable(**ABOUT, fingerprint_version=9),
        ),
    ],
)
def test_refusal_runs_nothing_and_is_told(answer: Answer, event: Event) -> None:
    world = ScriptedWorld(answer)

    assert world.run(execute(REQUEST)) == answer
    assert world.told == [event]
    assert not world.of(RunHandler)


def test_replay_answers_with_the_stored_bytes() -> None:
    world = ScriptedWorld(Replay(record=DONE))

    ending = world.run(execute(REQUEST))

    assert ending == finished(DONE, is_replay=True)
    assert world.told == [Replayed(**ABOUT, kind=OutcomeKind.SUCCEEDED)]
    assert not world.of(RunHandler)


def test_key_behind_an_uncommitted_transaction_runs_nothing() -> None:
    world = ScriptedWorld(Locked(), found=None)

    with pytest.raises(InFlight):
        world.run(execute(REQUEST))

    assert not world.of(RunHandler)


def test_completed_record_without_its_outcome_is_never_answered() -> None:
    """I3: a store that loses the outcome is caught before anybody is told anything."""
    broken = replace(DONE, outcome_kind=None, outcome=None)
    assert broken.state is State.COMPLETED

    with pytest.raises(AssertionError):
        ScriptedWorld(Replay(record=broken)).run(execute(REQUEST))
