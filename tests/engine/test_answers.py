"""What callers of an operation are told: the result, its replay, and every reason to come back or to stop."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

import pytest

from nebis import (
    BodyTooLarge,
    Declared,
    Disposition,
    InDoubt,
    InFlight,
    KeyMalformed,
    KeyReused,
    Local,
    MisuseError,
    Opaque,
    PerAccount,
    PerOperation,
    PerResourceType,
    RecordCorrupt,
    Rejected,
    ResultUnstorable,
    Retryable,
    Wait,
)
from nebis.core.identity import Scope
from nebis.core.record import EffectsMode, Resource, State
from nebis.ports.observer import AttemptStarted, Completed, DoubtRaised, Released, Replayed, Withdrawn
from tests.engine.faces import Called, Face, View, new_name

PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Charge:
    amount: Decimal
    currency: str = "EUR"


@dataclass(frozen=True)
class Payment:
    id: UUID
    amount: Decimal
    at: datetime
    notes: tuple[str, ...] = ()


TEN = Charge(Decimal("10.00"))


def new_key() -> str:
    return str(uuid4())


class Runs:
    """Counts what really happened, outside any store."""

    def __init__(self) -> None:
        self.number = 0
        self._lock = threading.Lock()

    def count(self) -> int:
        with self._lock:
            self.number += 1
            return self.number


class Gate:
    """A handler that tells when it runs and ends when it may."""

    def __init__(self) -> None:
        self.runs = Runs()
        self.is_running, self.may_end = threading.Event(), threading.Event()

    def handle(self, attempt: View, command: Charge) -> int:
        number = self.runs.count()
        self.is_running.set()
        assert self.may_end.wait(PATIENCE_SECONDS)
        return number


def raising(error: Exception, runs: Runs) -> Callable[[View, Charge], int]:
    """Make a handler that raises once and then succeeds."""

    def handle(attempt: View, command: Charge) -> int:
        if runs.count() == 1:
            raise error
        return runs.number

    return handle


def paying(runs: Runs) -> Callable[[View, Charge], Payment]:
    def pay(attempt: View, command: Charge) -> Payment:
        number = runs.count()
        return Payment(attempt.new_id("payment"), command.amount, attempt.time, (f"run {number}", "ünïcode"))

    return pay


def started(face: Face, gate: Gate, key: str, **options: object) -> tuple[Called, Future[object], ThreadPoolExecutor]:
    """Start an operation and return once its handler runs."""
    operation = face.operation(gate.handle, **options)  # type: ignore[arg-type]  # Each test names real options.
    pool = ThreadPoolExecutor(8)
    first = pool.submit(operation, key=key, command=TEN)
    assert gate.is_running.wait(PATIENCE_SECONDS)
    return operation, first, pool


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


def test_twin_of_a_running_attempt_is_told_when_to_come_back(face: Face) -> None:
    gate, key = Gate(), new_key()
    operation, first, pool = started(face, gate, key)

    with pytest.raises(InFlight) as told:
        operation(key=key, command=TEN)

    assert 0 < told.value.retry_after_seconds <= 30
    assert face.record(told.value.operation_id).state is State.IN_PROGRESS
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


def test_rejection_is_stored_and_replayed(face: Face) -> None:
    runs, key = Runs(), new_key()
    operation = face.operation(raising(Rejected("declined", detail="insufficient funds"), runs))

    for _ in range(3):
        with pytest.raises(Rejected) as told:
            operation(key=key, command=TEN)
        assert (told.value.reason, told.value.detail) == ("declined", "insufficient funds")

    assert runs.number == 1


@pytest.mark.parametrize("effects", [Local, Declared])
def test_retryable_gives_the_key_back(face: Face, effects: EffectsMode) -> None:
    runs, key = Runs(), new_key()
    operation = face.operation(raising(Retryable("busy"), runs), effects=effects)

    with pytest.raises(Retryable, match="busy"):
        operation(key=key, command=TEN)

    assert operation(key=key, command=TEN) == 2
    assert operation(key=key, command=TEN) == 2
    assert Released in {type(event) for event in face.told}


@pytest.mark.parametrize("effects", [Local, Declared])
def test_exception_of_a_clean_attempt_reaches_its_caller_and_gives_the_key_back(
    face: Face, effects: EffectsMode
) -> None:
    runs, key, bug = Runs(), new_key(), ZeroDivisionError("a bug")
    operation = face.operation(raising(bug, runs), effects=effects)

    with pytest.raises(ZeroDivisionError) as told:
        operation(key=key, command=TEN)

    assert told.value is bug
    assert operation(key=key, command=TEN) == 2


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), Retryable("nothing happened, it says")])
def test_exception_of_an_opaque_operation_is_in_doubt_for_ever(face: Face, error: Exception) -> None:
    """F004: nobody knows what happened, so it never runs again."""
    runs, key = Runs(), new_key()
    operation = face.operation(raising(error, runs), effects=Opaque)
    reasons = set()

    for _ in range(3):
        with pytest.raises(InDoubt) as told:
            operation(key=key, command=TEN)
        reasons.add(told.value.reason)
        assert told.value.operation_id is not None

    assert runs.number == 1
    assert len(reasons) == 1
    assert face.record(str(told.value.operation_id)).state is State.IN_DOUBT
    assert DoubtRaised in {type(event) for event in face.told}


@pytest.mark.parametrize("effects", [Local, Declared, Opaque])
def test_handler_that_says_in_doubt_is_believed(face: Face, effects: EffectsMode) -> None:
    runs, key = Runs(), new_key()
    operation = face.operation(raising(InDoubt("gateway-timeout"), runs), effects=effects)

    for _ in range(2):
        with pytest.raises(InDoubt) as told:
            operation(key=key, command=TEN)
        assert told.value.reason == "gateway-timeout"

    assert runs.number == 1


def test_withdrawn_request_may_be_corrected_under_the_same_key(face: Face) -> None:
    runs, key = Runs(), new_key()

    def hook(error: Exception) -> Disposition:
        return Disposition.WITHDRAW if isinstance(error, ValueError) else Disposition.BY_MODE

    operation = face.operation(raising(ValueError("amount is negative"), runs), classify=hook)

    with pytest.raises(ValueError, match="negative"):
        operation(key=key, command=Charge(Decimal(-1)))

    assert operation(key=key, command=TEN) == 2
    assert Withdrawn in {type(event) for event in face.told}


def test_hook_may_turn_an_error_of_the_application_into_a_rejection(face: Face) -> None:
    """SEC24: of a foreign exception only the type is kept."""
    runs, key = Runs(), new_key()

    class CardDeclined(Exception):
        detail: object = {"card": "4111 1111 1111 1111"}

    operation = face.operation(raising(CardDeclined("4111"), runs), classify=lambda _: Disposition.REJECT)

    for _ in range(2):
        with pytest.raises(Rejected) as told:
            operation(key=key, command=TEN)
        assert told.value.reason == "CardDeclined"
        assert "4111" not in repr(told.value)

    assert runs.number == 1


def test_result_that_cannot_be_stored_is_final_for_first_and_later_callers(face: Face) -> None:
    """O6: the work was done, so it never runs again."""
    runs, key = Runs(), new_key()

    def wrong(attempt: View, command: Charge) -> int:
        runs.count()
        return "not an int"  # type: ignore[return-value]  # The point.

    operation = face.operation(wrong)
    texts = set()

    for _ in range(3):
        with pytest.raises(ResultUnstorable) as told:
            operation(key=key, command=TEN)
        texts.add(str(told.value))

    assert runs.number == 1
    assert len(texts) == 1


def test_result_above_its_limit_is_final_too(face: Face) -> None:
    """F047: decided before anything is stored."""
    runs, key = Runs(), new_key()

    def large(attempt: View, command: Charge) -> str:
        runs.count()
        return "x" * 2000

    operation = face.operation(large, result_limit_bytes=1000)

    for _ in range(2):
        with pytest.raises(ResultUnstorable, match="1000 are allowed"):
            operation(key=key, command=TEN)

    assert runs.number == 1


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


def test_damaged_outcome_is_reported_and_never_run_again(face: Face) -> None:
    """F011: one flipped bit in the stored bytes."""
    runs, key = Runs(), new_key()
    operation = face.operation(paying(runs))
    execution = operation.execute(key=key, command=TEN)
    face.damage(face.record(execution.operation_id))

    for _ in range(2):
        with pytest.raises(RecordCorrupt):
            operation(key=key, command=TEN)

    assert runs.number == 1


def test_short_keys_are_refused_where_the_policy_asks_for_long_ones(face: Face) -> None:
    """SEC06."""
    operation = face.operation(paying(Runs()), shortest_key=16)

    with pytest.raises(KeyMalformed, match="at least 16"):
        operation(key="short", command=TEN)


def test_of_many_racing_twins_one_runs(face: Face) -> None:
    """G1, G2: every answer is the one outcome, or says to come back."""
    runs, key = Runs(), new_key()
    operation = face.operation(paying(runs), in_flight=Wait(longest=timedelta(seconds=30)))

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: operation(key=key, command=TEN), range(24)))

    assert runs.number == 1
    assert len(set(results)) == 1
