"""Ending a process while its attempts run (F077, F078)."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest

from nebis import InFlight, NotYet, StoreUnavailable, Unrecoverable
from tests.worker.conftest import WAYS
from tests.worker.shops import AsyncShop, Do, Shop, new_key

PATIENCE_SECONDS = 20
LONG = {
    "lease": timedelta(hours=1),
    "renewal": timedelta(minutes=5),
    "effect_timeout": timedelta(minutes=1),
    "confirm": timedelta(milliseconds=100),
}
"""Whoever comes next would wait for an hour, were it not told that the owner is gone."""
DURABLE = pytest.mark.parametrize("shop", [way for way in WAYS if not way.startswith("memory")], indirect=True)
Make = Callable[..., Shop]


class Stuck:
    """Something in a handler that does not end."""

    def __init__(self) -> None:
        self.is_reached, self.may_end = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.is_reached.set()
        self.may_end.wait(PATIENCE_SECONDS)

    async def wait_async(self) -> None:
        self.is_reached.set()
        await asyncio.to_thread(self.may_end.wait, PATIENCE_SECONDS)


def begin(made: Shop, key: str, stuck: Stuck, pool: ThreadPoolExecutor) -> Future[str]:
    """Start an attempt and return once it is stuck."""
    attempt = pool.submit(made.pay, key)
    assert stuck.is_reached.wait(PATIENCE_SECONDS)
    return attempt


def told(attempt: Future[str]) -> str | None:
    """Return what the caller of an attempt that was let go was told: nothing, or the winner's bytes (I11)."""
    return None if attempt.exception(PATIENCE_SECONDS) else attempt.result()


def at_the_end(made: Shop, stuck: Stuck) -> None:
    made.plot.ends = stuck.wait_async if isinstance(made, AsyncShop) else stuck.wait


def test_close_waits_for_running_attempts_and_starts_nothing_new(shop: Make) -> None:
    made, stuck, key = shop(**LONG), Stuck(), new_key()
    made.plot.steps = ()
    at_the_end(made, stuck)
    with ThreadPoolExecutor(2) as pool:
        attempt = begin(made, key, stuck, pool)
        closing = threading.Event()

        def refused() -> None:
            """Ask until the shop is closing, then end what it waits for."""
            while True:
                try:
                    made.pay(key)
                except StoreUnavailable:
                    closing.set()
                    stuck.may_end.set()
                    return
                except NotYet:
                    continue

        asking = pool.submit(refused)
        made.close_nebis(timedelta(seconds=PATIENCE_SECONDS))

        assert attempt.result(PATIENCE_SECONDS) == ""
        asking.result(PATIENCE_SECONDS)
    assert closing.is_set()


@DURABLE
@pytest.mark.parametrize("steps", [(), (Do("charge"),)])
def test_attempt_that_does_not_end_in_time_is_let_go_and_another_process_goes_on_at_once(
    shop: Make, steps: tuple[Do, ...]
) -> None:
    """What is clean is given back, what is dirty and resumable is suspended."""
    made, other, stuck, key = shop(**LONG), shop(**LONG), Stuck(), new_key()
    made.plot.steps = other.plot.steps = steps
    other.bank = made.bank
    at_the_end(made, stuck)
    with ThreadPoolExecutor(1) as pool:
        attempt = begin(made, key, stuck, pool)
        with pytest.raises(InFlight):
            other.pay(key)

        made.close_nebis(timedelta(milliseconds=10))

        won = other.pay(key)
        stuck.may_end.set()
        assert told(attempt) in (None, won)
    assert won == ", ".join(f"{do.what} done" for do in steps)
    assert other.stored().attempts == 2
    assert made.bank.done == {do.what: 1 for do in steps}


@DURABLE
def test_call_that_is_under_way_is_made_again_under_the_same_key_by_another_process(shop: Make) -> None:
    made, other, stuck, key = shop(**LONG), shop(**LONG), Stuck(), new_key()
    made.is_slow = True
    made.bank.before["charge"] = lambda: None if stuck.is_reached.is_set() else stuck.wait()
    other.bank = made.bank
    with ThreadPoolExecutor(1) as pool:
        attempt = begin(made, key, stuck, pool)

        made.close_nebis(timedelta(milliseconds=10))

        won = other.pay(key)
        stuck.may_end.set()
        assert told(attempt) in (None, won)
    assert made.bank.done == {"charge": 1}
    assert len(set(made.bank.keys("charge"))) == 1


@DURABLE
def test_call_that_nobody_may_make_again_is_not_let_go(shop: Make) -> None:
    made, other, stuck, key = shop(**LONG), shop(**LONG), Stuck(), new_key()
    made.plot.steps = other.plot.steps = (Do("charge", Unrecoverable()),)
    made.is_slow = True
    made.bank.before["charge"] = stuck.wait
    with ThreadPoolExecutor(1) as pool:
        attempt = begin(made, key, stuck, pool)

        made.close_nebis(timedelta(milliseconds=10))

        with pytest.raises(InFlight):
            other.pay(key)
        stuck.may_end.set()
        told(attempt)
    assert other.bank.calls == []


def test_shop_that_was_closed_opens_again_with_the_next_call(shop: Make) -> None:
    made = shop(**LONG)

    made.close_nebis(timedelta(0))
    made.close_nebis(timedelta(0))

    assert made.pay(new_key()) == "charge done"
