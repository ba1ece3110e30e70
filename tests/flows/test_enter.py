"""Claiming, and waiting for a twin."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nebis import InFlight, NotConfirmed, StoreUnavailable, Wait
from nebis.core.answers import Grant, Granted, Locked, Replay, Reused, Running
from nebis.core.verbs import Claim
from nebis.flow import Ask
from nebis.flows.enter import LONGEST_POLL_SECONDS, enter
from nebis.ports.asks import AwaitChange, Find
from nebis.ports.store import DefiniteFailure, IndefiniteFailure
from tests.flows.scripted import ScriptedWorld
from tests.flows.specimens import completed, declaration, owned, quick, request_of

WAITING = request_of(declaration(in_flight=Wait(longest=timedelta(seconds=2)), waiters_limit=5))
RECORD = owned(WAITING)
RUNNING = Running(record=RECORD, lease_left_us=1)
GRANTED = Granted(record=RECORD, how=Grant.NEW)


def test_rejecting_policy_does_not_wait() -> None:
    world = ScriptedWorld(RUNNING)

    assert world.run(enter(request_of())) == RUNNING
    assert not world.of(AwaitChange)


def test_waiter_claims_again_until_the_twin_ended() -> None:
    replay = Replay(record=completed(RECORD, b"bytes"))
    world = ScriptedWorld(RUNNING, RUNNING, RUNNING, replay)

    assert world.run(enter(WAITING)) == replay
    claims = world.verbs
    assert len(claims) == 4
    assert all(isinstance(claim, Claim) and claim.will_wait for claim in claims)
    assert len(set(map(repr, claims))) == 1


def test_waiter_takes_over_when_the_twin_is_gone() -> None:
    world = ScriptedWorld(RUNNING, GRANTED)

    assert world.run(enter(WAITING)) == GRANTED


def test_waiter_polls_even_if_every_wake_up_is_lost_and_gives_up_in_time() -> None:
    """F026: this world never wakes anybody; each wait ends by its own bound."""
    world = ScriptedWorld(RUNNING)

    assert world.run(enter(WAITING)) == RUNNING
    assert world.clock_seconds == pytest.approx(2.0)
    waits = [ask.seconds for ask in world.of(AwaitChange)]
    assert max(waits) <= LONGEST_POLL_SECONDS
    assert len(world.verbs) == len(waits) + 1


def test_waiter_above_the_limit_is_told_to_come_back() -> None:
    """SEC36: a stampede must not hold every thread of a server."""
    world = ScriptedWorld(RUNNING, admits=False)

    assert world.run(enter(WAITING)) == RUNNING
    [ask] = world.of(AwaitChange)
    assert ask.waiters_limit == 5


def test_locked_record_is_in_flight() -> None:
    world = ScriptedWorld(Locked(), found=RECORD)

    assert world.run(enter(request_of())) == Running(record=RECORD, lease_left_us=0)


@pytest.mark.parametrize("is_same", [True, False])
def test_locked_record_that_is_completed_is_replayed_or_refused_all_the_same(is_same: bool) -> None:
    """Found by simulation (seed 128199): whoever still holds its row can no longer change the outcome."""
    record = completed(RECORD, b"bytes")
    found = record if is_same else replace(record, fingerprint=b"another command")
    world = ScriptedWorld(Locked(), found=found)

    assert world.run(enter(request_of())) == (Replay(record=found) if is_same else Reused(record=found))


def test_locked_key_without_a_record_to_show_is_in_flight_too() -> None:
    """A claim that is not committed yet, or a tombstone that is just being removed (F068)."""
    with pytest.raises(InFlight) as told:
        ScriptedWorld(Locked(), found=None).run(enter(request_of()))

    assert told.value.operation_id is None
    assert told.value.retry_after_seconds > 0


def test_locked_key_whose_holder_cannot_be_read_is_in_flight_too() -> None:
    """Found by simulation (seed 730): the store's own failure must not reach the caller as it is."""

    class Unreadable(ScriptedWorld):
        def perform(self, ask: Ask[Any]) -> Any:
            if isinstance(ask, Find):
                raise IndefiniteFailure("no answer")
            return super().perform(ask)

    with pytest.raises(InFlight):
        Unreadable(Locked()).run(enter(request_of()))


def test_waiter_waits_behind_a_lock_too() -> None:
    world = ScriptedWorld(Locked(), found=None)

    with pytest.raises(InFlight):
        world.run(enter(WAITING))
    assert world.of(AwaitChange)


@pytest.mark.parametrize(
    ("failure", "told"),
    [(IndefiniteFailure("no answer"), NotConfirmed), (DefiniteFailure("no connection"), StoreUnavailable)],
)
def test_failed_claim_is_told_as_what_to_do_next(failure: Exception, told: type[Exception]) -> None:
    world = ScriptedWorld(failure)  # type: ignore[arg-type]  # Both are store failures.

    with pytest.raises(told) as raised:
        world.run(enter(quick()))

    assert raised.value.__cause__ is failure


def test_grant_to_somebody_else_is_never_accepted() -> None:
    """I6: a store that hands a claim to the wrong caller is stopped here."""
    stranger = Granted(record=owned(WAITING, nonce=b"s" * 16), how=Grant.NEW)

    with pytest.raises(AssertionError):
        ScriptedWorld(stranger).run(enter(request_of()))
