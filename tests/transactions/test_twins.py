"""Duplicates while a transaction is open: told at once, and nobody else pays for it."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from nebis import InFlight, NotYet, Wait
from tests.transactions.scenes import Scene, announce, finish, pay
from tests.transactions.shops import MODES, POSTGRES, AsyncShop, Shop, open_shop


@contextmanager
def open_transaction(shop: Shop, key: str) -> Iterator[Future[Any]]:
    """Keep an attempt inside its transaction during the block."""
    entered, leave = threading.Event(), threading.Event()

    def linger(_: Scene) -> Any:
        entered.set()
        if isinstance(shop, AsyncShop):
            return asyncio.to_thread(leave.wait, 60)
        return leave.wait(60)

    with ThreadPoolExecutor(1) as thread:
        selling = thread.submit(shop.sell, key, pay, linger, announce, finish)
        try:
            assert entered.wait(20)
            yield selling
        finally:
            leave.set()


def test_a_twin_is_told_within_a_bounded_time_and_finds_the_outcome_later(postgres_shop: Shop, key: str) -> None:
    with open_transaction(postgres_shop, key) as selling:
        began = time.monotonic()
        with pytest.raises(InFlight):
            postgres_shop.sell(key)
        seconds = time.monotonic() - began

    assert seconds < 3
    assert selling.result().result == "paid"
    assert postgres_shop.sell(key).is_replay
    assert postgres_shop.books.of(key) == (1, 1)


@pytest.mark.parametrize("driver", ["sqlite", "sqlite-async"])
@pytest.mark.parametrize("mode", MODES)
def test_on_sqlite_everybody_waits_for_the_file_and_no_longer_than_allowed_f042(
    place: Callable[[str], str], driver: str, mode: str, key: str
) -> None:
    shop = open_shop(driver, place(driver), mode, store={"busy_seconds": 0.1})
    try:
        with open_transaction(shop, key) as selling, pytest.raises(NotYet):
            shop.sell(key)
        assert selling.result().result == "paid"
    finally:
        shop.close()

    assert shop.books.of(key) == (1, 1)


@pytest.mark.parametrize("driver", POSTGRES)
@pytest.mark.parametrize("mode", MODES)
def test_a_twin_that_may_wait_is_answered_with_the_outcome(
    place: Callable[[str], str], driver: str, mode: str, key: str
) -> None:
    shop = open_shop(driver, place(driver), mode, in_flight=Wait())
    try:
        with ThreadPoolExecutor(1) as thread:
            with open_transaction(shop, key) as selling:
                twin = thread.submit(shop.sell, key)
            assert selling.result().result == "paid"
            assert twin.result().is_replay
    finally:
        shop.close()

    assert shop.books.of(key) == (1, 1)


@pytest.mark.parametrize("driver", POSTGRES)
@pytest.mark.parametrize("mode", MODES)
def test_a_hundred_duplicates_do_not_hold_up_other_keys_f045(
    place: Callable[[str], str], driver: str, mode: str, key: str
) -> None:
    """Were each of them to wait for its lock timeout, they would keep two free connections busy for half a minute."""
    shop = open_shop(driver, place(driver), mode, store={"max_connections": 3})
    answers: list[type[BaseException]] = []

    def duplicate(_: int) -> None:
        try:
            shop.sell(key)
        except NotYet as told:
            answers.append(type(told))

    try:
        with open_transaction(shop, key), ThreadPoolExecutor(20) as crowd:
            began = time.monotonic()
            waiting = [crowd.submit(duplicate, number) for number in range(100)]
            others = [shop.sell(f"{key}-{number}").result for number in range(5)]
            for each in waiting:
                each.result()
            seconds = time.monotonic() - began
    finally:
        shop.close()

    assert others == ["paid"] * 5
    assert answers == [InFlight] * 100
    assert seconds < 10
    assert shop.books.of(key) == (1, 1)
