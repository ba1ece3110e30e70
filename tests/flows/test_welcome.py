"""What is asked of a request before its key is claimed."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nebis import DeadlinePassed, Limit, Quota, StoreUnavailable, TokenExpired, TooFast, Wait, hours
from nebis.core.answers import Grant, Granted, Kept, Refusal, Refused, Replay, Running
from nebis.core.record import Effect, EffectClass, State
from nebis.core.verbs import Claim, Complete, ExpiredPolicy, Release, Suspend
from nebis.deadline import Deadline
from nebis.flows.effect import run_effect
from nebis.flows.execute import execute
from nebis.flows.ledger import Ledger
from nebis.flows.plan import EffectPlan
from nebis.flows.request import Failed, Finished
from nebis.flows.settle import settle
from nebis.flows.single import execute_single
from nebis.flows.step import run_step
from nebis.ports.asks import AwaitChange, CallEffect, Elapsed, Find, Raised, RunHandler, Settled
from nebis.ports.observer import FoundTooFast
from nebis.ports.store import DefiniteFailure, IndefiniteFailure
from nebis.ports.velocity import ChargeVelocity
from tests.flows.scripted import ScriptedWorld
from tests.flows.specimens import completed, declaration, owned, quick, request_of

PASSED, AHEAD = Deadline(0.0), Deadline(1_000.0)
REQUEST = request_of()
RECORD = owned(REQUEST)
DONE = completed(RECORD, REQUEST.encode("stored"))
GRANTED = Granted(record=RECORD, how=Grant.NEW)
LIMITED = request_of(declaration(velocity=[Limit(5, per=hours(1))], quota=Quota(in_flight=3, stored_bytes=10_000)))


def test_request_without_any_of_it_asks_for_nothing_more() -> None:
    world = ScriptedWorld(GRANTED, Kept())

    world.run(execute(REQUEST))

    assert not any(isinstance(ask, Elapsed | Find | ChargeVelocity) for ask in world.asked)


@pytest.mark.parametrize("run", [execute, execute_single])
def test_after_the_deadline_nothing_is_claimed_c7(run: Any) -> None:
    world = ScriptedWorld()

    with pytest.raises(DeadlinePassed):
        world.run(run(replace(REQUEST, deadline=PASSED)))

    assert world.verbs == []


def test_before_the_deadline_the_handler_runs() -> None:
    world = ScriptedWorld(GRANTED, Kept())

    assert isinstance(world.run(execute(replace(REQUEST, deadline=AHEAD))), Finished)


@pytest.mark.parametrize(("left_seconds", "claims"), [(0.12, 2), (100.0, 10)])
def test_deadline_bounds_the_wait_for_a_twin_and_no_claim_follows_it(left_seconds: float, claims: int) -> None:
    request = request_of(declaration(in_flight=Wait(longest=timedelta(seconds=3))))
    running = Running(record=RECORD, lease_left_us=1)
    world = ScriptedWorld(running)

    ending = world.run(execute(replace(request, deadline=Deadline(left_seconds))))

    assert ending == running
    assert len(world.verbs) == claims
    assert sum(ask.seconds for ask in world.of(AwaitChange)) <= min(left_seconds, 3.0) + 1e-9


@pytest.mark.parametrize("state", [None, State.AVAILABLE, State.EXPIRED])
def test_expired_token_begins_nothing(state: State | None) -> None:
    world = ScriptedWorld(found=None if state is None else replace(RECORD, state=state))

    with pytest.raises(TokenExpired):
        world.run(execute(replace(REQUEST, may_begin=False)))

    assert world.verbs == []


def test_expired_token_is_good_for_the_answer_that_it_began_in_time() -> None:
    world = ScriptedWorld(Replay(record=DONE), found=DONE)

    ending = world.run(execute(replace(REQUEST, may_begin=False)))

    assert isinstance(ending, Finished)
    assert ending.is_replay
    [claim] = world.verbs
    assert isinstance(claim, Claim)
    # Even if the record ages just now, the token begins no other life.
    assert claim.when_expired is ExpiredPolicy.REFUSE


@pytest.mark.parametrize("failure", [DefiniteFailure("gone"), IndefiniteFailure("lost")])
def test_store_that_cannot_be_asked_lets_nothing_pass(failure: Exception) -> None:
    for request in (replace(REQUEST, may_begin=False), LIMITED):
        world = ScriptedWorld(says={Find: [failure], ChargeVelocity: [failure]})

        with pytest.raises(StoreUnavailable):
            world.run(execute(request))

        assert world.verbs == []


@pytest.mark.parametrize("run", [execute, execute_single])
def test_above_a_limit_nothing_is_claimed(run: Any) -> None:
    world = ScriptedWorld(says={ChargeVelocity: [2_500_000]})

    with pytest.raises(TooFast) as refused:
        world.run(run(LIMITED))

    assert refused.value.retry_after_seconds == 2.5
    assert world.verbs == []
    [event] = world.told
    assert isinstance(event, FoundTooFast)
    assert event.operation == RECORD.operation


def test_who_waits_for_a_seat_is_not_told_to_wait_for_longer_than_a_lease() -> None:
    limited = request_of(declaration(velocity=[Limit(5, per=hours(1))]))
    told = []
    for request in (limited, LIMITED):
        with pytest.raises(TooFast) as refused:
            ScriptedWorld(says={ChargeVelocity: [300_000_000]}).run(execute(request))
        told.append(refused.value.retry_after_seconds)

    assert told == [300.0, 30.0]


def test_fresh_key_is_counted_before_and_what_it_stored_after() -> None:
    world = ScriptedWorld(GRANTED, Kept())

    world.run(execute(LIMITED))

    kinds = [type(ask) for ask in world.asked if isinstance(ask, ChargeVelocity | RunHandler)]
    first, stored, left = world.of(ChargeVelocity)
    assert kinds == [ChargeVelocity, RunHandler, ChargeVelocity, ChargeVelocity]
    assert (first.identity, stored.identity) == (RECORD.identity, None)
    assert [charge.weight for charge in first.charges] == [1, 1, 512]
    assert [charge.weight for charge in stored.charges] == [len(LIMITED.encode("done"))]
    assert [charge.weight for charge in left.charges] == [-1]


def test_seat_is_given_back_by_the_first_attempt_only() -> None:
    again = replace(RECORD, attempts=2)
    world = ScriptedWorld(Granted(record=again, how=Grant.AVAILABLE), Kept())

    world.run(execute(LIMITED))

    assert len(world.of(ChargeVelocity)) == 2


def test_count_that_is_lost_afterwards_changes_nothing() -> None:
    world = ScriptedWorld(GRANTED, Kept(), says={ChargeVelocity: [None, IndefiniteFailure("lost")]})

    assert isinstance(world.run(execute(LIMITED)), Finished)


def test_outcome_of_a_handlers_own_transaction_is_weighed_too() -> None:
    outcome = replace(_outcome(), body=b"12345")

    world = ScriptedWorld()
    world.run(settle(LIMITED, RECORD, Settled(outcome)))

    [stored] = world.of(ChargeVelocity)
    assert [charge.weight for charge in stored.charges] == [5]


def _outcome() -> Any:
    world = ScriptedWorld(GRANTED, Kept())
    world.run(execute(REQUEST))
    return next(verb.outcome for verb in world.verbs if isinstance(verb, Complete))


def plan(**changes: Any) -> EffectPlan:
    made = EffectPlan(
        name="charge",
        effect_class=EffectClass.STICKY,
        derived_key="key",
        digest=bytes(32),
        recall_us=None,
        call=lambda _: b"charged",
        encode=lambda value: value,
        encode_rejection=lambda error: str(error).encode(),
        decode_rejection=lambda _: AssertionError(),  # type: ignore[arg-type, return-value]
    )
    return replace(made, **changes)


@pytest.mark.parametrize("run", [run_effect, run_step])
def test_after_the_deadline_no_effect_and_no_step_begins_c7(run: Any) -> None:
    world, ledger = ScriptedWorld(), Ledger(RECORD)

    with pytest.raises(DeadlinePassed) as refused:
        world.run(run(RECORD, REQUEST.policy, ledger, plan(deadline=PASSED)))

    assert world.verbs == []
    assert world.of(CallEffect) == []
    ending = world.run(settle(quick(), RECORD, ledger.of(Raised(refused.value))))
    assert isinstance(ending, Failed)
    assert [type(verb) for verb in world.verbs] == [Release]


def test_attempt_that_did_something_before_its_deadline_goes_on_later() -> None:
    charged = Effect(
        name="charge",
        effect_class=EffectClass.STICKY,
        derived_key="key",
        digest=bytes(32),
        is_outstanding=False,
        recall_until=None,
    )
    record = replace(RECORD, is_dirty=True, effects=(charged,))
    world = ScriptedWorld(Refused(reason=Refusal.DIRTY, found=record), Kept())

    ending = world.run(settle(quick(), record, Raised(DeadlinePassed("pay"))))

    assert isinstance(ending, Failed)
    assert isinstance(ending.error, DeadlinePassed)
    assert [type(verb) for verb in world.verbs] == [Release, Suspend]
