"""What a worker does with records whose owner is gone, and with those in doubt."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from nebis import (
    EffectTimedOut,
    InDoubt,
    InFlight,
    NotYet,
    Opaque,
    OutcomeUnknown,
    Queryable,
    Rejected,
    SuccessOnly,
    Unrecoverable,
    days,
)
from nebis.core.record import EffectVerdict, State
from nebis.ports.observer import AttemptStarted, DoubtEnded, DoubtExpired, GaveUp
from nebis.worker import Deed, Report
from tests.worker.bank import Crash, once
from tests.worker.conftest import WAYS
from tests.worker.shops import Do, Shop, new_key

PATIENCE_SECONDS = 20
ON_A_LOOP = pytest.mark.parametrize("shop", [way for way in WAYS if way.endswith("asyncio")], indirect=True)
"""A thread cannot be stopped, so only a loop can stop waiting."""
Make = Callable[..., Shop]


class GatewayDown(Exception):
    """What a client of a gateway raises for a 503."""


def come_back(shop: Shop, key: str) -> str:
    """Ask as a client does that is told when to: a renewal may have been under way when the attempt ended."""
    while True:
        try:
            return shop.pay(key)
        except InFlight as told:
            time.sleep(told.retry_after_seconds)


def until(shop: Shop, deed: Deed) -> Report:
    """Let a worker pass by until the lease is over and it did something of that kind."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        report = shop.work()
        if report.deeds[deed]:
            return report
        threading.Event().wait(0.02)
    raise AssertionError(f"no {deed} within {PATIENCE_SECONDS} s, the last pass: {report}")


def die(shop: Shop, key: str) -> None:
    with pytest.raises(Crash):
        shop.pay(key)


def test_worker_alone_finishes_what_died_after_the_charge(shop: Make) -> None:
    """F004, O5: no client ever comes back; the bank is asked again under the same key and charges once."""
    made, key = shop(), new_key()
    made.bank.after["charge"] = once(Crash())
    die(made, key)

    until(made, Deed.FINISHED)

    assert made.bank.done == {"charge": 1}
    assert len(set(made.bank.keys("charge"))) == 1
    assert len(made.bank.calls) == 2
    assert made.stored().state is State.COMPLETED
    assert made.pay(key) == "charge done"
    assert made.plot.runs == 2


def test_worker_goes_on_after_the_last_checkpoint(shop: Make) -> None:
    """F005: what is known is not asked for again."""
    made, key = shop(), new_key()
    made.plot.steps = (Do("reserve"), Do("charge"))
    made.bank.before["charge"] = once(Crash())
    die(made, key)

    until(made, Deed.FINISHED)

    assert made.bank.done == {"reserve": 1, "charge": 1}
    assert [what for what, _ in made.bank.calls] == ["reserve", "charge", "charge"]


def test_gateway_that_fails_after_the_intent_is_asked_again_at_once_under_the_same_key(shop: Make) -> None:
    """The same request sent again need not wait for the lease."""
    made, key = shop(lease=timedelta(hours=1), renewal=timedelta(minutes=5), retention=days(1)), new_key()
    made.bank.before["charge"] = once(GatewayDown())

    with pytest.raises(GatewayDown):
        made.pay(key)

    assert made.pay(key) == "charge done"
    [first, second] = made.bank.keys("charge")
    assert first == second
    assert made.bank.done == {"charge": 1}


def test_bank_that_forgets_rejections_is_never_quoted_while_a_call_may_still_land(shop: Make) -> None:
    """F063: the first call dies on its way, the second is declined, the first one lands."""
    made, key = shop(), new_key()
    made.plot.steps = (Do("charge", SuccessOnly(days(1))),)
    made.bank.before["charge"] = once(GatewayDown())
    with pytest.raises(GatewayDown):
        made.pay(key)
    made.bank.before["charge"] = once(Rejected("declined"))

    with pytest.raises(InDoubt):
        made.pay(key)
    made.bank.do("charge", made.bank.keys("charge")[0])

    with pytest.raises(InDoubt):
        made.pay(key)
    assert made.stored().state is State.IN_DOUBT


