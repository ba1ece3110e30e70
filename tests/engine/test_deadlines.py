"""Deadlines: after them nothing begins, and nothing that has begun is stopped (P15, C7)."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nebis import (
    AsyncAttempt,
    AsyncNebis,
    Attempt,
    Deadline,
    DeadlinePassed,
    Declared,
    MisuseError,
    Nebis,
    Sticky,
    days,
)
from nebis.core.record import State
from nebis.ports.store import Scan
from tests.engine.faces import Face, View
from tests.engine.handlers import TEN, Runs, new_key, paying

RECALL = Sticky(days(1))


def far() -> Deadline:
    return Deadline.after(timedelta(hours=1))


def over(deadline: Deadline | None) -> None:
    """Let a deadline pass now, without anybody having to wait for it."""
    object.__setattr__(deadline, "at_seconds", 0.0)


@pytest.fixture
def nebis(tmp_path: Path) -> Iterator[Nebis]:
    with Nebis(f"sqlite:///{tmp_path / 'nebis.db'}") as made:
        yield made


def test_request_that_comes_too_late_is_refused_and_not_recorded(face: Face) -> None:
    runs, key = Runs(), new_key()
    pay = face.operation(paying(runs))

    with pytest.raises(DeadlinePassed):
        pay.execute(key=key, command=TEN, deadline=Deadline.after(timedelta(0)))

    assert runs.number == 0
    assert not pay.execute(key=key, command=TEN, deadline=far()).is_replay


def test_request_that_comes_too_late_is_refused_even_if_its_answer_is_there(face: Face) -> None:
    key = new_key()
    pay = face.operation(paying(Runs()))
    pay(key=key, command=TEN)

    with pytest.raises(DeadlinePassed):
        pay.execute(key=key, command=TEN, deadline=Deadline.at(datetime.now(UTC)))


def test_handler_can_see_its_deadline(face: Face) -> None:
    seen: list[Any] = []

    def handle(attempt: View, command: str) -> str:
        seen.append(attempt.deadline)
        return command

    pay, deadline = face.operation(handle), far()
    pay.execute(key=new_key(), command="x", deadline=deadline)
    pay.execute(key=new_key(), command="x")

    assert seen == [deadline, None]


def test_deadline_without_a_time_zone_is_a_mistake() -> None:
    with pytest.raises(MisuseError, match="time zone"):
        Deadline.at(datetime(2030, 1, 1))  # noqa: DTZ001 - that is the mistake.


def test_deadline_tells_what_is_left_of_it() -> None:
    assert timedelta(minutes=59) < far().left <= timedelta(hours=1)
    assert Deadline.after(timedelta(0)).left == timedelta(0)
    assert Deadline.after(timedelta(0)).has_passed


def test_deadline_that_passes_before_the_first_effect_frees_the_key(nebis: Nebis) -> None:
    called: list[str] = []

    def charge(idempotency_key: str) -> str:
        called.append(idempotency_key)
        return "charged"

    @nebis.operation("order", effects=Declared)
    def order(attempt: Attempt, command: str) -> str:
        if attempt.number == 1:
            over(attempt.deadline)
        return str(attempt.effect("charge", charge, recall=RECALL))

    key = new_key()
    with pytest.raises(DeadlinePassed):
        order(key=key, tenant="acct_1", command="x", deadline=far())

    assert called == []
    assert _states(nebis) == [State.AVAILABLE]
    assert order(key=key, tenant="acct_1", command="x") == "charged"


def test_deadline_that_passes_during_an_effect_keeps_its_result_and_begins_no_other(nebis: Nebis) -> None:
    """Nothing is lost: the charge is remembered, and another attempt goes on after it."""
    called: list[str] = []

    def charge(idempotency_key: str, deadline: Deadline | None) -> str:
        called.append("charge")
        if deadline is not None:
            over(deadline)
        return "charged"

    def ship(idempotency_key: str) -> str:
        called.append("ship")
        return "shipped"

    def settle(connection: Any) -> str:
        connection.execute("SELECT 1")
        return "settled"

    @nebis.operation("order", effects=Declared)
    def order(attempt: Attempt, command: str) -> list[str]:
        charged = attempt.effect("charge", charge, recall=RECALL)
        if command == "step":
            return [charged, attempt.step("settle", settle)]
        return [charged, attempt.effect("ship", ship, recall=RECALL)]

    for command, whole in (("effect", ["charged", "shipped"]), ("step", ["charged", "settled"])):
        key = new_key()
        called.clear()
        with pytest.raises(DeadlinePassed):
            order(key=key, tenant="acct_1", command=command, deadline=far())

        assert called == ["charge"]
        assert order(key=key, tenant="acct_1", command=command) == whole
        assert called.count("charge") == 1


def test_running_effect_is_never_cancelled_by_the_deadline(tmp_path: Path) -> None:
    async def story() -> None:
        async with AsyncNebis(f"sqlite:///{tmp_path / 'nebis.db'}") as nebis:

            async def charge(idempotency_key: str, deadline: Deadline | None) -> str:
                over(deadline)
                # Whoever were to stop it for its deadline has every chance to.
                for _ in range(10):
                    await asyncio.sleep(0)
                return "charged"

            @nebis.operation("order", effects=Declared)
            async def order(attempt: AsyncAttempt, command: str) -> str:
                return str(await attempt.effect("charge", charge, recall=RECALL))

            key = new_key()
            assert await order(key=key, tenant="acct_1", command="x", deadline=far()) == "charged"
            assert (await order.execute(key=key, tenant="acct_1", command="x")).is_replay

    asyncio.run(story())


def test_call_is_told_how_much_time_is_left(nebis: Nebis) -> None:
    seen: list[tuple[float, Deadline | None]] = []

    def charge(idempotency_key: str, timeout_seconds: float, deadline: Deadline | None = None) -> str:
        seen.append((timeout_seconds, deadline))
        return "charged"

    def invoice(idempotency_key: str, deadline: str = "in 30 days") -> str:
        return deadline

    @nebis.operation("order", effects=Declared)
    def order(attempt: Attempt, command: str) -> str:
        attempt.effect("charge", charge, recall=RECALL)
        return str(attempt.effect("invoice", invoice, recall=RECALL))

    soon = Deadline.after(timedelta(seconds=10))
    for deadline in (None, far(), soon):
        # A parameter of that name which is not about ours is left alone.
        assert order(key=new_key(), tenant="acct_1", command="x", deadline=deadline) == "in 30 days"

    assert [told for _, told in seen] == [None, seen[1][1], soon]
    assert [seconds for seconds, _ in seen[:2]] == [20.0, 20.0]
    assert 0 < seen[2][0] <= 10.0


def _states(nebis: Nebis) -> list[State]:
    backend = nebis.opened()[0].backend
    return [record.state for record in backend.sessions.run(backend.store.scan(Scan()))]
