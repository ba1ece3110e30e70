"""What a retry gets after its answer's time, and after its metadata's time (X1, X2; F070, F073)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from nebis import Attempt, ExpiredPolicy, KeyExpired, KeyReused, Local, Nebis, days, hours
from nebis.core.record import Record, State
from nebis.ports.store import Tally
from nebis.runtime.sweeping import sweep_once

KEY = "0b7a3c52-7d6e-4c3c-9f0b-9a3a1a4f0d11"
HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Order:
    """What is asked for."""

    sku: str = "apple"


class Shop:
    """An operation that counts its runs, on a store whose records can be made older."""

    def __init__(self, location: str, age: Callable[[int], None], when_expired: ExpiredPolicy) -> None:
        self.nebis = Nebis(location)
        self.age = age
        self.runs = 0
        self.extension_hours = 0

        @self.nebis.operation("place_order", effects=Local, when_expired=when_expired)
        def place_order(attempt: Attempt, command: Order) -> int:
            self.runs += 1
            attempt.resource("order", f"{command.sku}-{self.runs}")
            if self.extension_hours:
                attempt.extend_retention(hours(self.extension_hours))
            return self.runs

        self._place_order = place_order

    def order(self, sku: str = "apple") -> int:
        return self._place_order(key=KEY, tenant="acct_1", command=Order(sku))

    def record(self) -> Record | None:
        world, secrets = self.nebis.opened()
        claim = self._place_order.declaration.call(secrets, key=KEY, tenant="acct_1", command=Order())
        identity = claim.claim(None, b"").identity  # type: ignore[arg-type]
        return world.backend.sessions.run(world.backend.store.find(identity))

    def sweep(self) -> None:
        world, _ = self.nebis.opened()
        world.backend.sessions.run(sweep_once(world.backend.store))

    def counted(self, name: str) -> int:
        self.nebis.close()
        world, _ = self.nebis.opened()
        return world.backend.sessions.run(world.backend.store.tallies()).get(Tally(name, "place_order"), 0)


@pytest.fixture(params=["sqlite", "postgres"])
def make_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    shops: list[Shop] = []
    sql = "UPDATE nebis_record SET expires_at = expires_at - {0}, forget_at = forget_at - {0}"

    def make(when_expired: ExpiredPolicy = ExpiredPolicy.RUN_AGAIN) -> Shop:
        if request.param == "sqlite":
            path = tmp_path / "shop.db"

            def age(span_us: int) -> None:
                with sqlite3.connect(path) as connection:
                    connection.execute(sql.format(span_us))
                connection.close()

            shop = Shop(f"sqlite:///{path}", age, when_expired)
        else:
            url: str = request.getfixturevalue("postgres_url")

            def age(span_us: int) -> None:
                with psycopg.connect(url) as connection:
                    connection.execute(sql.format(span_us))

            shop = Shop(url, age, when_expired)
        shops.append(shop)
        return shop

    yield make
    for shop in shops:
        shop.nebis.close()


@pytest.mark.parametrize("is_swept", [False, True])
def test_after_its_window_the_key_runs_again_and_is_counted(make_shop: Callable[..., Shop], is_swept: bool) -> None:
    shop = make_shop()
    assert [shop.order(), shop.order()] == [1, 1]

    shop.age(25 * HOUR_US)
    if is_swept:
        shop.sweep()

    assert [shop.order(), shop.order()] == [2, 2]
    assert shop.counted("expired_retries") == 1


@pytest.mark.parametrize("is_swept", [False, True])
def test_an_operation_may_refuse_after_its_window_and_that_is_counted_too(
    make_shop: Callable[..., Shop], is_swept: bool
) -> None:
    shop = make_shop(ExpiredPolicy.REFUSE)
    shop.order()

    shop.age(25 * HOUR_US)
    if is_swept:
        shop.sweep()

    with pytest.raises(KeyExpired):
        shop.order()
    assert shop.runs == 1
    assert shop.counted("expired_retries") == 1


@pytest.mark.parametrize("when_expired", list(ExpiredPolicy))
@pytest.mark.parametrize("is_swept", [False, True])
def test_after_the_metadatas_time_the_key_is_new(
    make_shop: Callable[..., Shop], when_expired: ExpiredPolicy, is_swept: bool
) -> None:
    shop = make_shop(when_expired)
    shop.order()

    shop.age(32 * 24 * HOUR_US)
    if is_swept:
        shop.sweep()
        assert shop.record() is None

    assert shop.order("pear") == 2
    assert shop.counted("expired_retries") == 0


def test_a_tombstone_keeps_fingerprint_resource_and_times_but_no_body(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop()
    shop.order()
    before = shop.record()

    shop.age(25 * HOUR_US)
    shop.sweep()

    after = shop.record()
    assert before is not None
    assert after is not None
    assert (after.state, after.outcome, after.command) == (State.EXPIRED, None, None)
    assert (after.fingerprint, after.resource, after.created_at, after.completed_at, after.outcome_kind) == (
        before.fingerprint,
        before.resource,
        before.created_at,
        before.completed_at,
        before.outcome_kind,
    )


def test_a_running_attempt_prolongs_its_retention_and_cannot_shorten_it(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop()
    shop.extension_hours = 48
    shop.order()
    kept = shop.record()
    assert kept is not None
    assert kept.completed_at is not None
    assert kept.expires_at - kept.completed_at > 47 * HOUR_US

    shop.age(49 * HOUR_US)
    shop.extension_hours = 1
    shop.order()

    again = shop.record()
    assert again is not None
    assert again.completed_at is not None
    assert again.expires_at - again.completed_at >= days(1).total_seconds() * 1_000_000


def test_within_its_window_another_command_is_refused_and_after_it_is_a_new_request(
    make_shop: Callable[..., Shop],
) -> None:
    shop = make_shop()
    shop.order("apple")
    with pytest.raises(KeyReused):
        shop.order("pear")

    shop.age(25 * HOUR_US)

    assert shop.order("pear") == 2
