"""What callers of an operation are told: the result, its replay, and when to come back."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal

import pytest

from nebis import (
    BodyTooLarge,
    InFlight,
    Wait,
)
from nebis.core.record import State
from nebis.ports.observer import AttemptStarted, Completed, Replayed
from tests.engine.faces import Face, View, new_name
from tests.engine.handlers import PATIENCE_SECONDS, TEN, Charge, Gate, Payment, Runs, new_key, paying, started


def test_first_call_and_replay_are_equal_in_type_and_value(face: Face) -> None:
    runs, key = Runs(), new_key()
    pay = face.operation(paying(runs))

    first = pay.execute(key=key, command=TEN)
    again = pay.execute(key=key, command=TEN)

    assert runs.number == 1
    assert not first.is_replay
    assert again.is_replay
    assert first.result == again.result
    assert type(first.result) is type(again.result) is Payment
    assert str(first.result.amount) == str(again.result.amount) == "10.00"
    assert type(first.result.notes) is type(again.result.notes) is tuple
    assert first.operation_id == again.operation_id
    assert [type(event) for event in face.told if event.operation_id == first.operation_id] == [
        AttemptStarted,
        Completed,
        Replayed,
    ]


def test_twin_of_a_running_attempt_is_told_when_to_come_back(face: Face) -> None:
    gate, key = Gate(), new_key()
    operation, first, pool = started(face, gate, key)

    with pytest.raises(InFlight) as told:
        operation(key=key, command=TEN)

    assert 0 < told.value.retry_after_seconds <= 30
    assert face.record(str(told.value.operation_id)).state is State.IN_PROGRESS
    gate.may_end.set()
    assert first.result(PATIENCE_SECONDS) == 1
    assert operation(key=key, command=TEN) == 1
    pool.shutdown()


def test_twins_that_wait_are_answered_with_the_one_outcome(face: Face) -> None:
    gate, key = Gate(), new_key()
    operation, first, pool = started(face, gate, key, in_flight=Wait(longest=timedelta(seconds=30)))

    waiters = [pool.submit(operation.execute, key=key, command=TEN) for _ in range(4)]
    gate.may_end.set()

    assert first.result(PATIENCE_SECONDS) == 1
    executions = [waiter.result(PATIENCE_SECONDS) for waiter in waiters]
    assert {execution.result for execution in executions} == {1}
    assert gate.runs.number == 1
    pool.shutdown()


def test_twin_that_waited_for_long_enough_is_told_to_come_back(face: Face) -> None:
    gate, key = Gate(), new_key()
    operation, first, pool = started(face, gate, key, in_flight=Wait(longest=timedelta(milliseconds=60)))

    with pytest.raises(InFlight):
        operation(key=key, command=TEN)

    gate.may_end.set()
    first.result(PATIENCE_SECONDS)
    pool.shutdown()


def test_twin_in_another_process_waits_too(fresh: Callable[..., Face]) -> None:
    """With and without a wake-up between processes: polling is the truth (F026)."""
    gate, key, name = Gate(), new_key(), new_name()
    waiting = fresh().operation(gate.handle, name=name, in_flight=Wait(longest=timedelta(seconds=30)))
    _, first, pool = started(fresh(), gate, key, name=name)

    waiter = pool.submit(waiting.execute, key=key, command=TEN)
    gate.may_end.set()

    assert waiter.result(PATIENCE_SECONDS).result == first.result(PATIENCE_SECONDS) == 1
    assert gate.runs.number == 1
    pool.shutdown()


def test_command_above_its_limit_is_refused_before_anything_is_stored(face: Face) -> None:
    runs = Runs()
    operation = face.operation(paying(runs), command_limit_bytes=20)

    with pytest.raises(BodyTooLarge):
        operation(key=new_key(), command=Charge(Decimal(1), "X" * 100))

    assert runs.number == 0


def test_large_result_comes_back_whole(face: Face) -> None:
    text = "".join(chr(0x20 + number % 90) for number in range(1_000_000))

    def large(attempt: View, command: Charge) -> str:
        return text

    operation, key = face.operation(large), new_key()

    assert operation(key=key, command=TEN) == text
    assert operation(key=key, command=TEN) == text


def test_of_many_racing_twins_one_runs(face: Face) -> None:
    """G1, G2: every answer is the one outcome, or says to come back."""
    runs, key = Runs(), new_key()
    operation = face.operation(paying(runs), in_flight=Wait(longest=timedelta(seconds=30)))

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: operation(key=key, command=TEN), range(24)))

    assert runs.number == 1
    assert len(set(results)) == 1
