"""Limits underneath the key (P16, SEC09)."""

import multiprocessing
import sqlite3
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from nebis import ConfigError, Limit, Local, Nebis, Quota, TooFast, hours, seconds, uuid4_key
from nebis.ports.observer import FoundTooFast
from tests.engine.conftest import location
from tests.engine.faces import Face, View

CARD = "4242424242424242"
LIMIT = 20


@dataclass
class Card:
    number: str


@dataclass
class Payment:
    cents: int
    merchant: str | None = None
    card: Card | None = None


def paying(_attempt: View, command: Payment) -> int:
    return command.cents


def _passes(pay: Any, command: Payment, **given: Any) -> bool:
    try:
        pay.execute(key=uuid4_key(), command=command, **given)
    except TooFast:
        return False
    return True


def test_fresh_keys_are_counted_by_tenant_and_by_field(face: Face) -> None:
    pay = face.operation(
        paying,
        velocity=[
            Limit(6, per=hours(1)),
            Limit(2, per=hours(1), by="card.number"),
            Limit(3, per=hours(1), by="merchant"),
        ],
    )
    visa, other = Card(CARD), Card("5555555555554444")

    by_card = [_passes(pay, Payment(1, card=visa)) for _ in range(3)]
    by_merchant = [_passes(pay, Payment(1, merchant="m")) for _ in range(4)]
    # Refused ones count for other limits, but no more than once each.
    by_tenant = [_passes(pay, Payment(1)) for _ in range(6)]

    assert by_card == [True, True, False]
    assert by_merchant == [True, True, True, False]
    assert True not in by_tenant[1:]
    assert _passes(pay, Payment(1, card=visa), tenant="acct_2")
    assert not _passes(pay, Payment(1, card=other))


def test_replays_are_free_and_a_refused_key_is_not_recorded(face: Face) -> None:
    pay = face.operation(paying, velocity=[Limit(2, per=hours(1))])
    keys = [uuid4_key() for _ in range(3)]
    for key in keys[:2]:
        pay(key=key, command=Payment(1))

    with pytest.raises(TooFast):
        pay(key=keys[2], command=Payment(1))

    assert all(pay.execute(key=key, command=Payment(1)).is_replay for key in keys[:2] * 3)
    with pytest.raises(TooFast):
        # Not `KeyReused`: nothing stands under this key.
        pay(key=keys[2], command=Payment(2))


def test_observers_are_told_of_who_is_too_fast_and_not_who_it_is(face: Face) -> None:
    """SEC24."""
    pay = face.operation(paying, name="hasty", velocity=[Limit(1, per=hours(1))])
    pay(key=uuid4_key(), command=Payment(1))

    assert [_passes(pay, Payment(1), tenant=tenant) for tenant in ("acct_1", "acct_1", "acct_2")].count(False) == 2

    told = [event for event in face.told if isinstance(event, FoundTooFast) and event.operation == "hasty"]
    assert len(told) == len({event.operation_id for event in told}) == 2
    assert "acct_1" not in repr(told)


def test_field_may_be_counted_across_tenants(face: Face) -> None:
    pay = face.operation(paying, velocity=[Limit(1, per=hours(1), by="merchant", across_tenants=True)])

    assert _passes(pay, Payment(1, merchant="m"))
    assert not _passes(pay, Payment(1, merchant="m"), tenant="acct_2")


def test_two_secrets_count_as_one_during_a_rotation(fresh: Callable[..., Face]) -> None:
    """F116: whichever of them a process has, it sees what all have counted."""
    pays = []
    for secret in ("o" * 64, f"{'n' * 64},{'o' * 64}"):
        pays.append(fresh(secret=secret).operation(paying, name="pay", velocity=[Limit(3, per=hours(1))]))
        assert _passes(pays[-1], Payment(1))

    assert [_passes(pay, Payment(1)) for pay in (*pays, *pays)] == [True] + [False] * 3


def test_tenant_has_no_more_in_flight_than_its_quota(face: Face) -> None:
    """SEC09."""
    inner: list[bool] = []

    def nested(_attempt: View, command: Payment) -> int:
        if command.cents:
            inner.append(_passes(pay, Payment(command.cents - 1)))
        return 0

    pay = face.operation(nested, quota=Quota(in_flight=3))

    for _ in range(2):
        inner.clear()
        assert _passes(pay, Payment(4))
        # The innermost of four was one too many; what has ended makes room again.
        assert inner == [False, True, True]


