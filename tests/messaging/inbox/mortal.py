"""Takes deliveries in children, each of which is killed at another moment.

`python -m tests.messaging.inbox.mortal` reads one order as JSON and prints, for each message, how its child ended. The
last child is killed at no moment, because it ran out of them.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from nebis import Attempt, Declared, Delivery, Incoming, Later, Local, Nebis, ParkReason
from nebis.declaration import PolicyOptions
from nebis.runtime.blocking import BlockingTurn
from nebis.stores.sql.postgres.transactions_psycopg import BlockingPsycopgTransactions
from nebis.stores.sql.sqlite.transactions import SqliteTransaction
from tests.messaging.inbox.offices import QUICK, STICKY, PaymentCreated

CONSUMER = "ledger"
LEASE = PolicyOptions(
    lease=timedelta(milliseconds=300), renewal=timedelta(milliseconds=100), effect_timeout=timedelta(milliseconds=200)
)
"""Whoever follows a dead owner need not wait for long."""
SCHEMA = "CREATE TABLE applied (payment text NOT NULL)"
"""Without any key: a second row would be seen."""
MOMENTS: tuple[tuple[type, str], ...] = (
    (BlockingPsycopgTransactions, "perform"),
    (SqliteTransaction, "_perform"),
    (SqliteTransaction, "commit"),
)


def open_ledger(url: str, folder: str, mode: str, *, attempts_limit: int = 10) -> tuple[Nebis, Any]:
    """Declare the consumer: a call outside that leaves a file under its key, and a row in the store's database."""
    nebis = Nebis(url, housekeeping=False)

    def tell(payment: str, *, idempotency_key: str) -> str:
        with Path(folder, f"{payment}-{idempotency_key}").open("a") as told:
            told.write(".")
        return payment

    policy = PolicyOptions(**QUICK, **LEASE, single_transaction=mode == "single")

    @nebis.consumer(
        CONSUMER,
        effects=Local if mode == "single" else Declared,
        sequence=mode == "sequence",
        attempts_limit=attempts_limit,
        **policy,
    )
    def ledger(attempt: Attempt, message: Incoming[PaymentCreated]) -> None:
        if mode != "single":
            attempt.effect("tell", tell, message.payload.payment, recall=STICKY)
        with attempt.transaction() as tx:
            tx.connection.execute(f"INSERT INTO applied VALUES ('{message.payload.payment}')")
            tx.finish(None)

    return nebis, ledger


def message(number: int, mode: str, **changes: Any) -> Delivery:
    """Return the n-th message; each has a partition of its own, where offsets count."""
    place = {"partition": f"{number}", "offset": 5} if mode == "sequence" else {}
    body = f'{{"payment": "p-{number:03}", "cents": 1}}'.encode()
    return Delivery(**{"payload": body, "topic": "payments", "id": f"m-{number:03}", **place, **changes})


class Executioner:
    """Kills this process at the n-th moment: before something that the engine asks for, or after the last of it."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._passed = 0

    def watch(self, owner: type, name: str) -> None:
        setattr(owner, name, self._watched(getattr(owner, name)))

    def watch_turns(self) -> None:
        BlockingTurn.performs = {kind: self._watched(act) for kind, act in BlockingTurn.performs.items()}

    def _watched(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            self.pass_moment()
            return act(*arguments)

        return watched

    def pass_moment(self) -> None:
        self._passed += 1
        if self._passed == self._at:
            signal.raise_signal(signal.SIGKILL)


def live(url: str, folder: str, mode: str, number: int) -> None:
    nebis, ledger = open_ledger(url, folder, mode)
    nebis.open()
    executioner = Executioner(number)
    executioner.watch_turns()
    for owner, name in MOMENTS:
        executioner.watch(owner, name)
    assert not isinstance(ledger.handle(message(number, mode)), Later)
    executioner.pass_moment()


def die(url: str, folder: str, mode: str) -> None:
    """Take a message in as often as it takes, with a handler that kills its process."""
    nebis, ledger = open_ledger(url, folder, mode, attempts_limit=2)
    with nebis:
        ledger._operation.handler = lambda *_: signal.raise_signal(signal.SIGKILL)
        while isinstance(verdict := ledger.handle(message(1, mode, redeliveries=1)), Later):
            time.sleep(verdict.after_seconds)  # A lease of the dead is over only when its time is.
        assert verdict.reason is ParkReason.ATTEMPTS_USED_UP


def child(work: Callable[[], None]) -> int:
    """Do something in a child and return how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a child never goes on as if it were its parent.
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    order = json.load(sys.stdin)
    is_deadly = order.pop("is_deadly")
    ends: list[int] = []
    for number in count(1):
        ends.append(child(lambda: die(**order) if is_deadly else live(**order, number=number)))  # noqa: B023 - it runs at once.
        if ends[-1] != -signal.SIGKILL:
            break
    json.dump(ends, sys.stdout)


if __name__ == "__main__":
    main()
