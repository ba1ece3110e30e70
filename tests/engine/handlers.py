"""Commands, results and handlers that the behaviours of the engine share."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID, uuid4

from tests.engine.faces import Called, Face, View

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
