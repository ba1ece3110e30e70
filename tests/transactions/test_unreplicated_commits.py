"""A server that stops waiting for its synchronous standby confirms what a failover would lose (F017)."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.transactions.scenes import Books, Scene, announce, finish, pay
from tests.transactions.shops import MODES, POSTGRES, open_shop

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"

QUIET = timedelta(seconds=10)
"""No renewal meanwhile: its commit would wait for the standby too."""


@pytest.fixture
def books(place: Callable[[str], str]) -> Iterator[Books]:
    made = Books(place("psycopg"))
    yield made
    require_standby(made, "")


def require_standby(books: Books, name: str) -> None:
    """Make every commit wait for a standby of that name, or for none."""
    books.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    books.ask("SELECT pg_reload_conf()")
    deadline = time.monotonic() + 20
    while books.ask("SELECT current_setting('synchronous_standby_names')") != [(name,)]:
        assert time.monotonic() < deadline


def waiting_backend(books: Books, *, other_than: int = 0) -> int:
    deadline = time.monotonic() + 20
    while True:
        found = [pid for (pid,) in books.ask(WAITING) if pid != other_than]
        if found:
            return int(found[0])
        assert time.monotonic() < deadline


@pytest.mark.parametrize("driver", POSTGRES)
@pytest.mark.parametrize("mode", MODES)
def test_a_commit_that_is_not_replicated_is_not_acknowledged_until_it_is(
    place: Callable[[str], str], books: Books, driver: str, mode: str, key: str
) -> None:
    shop = open_shop(driver, place(driver), mode, renewal=QUIET, lease=3 * QUIET)
    stopped = threading.Event()

    def lose_the_standby(_: Scene) -> None:
        require_standby(books, "nobody")
        stopped.set()

    with ThreadPoolExecutor(1) as thread:
        selling = thread.submit(shop.sell, key, pay, announce, lose_the_standby, finish)
        assert stopped.wait(20)
        committing = waiting_backend(books)
        books.ask(f"SELECT pg_cancel_backend({committing})")
        # Its client was told that it is committed, with a warning. Somebody now waits until it is replicated.
        waiting_backend(books, other_than=committing)
        was_acknowledged = selling.done()
        require_standby(books, "")

        assert not was_acknowledged
        assert selling.result(20).result == "paid"
    shop.close()
    assert books.of(key) == (1, 1)
