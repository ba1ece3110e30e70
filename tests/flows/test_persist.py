"""Sending one verb until the store said something definite."""

import pytest

from nebis import NotConfirmed, StoreUnavailable
from nebis.core.answers import Grant, Granted, Kept, Locked, Refusal, Refused
from nebis.core.verbs import Claim, Release
from nebis.flows.persist import LOCKED_CLAIM_SECONDS, LONGEST_PAUSE_SECONDS, as_refusal, send_claim, send_owned
from nebis.ports.asks import KeepTrying, Pause
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked
from tests.flows.scripted import ScriptedWorld
from tests.flows.specimens import DRAWN, owned, request_of

UNKNOWN = IndefiniteFailure("the connection broke")
REFUSED = DefiniteFailure("no connection could be had")
REQUEST = request_of()
CLAIM: Claim = REQUEST.claim(DRAWN.record_id, DRAWN.nonce)
RECORD = owned(REQUEST)
GRANTED = Granted(record=RECORD, how=Grant.OWN)
RELEASE = Release(ownership=RECORD.ownership)


def test_claim_of_unknown_fate_is_sent_again_with_the_same_nonce() -> None:
    """F014: the store recognises its nonce, so a lone client never conflicts with itself."""
    world = ScriptedWorld(UNKNOWN, UNKNOWN, GRANTED)

    answer = world.run(send_claim(CLAIM, 10))

    assert answer == GRANTED
    assert world.verbs == [CLAIM, CLAIM, CLAIM]


def test_claim_that_definitely_failed_is_not_repeated() -> None:
    world = ScriptedWorld(REFUSED, GRANTED)

    with pytest.raises(DefiniteFailure):
        world.run(send_claim(CLAIM, 10))

    assert world.verbs == [CLAIM]


@pytest.mark.parametrize("later", [REFUSED, RowLocked("a lock timeout")])
def test_definite_failure_says_nothing_about_an_earlier_claim_of_unknown_fate(later: DefiniteFailure) -> None:
    """Given up here, the earlier claim could still land and block its own client for a lease."""
    world = ScriptedWorld(UNKNOWN, later, GRANTED)

    assert world.run(send_claim(CLAIM, 10)) == GRANTED


def test_claim_that_stays_unknown_ends_as_unknown_whatever_failed_last() -> None:
    world = ScriptedWorld(UNKNOWN, REFUSED)

    with pytest.raises(IndefiniteFailure):
        world.run(send_claim(CLAIM, 1))

    assert world.clock_seconds <= 1


def test_claim_behind_a_lock_asks_again_for_a_moment_only() -> None:
    world = ScriptedWorld(Locked())

    assert world.run(send_claim(CLAIM, 10)) == Locked()
    assert 0 < world.clock_seconds <= LOCKED_CLAIM_SECONDS


def test_claim_behind_a_lock_goes_on_once_the_lock_is_gone() -> None:
    world = ScriptedWorld(Locked(), GRANTED)

    assert world.run(send_claim(CLAIM, 10)) == GRANTED


@pytest.mark.parametrize("failure", [UNKNOWN, REFUSED])
def test_write_of_an_owner_survives_any_failure(failure: DefiniteFailure | IndefiniteFailure) -> None:
    """F015: work was done, so only the budget ends the trying."""
    world = ScriptedWorld(failure, failure, failure, Kept(is_repeated=True))

    assert world.run(send_owned(RELEASE, 10)) == Kept(is_repeated=True)
    assert world.verbs == [RELEASE] * 4
    assert not world.of(KeepTrying)


@pytest.mark.parametrize("line", [UNKNOWN, REFUSED, Locked()])
def test_write_whose_budget_is_spent_is_left_to_the_process(line: DefiniteFailure | IndefiniteFailure | Locked) -> None:
    """I11: nobody is told anything before it landed; the process goes on sending it."""
    world = ScriptedWorld(line)

    with pytest.raises(NotConfirmed):
        world.run(send_owned(RELEASE, 3))

    assert world.of(KeepTrying) == [KeepTrying(RELEASE)]
    assert world.clock_seconds <= 3


def test_refusal_is_an_answer_and_not_repeated() -> None:
    refused = Refused(reason=Refusal.FENCED, found=RECORD)
    world = ScriptedWorld(refused)

    assert world.run(send_owned(RELEASE, 10)) == refused
    assert world.verbs == [RELEASE]


def test_pauses_grow_up_to_a_bound() -> None:
    world = ScriptedWorld(UNKNOWN)

    with pytest.raises(NotConfirmed):
        world.run(send_owned(RELEASE, 5))

    pauses = [ask.seconds for ask in world.of(Pause)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_SECONDS


def test_failed_claim_tells_its_caller_whether_anything_can_have_happened() -> None:
    assert isinstance(as_refusal(UNKNOWN), NotConfirmed)
    assert isinstance(as_refusal(REFUSED), StoreUnavailable)