def test_tenant_stores_no_more_than_its_quota(face: Face) -> None:
    """SEC09."""

    def large(_attempt: View, command: Payment) -> str:
        return f"{command.cents:0500}"

    pay = face.operation(large, quota=Quota(stored_bytes=2_000))

    passed = [_passes(pay, Payment(number)) for number in range(10)]

    # Compression may make the answers smaller than they look; the records themselves count too.
    assert passed == sorted(passed, reverse=True)
    assert 1 <= sum(passed) <= 3
    assert _passes(pay, Payment(1), tenant="acct_2")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"velocity": [Limit(0, per=seconds(1))]}, "at least 1"),
        ({"velocity": [Limit(1, per=timedelta(0))]}, "between 10 ms and a year"),
        ({"velocity": [Limit(1, per=seconds(1), by="a..b")]}, "names a field"),
        ({"velocity": [Limit(1, per=seconds(1), across_tenants=True)]}, "say which"),
        ({"quota": Quota()}, "in_flight="),
        ({"quota": Quota(stored_bytes=0)}, "at least 1"),
        ({"quota": Quota(in_flight=1), "single_transaction": True}, "single_transaction"),
    ],
)
def test_limit_that_cannot_work_is_refused_at_start_up(options: dict[str, Any], told: str) -> None:
    nebis = Nebis("memory://")

    with pytest.raises(ConfigError, match=told):

        @nebis.operation("pay", effects=Local, **options)
        def pay(command: Payment) -> int:
            return command.cents


def begin_together(barrier: Any) -> None:
    """Keep in each process what both wait for."""
    charge_many.barrier = barrier  # type: ignore[attr-defined]


def limited(nebis: Nebis) -> Any:
    @nebis.operation("pay", effects=Local, velocity=[Limit(LIMIT, per=hours(1), by="card.number")])
    def pay(command: Payment) -> int:
        return command.cents

    return pay


def charge_many(url: str, number: int) -> list[str]:
    """Pay with one card and a fresh key each, many at once, in a process of its own; return the keys that passed."""
    nebis, keys = Nebis(url), [uuid4_key() for _ in range(number)]
    pay = limited(nebis)

    def has_passed(key: str) -> bool:
        try:
            pay(key=key, tenant="acct_1", command=Payment(1, card=Card(CARD)))
        except TooFast:
            return False
        return True

    with nebis, ThreadPoolExecutor(10) as threads:
        charge_many.barrier.wait(60)  # type: ignore[attr-defined]
        return [key for key, passed in zip(keys, threads.map(has_passed, keys), strict=True) if passed]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_limit_holds_across_two_processes(store: str, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    """A hundred fresh keys on one card at once. Within 10 % it has to hold; here it does exactly."""
    url = location(store, tmp_path, request)
    nebis, spawn = Nebis(url), multiprocessing.get_context("spawn")
    nebis.open()
    pay, neighbours, barrier = limited(nebis), [uuid4_key() for _ in range(LIMIT)], spawn.Barrier(3)

    with nebis, ProcessPoolExecutor(2, spawn, begin_together, (barrier,)) as processes:
        flood = processes.map(charge_many, [url, url], [50, 50])
        barrier.wait(60)
        # SEC09: who floods is refused alone, even if the other tenant pays with the very same card.
        for key in neighbours:
            pay(key=key, tenant="acct_2", command=Payment(1, card=Card(CARD)))
        passed = [key for keys in flood for key in keys]

        assert len(passed) == LIMIT
        # Above the limit replays still answer, and nothing fresh does.
        for key in passed:
            assert pay.execute(key=key, tenant="acct_1", command=Payment(1, card=Card(CARD))).is_replay
        assert not _passes(pay, Payment(1, card=Card(CARD)), tenant="acct_1")

    if store == "sqlite":
        connection = sqlite3.connect(tmp_path / "nebis.db")
        rows = connection.execute("SELECT * FROM nebis_velocity").fetchall()
        connection.close()
        assert len(rows) == 2
        # SEC08: nobody reads a card number from a meter.
        assert CARD not in repr(rows)
