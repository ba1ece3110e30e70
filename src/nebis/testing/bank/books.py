"""What the bank writes down: every request, every reply and every movement of money, none of it ever changed."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Mode(StrEnum):
    """How much the bank remembers of a call."""

    OPAQUE = "opaque"
    STICKY = "sticky"
    SUCCESS_ONLY = "success_only"
    FENCED = "fenced"
    QUERYABLE = "queryable"


_REMEMBER_SUCCESS = frozenset({Mode.STICKY, Mode.SUCCESS_ONLY, Mode.FENCED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to move money."""

    mode: Mode
    reference: str
    amount: int
    key: str | None
    fence: int | None
    attempt: str | None
    """Whatever the caller calls its own try; only written down."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the bank says."""

    status: int
    body: dict[str, Any]


_SCHEMA = """
CREATE TABLE IF NOT EXISTS request (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, mode TEXT NOT NULL, reference TEXT NOT NULL, amount INTEGER NOT NULL,
    key TEXT, fence INTEGER, attempt TEXT, behaviour TEXT
);
CREATE TABLE IF NOT EXISTS reply (
    request INTEGER PRIMARY KEY REFERENCES request (number), at REAL NOT NULL, status INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS ledger (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, mode TEXT NOT NULL, reference TEXT NOT NULL, amount INTEGER NOT NULL,
    key TEXT, fence INTEGER, attempt TEXT, charge TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS remembered (
    mode TEXT NOT NULL, key TEXT NOT NULL, reference TEXT NOT NULL, amount INTEGER NOT NULL, charge TEXT,
    PRIMARY KEY (mode, key)
);
CREATE TABLE IF NOT EXISTS seen_fence (key TEXT PRIMARY KEY, fence INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS voided (key TEXT PRIMARY KEY);
"""
_APPEND_ONLY = ("request", "reply", "ledger")