@pytest.mark.parametrize("change", [Do("charge", name="charge-2"), Do("charge", arguments=("other",))])
@pytest.mark.parametrize("dies", ["before", "after"])
def test_changed_code_is_in_doubt_and_charges_nobody_again(shop: Make, change: Do, dies: str) -> None:
    """Renamed, or with other arguments, between two attempts."""
    made, key = shop(), new_key()
    made.plot.steps = (Do("charge"), Do("email"))
    made.bank.__dict__[dies]["email"] = once(Crash())
    die(made, key)
    made.plot.steps = (change, Do("email"))

    until(made, Deed.DOUBTED)

    assert made.bank.done["charge"] == 1
    assert made.stored().doubt_reason == "code-changed"
    with pytest.raises(InDoubt):
        made.pay(key)


def test_unrecoverable_effect_is_in_doubt_and_never_called_again(shop: Make) -> None:
    """F003."""
    made, key = shop(), new_key()
    made.plot.steps = (Do("charge", Unrecoverable()),)
    made.bank.after["charge"] = once(Crash())
    die(made, key)

    until(made, Deed.DOUBTED)
    made.work()

    assert len(made.bank.calls) == 1
    assert made.stored().state is State.IN_DOUBT


def test_opaque_operation_is_in_doubt_and_never_run_again(shop: Make) -> None:
    made, key = shop(effects=Opaque), new_key()
    made.plot.steps = ()
    made.plot.ends = once(Crash())
    die(made, key)

    until(made, Deed.DOUBTED)

    assert made.plot.runs == 1
    assert made.stored().doubt_reason == "owner-gone"


def test_queryable_effect_that_happened_is_found_and_the_operation_goes_on(shop: Make) -> None:
    made, key = shop(lambda shop: {"queries": shop.query()}), new_key()
    made.plot.steps = (Do("charge", Queryable()), Do("email"))
    made.bank.after["charge"] = once(Crash())
    die(made, key)

    until(made, Deed.FINISHED)

    assert made.bank.done == {"charge": 1, "email": 1}
    assert len(made.bank.keys("charge")) == 1
    assert made.pay(key) == "charge done, email done"
    assert [event.verdict for event in made.told if isinstance(event, DoubtEnded)] == [EffectVerdict.HAPPENED]


def test_queryable_effect_that_is_not_there_stays_in_doubt_until_it_cannot_come(shop: Make) -> None:
    """F065: the call is on its way while the bank shows nothing; only a void makes that final."""
    made, key = shop(lambda shop: {"queries": shop.query()}), new_key()
    made.plot.steps = (Do("charge", Queryable()),)
    made.bank.before["charge"] = once(Crash())
    die(made, key)

    until(made, Deed.STILL_IN_DOUBT)
    until(made, Deed.STILL_IN_DOUBT)

    assert made.stored().state is State.IN_DOUBT
    made.bank.do("charge", made.bank.keys("charge")[0])
    until(made, Deed.FINISHED)
    assert made.bank.done == {"charge": 1}


def test_queryable_effect_that_was_voided_is_made_by_the_next_request_under_another_key(shop: Make) -> None:
    """The burnt key is good for nothing any more: under it the bank would say no to the customer for ever."""
    made, key = shop(lambda shop: {"queries": shop.query(void=shop.bank.void)}), new_key()
    made.plot.steps = (Do("charge", Queryable()),)
    for number in (1, 2):
        made.bank.before["charge"] = once(Crash())
        die(made, key)
        until(made, Deed.RECONCILED)
        assert made.stored().state is State.AVAILABLE
        assert made.bank.voided == set(made.bank.keys("charge"))
        assert len(made.bank.voided) == number

    assert made.pay(key) == "charge done"
    assert made.bank.done == {"charge": 1}
    assert len(set(made.bank.keys("charge"))) == 3


def test_worker_goes_on_after_a_void_where_something_happened_before_it(shop: Make) -> None:
    made, key = shop(lambda shop: {"queries": shop.query(void=shop.bank.void)}), new_key()
    made.plot.steps = (Do("reserve"), Do("charge", Queryable()))
    made.bank.before["charge"] = once(Crash())
    die(made, key)

    until(made, Deed.RECONCILED)
    made.work()

    assert made.pay(key) == "reserve done, charge done"
    assert made.bank.done == {"reserve": 1, "charge": 1}
    assert len(made.bank.keys("reserve")) == 1
    [burnt, used] = made.bank.keys("charge")
    assert made.bank.voided == {burnt} != {used}


