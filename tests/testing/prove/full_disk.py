"""A service whose store is on a disk that fills up, at one moment after the other, and is given space again.

    python -m tests.testing.prove.full_disk sqlite|postgres BANK_PORT HOME mounted|limited

It says what its clients were told, as JSON by moment: before the disk was full, while it was, and afterwards.
"""

import hashlib
import json
import secrets
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import psycopg

from nebis import Attempt, Declared, Nebis, Operation, Sticky, hours, seconds
from nebis.declaration import PolicyOptions
from nebis.testing.bank import Bank
from nebis.testing.bank.books import Mode
from nebis.testing.quiet import quiet
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer
from tests.testing.prove.small_disk import LimitedFiles, SmallDisk

SIZES = {"sqlite": "8m", "postgres": "160m"}
TENANT = "acct_1"
LARGE_BYTES = 100_000
"""Of every command, result and row: more than any store holds in reserve."""
PATIENCE_SECONDS = 30
POLICY = PolicyOptions(lease=seconds(1.5), renewal=seconds(0.5), effect_timeout=seconds(1), confirm=seconds(0.3))


class Moment(StrEnum):
    """When the last byte of the disk is taken."""

    BEFORE_CLAIM = "before-claim"
    IN_CALL = "in-call"
    """The bank has charged, and nothing about that is stored."""
    AFTER_CALL = "after-call"
    IN_TRANSACTION = "in-transaction"
    """Between a row of the handler's own and the commit."""
    LOG = "log"
    """Before the claim; and the server's log needs another file, without which the server gives up."""

    @property
    def key(self) -> str:
        """The key that meets a full disk."""
        return f"key-of-{self}"

    @property
    def earlier_key(self) -> str:
        """A key that was answered before."""
        return f"key-from-before-{self}"


@dataclass
class Service:
    """Takes money at the bank, or in rows of its own."""

    nebis: Nebis
    marker: str
    """How the store's driver writes a parameter."""
    bank: Bank
    moment: Moment
    fill: Callable[[], None]
    is_filled: bool = False
    runs: list[str] = field(default_factory=list)
    """The key of every run of a handler."""

    def passes(self, moment: Moment, reference: str) -> None:
        """Fill the disk if this is the moment, once."""
        if moment is self.moment and reference == moment.key and not self.is_filled:
            self.is_filled = True
            self.fill()

    def declare(self) -> Operation[str, str]:
        """Declare the operation in which the moment comes."""
        handle = self._book if self.moment is Moment.IN_TRANSACTION else self._pay

        @self.nebis.operation("pay", effects=Declared, **POLICY)
        def pay(attempt: Attempt, command: str) -> str:
            reference = command.partition(" ")[0]
            self.runs.append(reference)
            return handle(attempt, reference)

        return pay

    def _pay(self, attempt: Attempt, reference: str) -> str:
        charged = attempt.effect("charge", self._charge, reference, recall=Sticky(hours(24)))
        self.passes(Moment.AFTER_CALL, reference)
        return f"{charged} {secrets.token_hex(LARGE_BYTES)}"

    def _charge(self, reference: str, *, idempotency_key: str) -> str:
        charged = str(self.bank.charge(Mode.STICKY, reference, key=idempotency_key).body["charge"])
        self.passes(Moment.IN_CALL, reference)
        return charged

    def _book(self, attempt: Attempt, reference: str) -> str:
        receipt = secrets.token_hex(LARGE_BYTES)
        with attempt.transaction() as transaction:
            transaction.connection.execute(f"INSERT INTO takings (reference) VALUES ({self.marker})", (reference,))
            self.passes(Moment.IN_TRANSACTION, reference)
            transaction.finish(receipt)
        return receipt


