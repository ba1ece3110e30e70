"""A process is killed before and after each statement and at the commit: rows and outcome are there together or not."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nebis import NotYet
from tests.transactions.nursery import Nursery
from tests.transactions.shops import POSTGRES, QUICK, AsyncShop, BlockingShop, Shop, open_shop

AT_ONCE = 6
LEASE_SECONDS = QUICK["lease"].total_seconds()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


def sell_until_answered(shop: Shop, key: str) -> str:
    """Retry as a client does, until the dead owner's lease is over."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return shop.sell(key).result
        except NotYet:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)  # A real lease has to pass.


def test_whenever_it_dies_the_retry_leaves_one_row_of_each(shop: Shop, nursery: Nursery, key: str) -> None:
    order: dict[str, Any] = {
        "driver": shop.driver,
        "url": shop.books.url,
        "mode": "single" if shop.is_single else "guarded",
    }
    nursery.order(key=f"{key}-alive", **order)
    _, told = nursery.wait()
    alive = told[f"{key}-alive"]
    assert alive["told"] == "paid"
    moments = range(alive["moments"])
    keys = [f"{key}-{moment}" for moment in moments]
    for moment, dying in zip(moments, keys, strict=True):
        nursery.order(key=dying, kill_at=moment, **order)
        if moment % AT_ONCE == AT_ONCE - 1 or dying == keys[-1]:
            ended, told = nursery.wait()
            assert not told
            assert set(ended.values()) == {signal.SIGKILL}

    before = [(shop.books.of(dead), shop.books.state(dead) == "C") for dead in keys]
    assert set(before) == {((0, 0), False), ((1, 1), True)}
    assert [sell_until_answered(shop, dead) for dead in keys] == ["paid"] * len(keys)
    assert {shop.books.of(dead) for dead in keys} == {(1, 1)}


@pytest.fixture(params=POSTGRES)
def guarded_shop(request: pytest.FixtureRequest, place: Callable[[str], str]) -> Iterator[BlockingShop | AsyncShop]:
    made = open_shop(request.param, place(request.param), "guarded", **QUICK)
    yield made
    made.close()


def order_that_stops(nursery: Nursery, shop: Shop, key: str, where: str, **store: Any) -> int:
    """Have a child stopped there; return once it is."""
    pid = nursery.order(
        driver=shop.driver, url=shop.books.url, mode="guarded", key=key, stops=where, store=store or None
    )
    time.sleep(LEASE_SECONDS)  # A real lease has to pass while it is.
    return pid


def resumed(nursery: Nursery, pid: int, key: str) -> str:
    os.kill(pid, signal.SIGCONT)
    _, told = nursery.wait()
    return str(told[key]["told"])


def test_a_zombie_that_has_not_begun_its_transaction_lost_its_claim_f048(
    guarded_shop: Shop, nursery: Nursery, key: str
) -> None:
    zombie = order_that_stops(nursery, guarded_shop, key, "before the transaction")

    successor = sell_until_answered(guarded_shop, key)
    told = resumed(nursery, zombie, key)

    assert successor == "paid"
    assert told == "paid by another"
    assert guarded_shop.books.of(key) == (1, 1)


def test_a_zombie_inside_its_transaction_keeps_the_record_by_its_lock(
    guarded_shop: Shop, nursery: Nursery, key: str
) -> None:
    zombie = order_that_stops(nursery, guarded_shop, key, "inside the transaction")

    with pytest.raises(NotYet):
        guarded_shop.sell(key)
    told = resumed(nursery, zombie, key)

    assert told == "paid"
    assert guarded_shop.sell(key).is_replay
    assert guarded_shop.books.of(key) == (1, 1)


def test_a_zombie_that_sleeps_too_long_inside_its_transaction_loses_it(
    guarded_shop: Shop, nursery: Nursery, key: str
) -> None:
    """Otherwise a machine that never wakes up would keep the key for ever."""
    # As long as a lease: a busy machine must not take the transaction from the child while it is still awake.
    zombie = order_that_stops(
        nursery, guarded_shop, key, "inside the transaction", idle_in_transaction_seconds=LEASE_SECONDS
    )

    successor = sell_until_answered(guarded_shop, key)
    told = resumed(nursery, zombie, key)

    assert successor == "paid"
    assert told == "paid by another"
    assert guarded_shop.books.of(key) == (1, 1)