def test_doubt_ends_at_its_deadline_with_a_final_answer(shop: Make) -> None:
    made, key = shop(doubt_deadline=timedelta(milliseconds=1)), new_key()
    made.plot.steps = (Do("charge", Unrecoverable()),)
    made.bank.after["charge"] = once(Crash())
    die(made, key)

    until(made, Deed.EXPIRED)

    with pytest.raises(OutcomeUnknown):
        made.pay(key)
    assert [event.reason for event in made.told if isinstance(event, DoubtExpired)] == ["owner-gone"]


def test_tries_are_counted_in_the_store_and_end(shop: Make) -> None:
    """What fails again and again needs a person, not a loop."""
    made, key = shop(recoveries_limit=2), new_key()
    made.bank.after["charge"] = once(Crash())
    die(made, key)

    def fail() -> None:
        raise GatewayDown

    made.plot.ends = fail
    until(made, Deed.DOUBTED)

    attempts = [event.attempt for event in made.told if isinstance(event, AttemptStarted)]
    assert attempts == [1, 2, 3]
    assert made.stored().doubt_reason == "recoveries-used-up"


def test_clean_record_that_nobody_can_finish_goes_back_to_its_client(shop: Make) -> None:
    made, key = shop(recoveries_limit=1), new_key()
    made.plot.steps = ()
    made.plot.ends = lambda: (_ for _ in ()).throw(Crash())
    die(made, key)

    with suppress(Crash):
        until(made, Deed.GIVEN_UP)
    until(made, Deed.GIVEN_UP)

    assert any(isinstance(event, GaveUp) for event in made.told)
    made.plot.ends = lambda: None
    assert made.pay(key) == ""


@ON_A_LOOP
def test_downstream_that_does_not_answer_in_time_is_asked_again_by_the_next_request(shop: Make) -> None:
    """The loop stops waiting; a blocking client is given the time, and raises by itself."""
    made, key = shop(), new_key()
    never, made.is_slow = threading.Event(), True
    made.bank.before["charge"] = lambda: never.wait(PATIENCE_SECONDS)
    made.plot.steps = (Do("charge", timeout=timedelta(milliseconds=50)),)

    with pytest.raises(EffectTimedOut):
        made.pay(key)
    never.set()
    made.plot.steps = (Do("charge"),)
    made.is_slow = False

    assert come_back(made, key) == "charge done"
    assert len(set(made.bank.keys("charge"))) == 1
    assert made.bank.done == {"charge": 1}


@ON_A_LOOP
def test_unrecoverable_downstream_that_does_not_answer_in_time_is_in_doubt(shop: Make) -> None:
    made, key = shop(), new_key()
    never, made.is_slow = threading.Event(), True
    made.bank.before["charge"] = lambda: never.wait(PATIENCE_SECONDS)
    made.plot.steps = (Do("charge", Unrecoverable(), timeout=timedelta(milliseconds=50)),)

    with pytest.raises(InDoubt):
        made.pay(key)
    never.set()

    assert made.stored().doubt_reason == "effect-timed-out"


def test_live_owner_is_left_alone(shop: Make) -> None:
    """C6: a worker has no more rights than a request."""
    made, key = shop(), new_key()
    made.plot.steps = (Do("charge", timeout=timedelta(seconds=PATIENCE_SECONDS)),)
    made.is_slow = True
    inside, may_end = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        may_end.wait(PATIENCE_SECONDS)

    made.bank.before["charge"] = wait
    owner = threading.Thread(target=made.pay, args=(key,))
    owner.start()
    inside.wait(PATIENCE_SECONDS)

    reports = [made.work() for _ in range(3)]
    with pytest.raises(NotYet):
        made.pay(key)
    may_end.set()
    owner.join()

    assert all(not report.deeds for report in reports)
    assert made.bank.done == {"charge": 1}
    assert made.plot.runs == 1


def test_downstream_that_cannot_be_asked_is_asked_later_and_keeps_nobody_waiting(shop: Make) -> None:
    """F060: what one record raises is its own affair."""
    made, key = shop(lambda shop: {"queries": shop.query()}), new_key()
    made.plot.steps = (Do("charge", Queryable()),)
    made.bank.after["charge"] = once(Crash())
    die(made, key)
    made.bank.unreachable = 2

    until(made, Deed.ERROR)
    until(made, Deed.FINISHED)

    assert made.bank.done == {"charge": 1}