class Books:
    """The bank's file. One writer at a time; each write is on the disk before its method returns."""

    def __init__(self, file: Path) -> None:
        self._turn = threading.Lock()
        self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(_SCHEMA)
        for table in _APPEND_ONLY:
            for change in ("UPDATE", "DELETE"):
                self._connection.execute(
                    f"CREATE TRIGGER IF NOT EXISTS no_{change}_of_{table} BEFORE {change} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, 'the books are only ever appended to'); END"
                )

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._connection.close()

    def arrived(self, call: Call, behaviour: str | None) -> int:
        """Write down that a call came in, before anything is done about it, and return its number."""
        with self._writing() as write:
            return write(
                "INSERT INTO request (at, mode, reference, amount, key, fence, attempt, behaviour)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*self._marks(call), behaviour),
            )

    def refuse(self, number: int, status: int, why: str) -> Reply:
        """Say no without looking at the call: nothing is charged and nothing remembered."""
        with self._writing() as write:
            return self._replied(write, number, Reply(status, {"error": why}))

    def serve(self, number: int, call: Call, *, declines: bool) -> Reply:
        """Charge, decline, or repeat an earlier answer, as the mode says; all in one commit."""
        with self._writing() as write:
            reply = self._known(call)
            if reply is None:
                reply = self._decline(write, call) if declines else self._charge(write, number, call)
            return self._replied(write, number, reply)

    def void(self, key: str) -> Reply:
        """Burn a key so that nothing can happen under it any more; refuse if it already did."""
        with self._writing() as write:
            charge = self._charge_under(Mode.QUERYABLE, key)
            if charge is not None:
                return Reply(409, {"error": "already charged", **charge})
            write("INSERT INTO voided (key) VALUES (?) ON CONFLICT DO NOTHING", (key,))
            return Reply(200, {"voided": True})

    def find(self, key: str) -> Reply:
        """Look a charge up by the key that it was made under."""
        with self._turn:
            charge = self._charge_under(Mode.QUERYABLE, key)
        return Reply(404, {"error": "no such charge"}) if charge is None else Reply(200, charge)

    def ledger(self, reference: str | None = None) -> list[dict[str, Any]]:
        """Return every movement of money in the order in which it happened."""
        return self._read("SELECT * FROM ledger WHERE ?1 IS NULL OR reference = ?1 ORDER BY number", reference)

    def requests(self, reference: str | None = None) -> list[dict[str, Any]]:
        """Return every call in the order of arrival; its status is null while it has no reply."""
        return self._read(
            "SELECT request.*, reply.status FROM request LEFT JOIN reply ON reply.request = request.number"
            " WHERE ?1 IS NULL OR reference = ?1 ORDER BY number",
            reference,
        )

    def _known(self, call: Call) -> Reply | None:
        """Return the answer that the mode's memory holds for this call, or None to decide it now."""
        if call.mode is Mode.QUERYABLE and self._one("SELECT 1 FROM voided WHERE key = ?", call.key):
            return Reply(410, {"error": "this key was voided"})
        if call.mode is Mode.FENCED:
            assert call.fence is not None
            seen = self._one("SELECT fence FROM seen_fence WHERE key = ?", call.key)
            if seen is not None and call.fence < seen["fence"]:
                return Reply(409, {"error": "a newer fence was seen"})
            self._connection.execute(
                "INSERT INTO seen_fence (key, fence) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET fence = ?2",
                (call.key, call.fence),
            )
        known = self._one("SELECT * FROM remembered WHERE (mode, key) = (?, ?)", call.mode, call.key)
        if known is None:
            return None
        if (known["reference"], known["amount"]) != (call.reference, call.amount):
            return Reply(422, {"error": "this key was used for another charge"})
        if known["charge"] is None:
            return Reply(402, {"declined": "insufficient funds"})
        return Reply(201, {"charge": known["charge"], "amount": call.amount})

    def _charge(self, write: Write, number: int, call: Call) -> Reply:
        charge = f"ch_{number}"
        write(
            "INSERT INTO ledger (at, mode, reference, amount, key, fence, attempt, charge)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*self._marks(call), charge),
        )
        if call.mode in _REMEMBER_SUCCESS:
            self._remember(write, call, charge)
        return Reply(201, {"charge": charge, "amount": call.amount})

    def _decline(self, write: Write, call: Call) -> Reply:
        if call.mode is Mode.STICKY:
            self._remember(write, call, None)
        return Reply(402, {"declined": "insufficient funds"})

    def _remember(self, write: Write, call: Call, charge: str | None) -> None:
        write(
            "INSERT INTO remembered (mode, key, reference, amount, charge) VALUES (?, ?, ?, ?, ?)",
            (call.mode, call.key, call.reference, call.amount, charge),
        )

    def _replied(self, write: Write, number: int, reply: Reply) -> Reply:
        write("INSERT INTO reply (request, at, status) VALUES (?, ?, ?)", (number, time.time(), reply.status))
        return reply

    def _charge_under(self, mode: Mode, key: str) -> dict[str, Any] | None:
        found = self._one("SELECT charge, amount FROM ledger WHERE (mode, key) = (?, ?)", mode, key)
        return None if found is None else dict(found)

    def _marks(self, call: Call) -> tuple[object, ...]:
        return time.time(), call.mode, call.reference, call.amount, call.key, call.fence, call.attempt

    def _one(self, statement: str, *values: object) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self._connection.execute(statement, values).fetchone()
        return found

    def _read(self, statement: str, reference: str | None) -> list[dict[str, Any]]:
        with self._turn:
            return [dict(row) for row in self._connection.execute(statement, (reference,))]

    @contextmanager
    def _writing(self) -> Iterator[Write]:
        with self._turn:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield Write(self._connection)
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


@dataclass(frozen=True, slots=True)
class Write:
    """The right to write, for as long as one transaction lasts."""

    connection: sqlite3.Connection

    def __call__(self, statement: str, values: tuple[object, ...]) -> int:
        """Write one row and return its number."""
        number = self.connection.execute(statement, values).lastrowid
        assert number is not None
        return number
