"""Load with faults: processes of the service race for keys while they are killed, frozen and cut off; then the checker.

python -m tests.testing.prove.soak [--requests 12000 --faults 8 --seed 1]
"""

import argparse
import json
import queue
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from nebis import Nebis
from nebis.testing.bank import Bank, BankProcess
from nebis.testing.bank.behaviours import Kind as Bad
from nebis.testing.history import History, check
from nebis.testing.quiet import quiet
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer
from tests.matrix.points import Kind, label_of, points_of
from tests.matrix.stage import Child, Troupe
from tests.matrix.troupe import Order, Part, now

LEASE_SECONDS = 2.1
CALLS_PER_ORDER = 4
ORDERS_PER_KEY = 2
INSTANCES = 3
SETTLING_TRIES = 8
_ANSWERS = ("ok", "fail", "refused", "info")
_AT_REST = ("completed", "in_doubt")


@dataclass(frozen=True, slots=True)
class Errand:
    """A few calls with one key, and what is to go wrong meanwhile."""

    kind: Kind
    key: str
    fault: str | None = None


@dataclass
class Soak:
    """One store under load."""

    store: str
    url: str
    bank: Bank
    troupe: Troupe
    connect: Callable[[], Any]
    disturb: Callable[[], None]
    """Restarts the store, or what comes closest to that."""
    chance: random.Random
    errands: "queue.Queue[Errand]" = field(default_factory=queue.Queue)
    said: list[dict[str, Any]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    wanted: int = 0
    requests: int = 0
    keys: list[str] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def plan(self, requests: int, faults: int) -> None:
        """Draw keys, each of which comes several times, close together; faults befall some of them."""
        self.wanted = requests
        number = 1 + requests // (CALLS_PER_ORDER * ORDERS_PER_KEY)
        struck = {at: self.chance.choice(self._troubles()) for at in self.chance.sample(range(number), faults)}
        for at in range(number):
            self._add_key(struck.get(at))

    def _add_key(self, fault: str | None) -> None:
        kind = self.chance.choice(list(Kind))
        key = f"soak:{self.store}:{kind}:{UUID(int=self.chance.getrandbits(128), version=4)}"
        self.keys.append(key)
        for times in range(ORDERS_PER_KEY):
            self.errands.put(Errand(kind, key, fault if times == 0 else None))

    def _troubles(self) -> tuple[str, ...]:
        return ("kill", "kill", "stop", "lose reply", "restart")

    def run(self) -> None:
        """Serve all errands with a few instances at once, then settle what is left."""
        self._serve_all()
        while self.requests < self.wanted:
            # Whoever died, or was there when the store went, left the rest of its calls unsent.
            for _ in range(INSTANCES):
                self._add_key(None)
            self._serve_all()
        self._settle()

    def _serve_all(self) -> None:
        threads = [threading.Thread(target=self._instance, daemon=True) for _ in range(INSTANCES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _instance(self) -> None:
        with ExitStack() as stack:
            child: Child | None = None
            while True:
                try:
                    errand = self.errands.get_nowait()
                except queue.Empty:
                    return
                if child is None or errand.fault in ("kill", "stop"):
                    child = stack.enter_context(self.troupe.child(self._part(errand)))
                if not self._serve(child, errand):
                    child = None

    def _part(self, errand: Errand) -> Part:
        mortal = errand.fault in ("kill", "stop")
        point = self.chance.choice(points_of(errand.kind))
        if errand.fault == "stop" and errand.kind is Kind.TRANSACTIONAL:
            point = "handler/begin"  # Inside its transaction it would hold the whole of a file.
        return Part(
            url=self.url,
            bank_port=self.bank.port,
            lease_seconds=LEASE_SECONDS,
            timeout_seconds=LEASE_SECONDS / 4,
            place=label_of(errand.kind, point) if mortal else None,
            how="stop" if errand.fault == "stop" else "kill",
        )

    def _serve(self, child: Child, errand: Errand) -> bool:
        """Send the calls of one errand; False if the instance is gone."""
        if errand.fault == "lose reply":
            self.bank.behave(errand.key, Bad.LOSE_REPLY)
        if errand.fault == "restart":
            threading.Thread(target=self.disturb, daemon=True).start()
        heard, is_alive = _hear(child, errand)
        if heard and heard[-1].get("how") == "stop":
            time.sleep(1.5 * LEASE_SECONDS)  # Real processes and a real lease: nothing else makes it pass.
            child.thaw()
            more, is_alive = _hear(child)
            heard += more
        answered = {entry["call"] for entry in heard if entry.get("type") in _ANSWERS}
        lost = [entry for entry in heard if entry.get("type") == "invoke" and entry["call"] not in answered]
        heard += [{**entry, "type": "info", "code": "killed", "at": now()} for entry in lost]
        with self._turn:
            self.said += heard
            self.requests += sum(entry.get("type") == "invoke" for entry in heard)
            if errand.fault is not None:
                self.faults[errand.fault] += 1
        return is_alive

    def _settle(self) -> None:
        """Come back to every key whose record was not seen at rest."""
        for _ in range(SETTLING_TRIES):
            states = {entry["key"]: entry["state"] for entry in self.said if entry.get("type") == "record"}
            restless = [key for key in self.keys if states.get(key) not in _AT_REST]
            if not restless:
                return
            time.sleep(LEASE_SECONDS)  # What a dead owner held is free for others only after a real lease.
            for key in restless:
                self.errands.put(Errand(Kind(key.split(":")[2]), key))
            self._instance()

    def violations(self) -> list[str]:
        """Judge everything that was seen by the twelve rules."""
        history = History()
        looks = [entry for entry in self.said if entry.get("type") in ("record", "completed")]
        told = [entry for entry in self.said if "type" in entry and entry["type"] not in ("record", "completed")]
        for entry in sorted(told, key=lambda entry: int(entry["at"])):
            history.add(entry)
        for entry in {(entry["type"], entry["record"]): entry for entry in looks}.values():
            history.add(entry)
        for entry in self._effects():
            history.add(entry)
        return [str(violation) for violation in check(history)]

    def _effects(self) -> list[dict[str, Any]]:
        with closing(self.connect()) as connection:
            rows = connection.execute("SELECT reference, call FROM takings WHERE kind = 'charge'").fetchall()
        moved = [(entry["reference"], entry["attempt"]) for entry in self.bank.ledger()]
        return [
            {"type": "effect", "tenant": f"acct of {key}", "key": key, "at": 0, "attempt": call}
            for key, call in [*rows, *moved]
            if key.startswith(f"soak:{self.store}:")
        ]


def _hear(child: Child, errand: Errand | None = None) -> tuple[list[dict[str, Any]], bool]:
    """Return all that a child says, and whether it is still there; one that broke down counts as dead."""
    said: list[dict[str, Any]] = []
    try:
        if errand is not None:
            order = Order(kind=errand.kind, key=errand.key, calls=CALLS_PER_ORDER)
            child._line.sendall(json.dumps(asdict(order)).encode() + b"\n")
        for line in child._lines:
            entry = json.loads(line)
            if "broken" in entry:
                return said, False
            said.append(entry)
            if entry.get("how") == "stop":
                child._frozen_pid = entry["pid"]
            if "end" in entry or entry.get("how") == "stop":
                return said, True
    except OSError:
        pass
    return said, False


@quiet()
def run(requests: int, faults: int, seed: int) -> dict[str, object]:
    """Soak both stores, and return what was seen."""
    requests_seen, faults_seen, violations = 0, 0, list[str]()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nebis-soak-")))
        bank = stack.enter_context(BankProcess(home / "bank.db")).bank
        troupe = stack.enter_context(Troupe())
        server = stack.enter_context(PostgresServer(find_binaries()))
        url, file = server.create_database(), home / "nebis.db"
        for store, place, connect, disturb in (
            ("sqlite", f"sqlite:///{file}", lambda: sqlite3.connect(file), lambda: _occupy(file)),
            ("postgres", url, lambda: psycopg.connect(url), lambda: server.restart(immediate=True)),
        ):
            with Nebis(place, housekeeping=False):
                pass
            with closing(connect()) as connection:
                connection.execute(
                    "CREATE TABLE takings (reference TEXT NOT NULL, kind TEXT NOT NULL, call TEXT NOT NULL)"
                )
                connection.commit()
            soak = Soak(store, place, bank, troupe, connect, disturb, random.Random(f"{seed}{store}"))
            soak.plan(requests // 2, faults // 2)
            soak.run()
            requests_seen += soak.requests
            faults_seen += soak.faults.total()
            violations += soak.violations()
            if soak.faults.total() < faults // 2:
                violations.append(f"only {soak.faults.total()} of {faults // 2} faults happened on {store}")
    return {"soak_requests": requests_seen, "soak_faults": faults_seen, "violations": violations}


def _occupy(file: Path) -> None:
    """Hold the only lock of a file for a while: it has no server that could be restarted."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(LEASE_SECONDS / 2)  # What is tried meanwhile is the point.
        connection.execute("ROLLBACK")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=12_000)
    parser.add_argument("--faults", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    seen = run(asked.requests, asked.faults, asked.seed)
    print(json.dumps(seen))  # noqa: T201 - a command speaks by printing.
    sys.exit(1 if seen["violations"] else 0)