class Client:
    """Asks, and writes down what it is told."""

    def __init__(self, pay: Operation[str, str]) -> None:
        self._pay = pay

    def ask(self, key: str) -> dict[str, Any]:
        """Ask once."""
        command = f"{key} {hashlib.shake_256(key.encode()).hexdigest(LARGE_BYTES)}"
        try:
            execution = self._pay.execute(key=key, tenant=TENANT, command=command)
        except Exception as error:  # noqa: BLE001 - whatever a client is told is what this is about.
            return {"error": type(error).__name__, "says": str(error)}
        return {"answer": hashlib.sha256(execution.result.encode()).hexdigest(), "is_replay": execution.is_replay}

    def insist(self, key: str) -> dict[str, Any]:
        """Ask until there is an answer, as a client that is told to come back does."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "answer" not in (told := self.ask(key)) and time.monotonic() < deadline:
            time.sleep(0.1)  # The lease of an attempt that could not be ended must pass.
        return told


class Place:
    """Where the store of each moment is."""

    def __init__(self, home: Path, server: PostgresServer | None) -> None:
        self._home = home
        self.server = server
        self.marker = "?" if server is None else "%s"

    def make(self, moment: Moment) -> str:
        """Make an empty store, with a table of the application beside it."""
        url = f"sqlite:///{self._home / moment}.db" if self.server is None else self.server.create_database()
        with Nebis(url, housekeeping=False), closing(self.connect(url)) as connection:
            connection.execute("CREATE TABLE takings (reference TEXT NOT NULL)")
            connection.commit()
        return url

    def connect(self, url: str) -> Any:
        """Open a connection of our own."""
        return psycopg.connect(url) if self.server else sqlite3.connect(url.removeprefix("sqlite:///"))

    @contextmanager
    def without_reserve(self, url: str) -> Iterator[None]:
        """Let every write need new space.

        A log that was copied is written again from its beginning, and the last one that leaves takes it away; neither
        happens while somebody reads what is older than the log, as a backup does.
        """
        if self.server is not None:
            yield
            return
        with closing(self.connect(url)) as connection:
            assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
            connection.execute("BEGIN")
            connection.execute("SELECT * FROM takings").fetchall()
            yield

    def rows(self, url: str) -> list[str]:
        """Return the reference of every row of the application."""
        with closing(self.connect(url)) as connection:
            return [reference for (reference,) in connection.execute("SELECT reference FROM takings").fetchall()]

    def break_log(self, url: str) -> bool:
        """Have the server need another file for its log; tell whether that was its end."""
        with closing(self.connect(url)) as connection:
            connection.autocommit = True
            connection.execute("SELECT pg_switch_wal()")
            try:
                connection.execute("SELECT pg_logical_emit_message(true, 'nebis', 'the first word of another file')")
            except psycopg.OperationalError:
                return bool(connection.broken)
        return False

    def recover(self) -> None:
        """Start the server again, as whoever made space does: it may have given up for good."""
        assert self.server is not None
        self.server.restart(immediate=True)


def play(place: Place, moment: Moment, bank: Bank, disk: SmallDisk | LimitedFiles) -> dict[str, Any]:
    """Answer one key, fill the disk in the middle of another, ask for both, give the space back, ask again."""
    url = place.make(moment)
    with Nebis(url, housekeeping=False) as nebis:
        service = Service(nebis, place.marker, bank, moment, disk.fill)
        client = Client(service.declare())
        before = client.ask(moment.earlier_key)

        with place.without_reserve(url):
            if moment in (Moment.BEFORE_CLAIM, Moment.LOG):
                service.passes(moment, moment.key)
            has_died = moment is Moment.LOG and place.break_log(url)
            full = [client.ask(moment.key), client.ask(moment.key)]
            earlier = client.ask(moment.earlier_key)

        disk.free()
        if moment is Moment.LOG:
            place.recover()
        after = [client.insist(moment.key), client.ask(moment.key), client.ask(moment.earlier_key)]
    told = {"before": before, "full": full, "earlier": earlier, "after": after}
    return {**told, "has_died": has_died, "rows": place.rows(url), "runs": service.runs}


def main(store: str, bank: Bank, home: Path, *, is_mounted: bool) -> dict[str, dict[str, Any]]:
    """Play every moment that this store can have."""
    disk = SmallDisk(home, SIZES[store]) if is_mounted else LimitedFiles()
    if store == "sqlite":
        return {moment: play(Place(home, None), moment, bank, disk) for moment in Moment if moment is not Moment.LOG}
    tempfile.tempdir = str(home)  # Whatever the server writes is on this disk.
    with PostgresServer(find_binaries()) as server:
        return {moment: play(Place(home, server), moment, bank, disk) for moment in Moment}


if __name__ == "__main__":
    _, named, port, where, how = sys.argv
    with quiet():
        seen = main(named, Bank(int(port)), Path(where), is_mounted=how == "mounted")
    sys.stdout.write(json.dumps(seen))
