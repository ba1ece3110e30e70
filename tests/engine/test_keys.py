"""Whose a key is, what it stands for, and what is the same on every attempt."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from nebis import (
    InDoubt,
    KeyMalformed,
    KeyReused,
    MisuseError,
    Opaque,
    PerAccount,
    PerOperation,
    PerResourceType,
    Rejected,
    Retryable,
)
from nebis.core.identity import Scope
from nebis.core.record import Resource
from tests.engine.faces import Face, View
from tests.engine.handlers import PATIENCE_SECONDS, TEN, Charge, Gate, Runs, new_key, paying, raising, started


def test_command_is_compared_by_value_not_by_spelling(face: Face) -> None:
    runs, key = Runs(), new_key()
    pay = face.operation(paying(runs))
    pay(key=key, command=Charge(Decimal("10.00")))

    assert pay.execute(key=key, command=Charge(Decimal("10.0"), "EUR")).is_replay
    assert runs.number == 1


def test_quoted_and_bare_spelling_are_the_same_key(face: Face) -> None:
    runs, key = Runs(), new_key()
    pay = face.operation(paying(runs))
    pay(key=key, command=TEN)

    assert pay.execute(key=f'"{key}"', command=TEN).is_replay


@pytest.mark.parametrize("state", ["in progress", "available", "in doubt", "completed", "rejected"])
def test_key_with_another_command_is_refused_in_every_state(face: Face, state: str) -> None:
    """F105, I5: compared before the state, so that misuse never hides behind another answer."""
    runs, key, gate = Runs(), new_key(), Gate()
    pool: ThreadPoolExecutor | None = None
    match state:
        case "in progress":
            operation, first, pool = started(face, gate, key)
        case "available":
            operation = face.operation(raising(Retryable("busy"), runs))
        case "in doubt":
            operation = face.operation(raising(ValueError("a bug"), runs), effects=Opaque)
        case "completed":
            operation = face.operation(paying(runs))
        case _:
            operation = face.operation(raising(Rejected("declined"), runs))
    if pool is None:
        with suppress(Retryable, InDoubt, Rejected):
            operation(key=key, command=TEN)
    before = runs.number

    with pytest.raises(KeyReused):
        operation(key=key, command=Charge(Decimal(11)))

    assert runs.number == before
    if pool is not None:
        gate.may_end.set()
        assert first.result(PATIENCE_SECONDS) == 1
        pool.shutdown()


@pytest.mark.parametrize(
    ("scope", "runs_twice"), [(PerOperation(), True), (PerResourceType("payment"), False), (PerAccount(), False)]
)
def test_same_key_on_two_operations(face: Face, scope: Scope, runs_twice: bool) -> None:
    runs, key = Runs(), new_key()
    charge = face.operation(paying(runs), scope=scope)
    refund = face.operation(paying(runs), scope=scope)
    charge(key=key, command=TEN)

    if runs_twice:
        refund(key=key, command=TEN)
    else:
        with pytest.raises(KeyReused):
            refund(key=key, command=TEN)

    assert runs.number == (2 if runs_twice else 1)


def test_tenants_never_meet(face: Face) -> None:
    """SEC01, I12: the same keys and commands, interleaved, in several threads."""
    keys = 1000 if face.url == "memory://" else 25
    tenants = ["acct_1", "acct_2"]
    runs = Runs()

    def whose(attempt: View, command: str) -> str:
        return f"{command} {runs.count()}"

    operation = face.operation(whose)
    asked = [(tenant, f"key-of-everybody-{number:06}") for number in range(keys) for tenant in tenants]

    with ThreadPoolExecutor(8) as pool:
        first = list(pool.map(lambda ask: operation(key=ask[1], tenant=ask[0], command="pay"), asked))
        again = list(pool.map(lambda ask: operation(key=ask[1], tenant=ask[0], command="pay"), asked))

    assert runs.number == 2 * keys
    assert first == again
    assert len(set(first)) == 2 * keys


@pytest.mark.parametrize("tenant", ["", "x" * 256, "zero\x00", "half\ud800"])
def test_tenant_that_cannot_own_keys_is_refused(face: Face, tenant: str) -> None:
    """SEC02."""
    operation = face.operation(paying(Runs()))

    with pytest.raises(MisuseError, match="tenant"):
        operation(key=new_key(), tenant=tenant, command=TEN)


def test_resource_is_visible_while_the_attempt_runs_and_afterwards(face: Face) -> None:
    seen = []

    def look(attempt: View, command: Charge) -> int:
        seen.append(face.record(attempt.operation_id).resource)
        return 1

    operation = face.operation(look, resource=("invoice", "in_1"))

    execution = operation.execute(key=new_key(), command=TEN)

    invoice = Resource(type="invoice", id="in_1")
    assert seen == [invoice]
    assert face.record(execution.operation_id).resource == invoice


@pytest.mark.parametrize("resource", [("", "x"), ("invoice", "x" * 256), ("invoice", "zero\x00")])
def test_resource_that_no_store_can_keep_is_refused_and_nothing_is_lost(face: Face, resource: tuple[str, str]) -> None:
    key = new_key()
    operation = face.operation(paying(Runs()), resource=resource)

    for _ in range(2):
        with pytest.raises(MisuseError, match="resource"):
            operation(key=key, command=TEN)


def test_ids_and_time_are_the_same_on_every_attempt(face: Face) -> None:
    seen = []

    def look(attempt: View, command: Charge) -> int:
        seen.append((attempt.new_id("payment"), attempt.new_id("refund"), attempt.time, attempt.operation_id))
        numbers.append((attempt.number, attempt.fence))
        if len(seen) < 3:
            raise Retryable("busy")
        return 1

    numbers = list[tuple[int, int]]()
    operation, key = face.operation(look), new_key()
    for _ in range(2):
        with pytest.raises(Retryable):
            operation(key=key, command=TEN)
    operation(key=key, command=TEN)

    assert len(set(seen)) == 1
    payment, refund, time, _ = seen[0]
    assert payment != refund
    assert abs(time - datetime.now(UTC)) < timedelta(hours=1)
    assert [number for number, _ in numbers] == [1, 2, 3]
    assert numbers == sorted(numbers, key=lambda pair: pair[1])
    assert len({fence for _, fence in numbers}) == 3


def test_short_keys_are_refused_where_the_policy_asks_for_long_ones(face: Face) -> None:
    """SEC06."""
    operation = face.operation(paying(Runs()), shortest_key=16)

    with pytest.raises(KeyMalformed, match="at least 16"):
        operation(key="short", command=TEN)
