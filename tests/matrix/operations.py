"""One operation of each kind: take money once, at the bank or in rows of one's own."""

import http.client
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from nebis import Attempt, Declared, Nebis, Opaque, Operation, Query, Rejected, hours
from nebis.effects import Fenced, Queryable, Recall, Sticky, SuccessOnly, Unrecoverable
from nebis.testing.bank import Bank
from nebis.testing.bank.books import Mode
from tests.matrix.mortal import Doom
from tests.matrix.points import Kind

MODES = {
    Kind.STICKY: Mode.STICKY,
    Kind.SUCCESS_ONLY: Mode.SUCCESS_ONLY,
    Kind.FENCED: Mode.FENCED,
    Kind.QUERYABLE: Mode.QUERYABLE,
    Kind.UNRECOVERABLE: Mode.OPAQUE,
    Kind.OPAQUE: Mode.OPAQUE,
}
RECALLS: dict[Kind, Recall] = {
    Kind.STICKY: Sticky(hours(24)),
    Kind.SUCCESS_ONLY: SuccessOnly(hours(24)),
    Kind.FENCED: Fenced(),
    Kind.QUERYABLE: Queryable(),
    Kind.UNRECOVERABLE: Unrecoverable(),
}


@dataclass(frozen=True)
class Receipt:
    """An answer that no other run gives."""

    charge: str
    attempt: int
    pid: int
    tenant: str
    reference: str


class Gateway(Exception):
    """A bank that did not say what it did."""


@dataclass(kw_only=True)
class Till:
    """Where money is taken, with a place to die before and after everything that can be seen from outside."""

    doom: Doom
    bank_port: int
    mode: Mode
    marker: str
    """How the store's driver writes a parameter."""
    timeout_seconds: float
    call: str = ""
    """The client's call that is being served, as the bank is told it."""

    def charge(self, reference: str, *, idempotency_key: str, fence: int = 0) -> str:
        """Charge at the bank."""
        connection = http.client.HTTPConnection("127.0.0.1", self.bank_port, timeout=self.timeout_seconds)
        headers = {"Idempotency-Key": idempotency_key, "Fence": str(fence), "Attempt": self.call}
        try:
            self.doom.pass_by("before send")
            connection.request("POST", f"/{self.mode}/charges", _body(reference), headers)
            self.doom.pass_by("after send")
            response = connection.getresponse()
            self.doom.pass_by("after reply")
            said: dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status == 402:
            raise Rejected("declined")
        if response.status != 201:
            raise Gateway(response.status)
        return str(said["charge"])

    def find(self, key: str) -> str | None:
        """Ask the bank what became of a key."""
        charged = Bank(self.bank_port).find(key)
        return None if charged is None else str(charged["charge"])

    def void(self, key: str) -> bool:
        """Have the bank burn a key."""
        return Bank(self.bank_port).void(key)

    def insert(self, connection: Any, reference: str) -> str:
        """Charge by a row of one's own, in the transaction of the step."""
        self.doom.pass_by("before send")
        self._write(connection, reference, "charge")
        self.doom.pass_by("after send")
        [rows] = connection.execute("SELECT count(*) FROM takings").fetchone()
        self.doom.pass_by("after reply")
        return f"row-{rows}"

    def settle(self, connection: Any, reference: str) -> None:
        """Write the row that goes with the outcome."""
        self._write(connection, reference, "settle")
        self.doom.pass_by("inside settle")

    def _write(self, connection: Any, reference: str, kind: str) -> None:
        marker = self.marker
        connection.execute(
            f"INSERT INTO takings (reference, kind, call) VALUES ({marker}, {marker}, {marker})",
            (reference, kind, self.call),
        )


def _body(reference: str) -> str:
    return json.dumps({"reference": reference, "amount": 1})


def declare(nebis: Nebis, kind: Kind, till: Till, lease: timedelta, *, persists: bool) -> Operation[str, Receipt]:
    """Declare the operation of that kind; one that persists asks again after a call without an answer."""
    handlers: dict[Kind, Callable[[Attempt, str], Receipt]] = {
        Kind.TRANSACTIONAL: lambda attempt, command: _by_rows(till, attempt, command),
        Kind.OPAQUE: lambda attempt, command: _blindly(till, attempt, command),
    }

    def by_effect(attempt: Attempt, command: str) -> Receipt:
        def charge() -> str:
            charged: str = attempt.effect("charge", till.charge, command, recall=RECALLS[kind])
            return charged

        try:
            charged = charge()
        except OSError:
            if not persists:
                raise
            charged = charge()
        return _receipt(attempt, command, charged)

    handle = handlers.get(kind, by_effect)

    @nebis.operation(
        f"take-{kind}",
        effects=Opaque if kind is Kind.OPAQUE else Declared,
        lease=lease,
        renewal=lease / 3,
        effect_timeout=lease / 2,
        queries={"charge": Query(find=till.find, void=till.void)} if kind is Kind.QUERYABLE else None,
    )
    def take(attempt: Attempt, command: str) -> Receipt:
        return handle(attempt, command)

    return take


def _by_rows(till: Till, attempt: Attempt, command: str) -> Receipt:
    charged: str = attempt.step("charge", till.insert, command)
    receipt = _receipt(attempt, command, charged)
    with attempt.transaction() as transaction:
        till.settle(transaction.connection, command)
        transaction.finish(receipt)
    return receipt


def _blindly(till: Till, attempt: Attempt, command: str) -> Receipt:
    return _receipt(attempt, command, till.charge(command, idempotency_key=attempt.operation_id))


def _receipt(attempt: Attempt, command: str, charge: str) -> Receipt:
    return Receipt(
        charge=charge, attempt=attempt.number, pid=os.getpid(), tenant=f"acct of {command}", reference=command
    )
