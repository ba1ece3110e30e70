"""One bank, one troupe and one store of each kind for a whole run: each cell has a key of its own."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from nebis import Nebis
from nebis.testing.bank import Bank, BankProcess
from tests.engines.postgres import PostgresServer
from tests.matrix.points import Kind
from tests.matrix.stage import Child, Evidence, Troupe
from tests.matrix.troupe import Part

LEASE_SECONDS = 0.1
"""Short, since cells wait for it: nobody contends for a key while its first owner lives."""


@dataclass
class Scene:
    """Where a cell is played."""

    url: str
    bank: Bank
    troupe: Troupe
    connect: Callable[[], Any]
    service: Child | None = None
    """A process that was there all the time, as other instances of a service are; it serves what clients retry."""

    def child(self, **marks: Any) -> AbstractContextManager[Child]:
        """Start a process of the service, which may be told where to die."""
        part = {"lease_seconds": LEASE_SECONDS, **marks}
        return self.troupe.child(Part(url=self.url, bank_port=self.bank.port, **part))

    def wait_for_lease(self, evidence: Evidence) -> None:
        """Let the lease of a process pass that cannot renew it any more; nothing else can end it.

        The store says until when: a renewal that was sent in time may land after the end of its sender.
        """
        time.sleep(LEASE_SECONDS)
        while (left_seconds := self._lease_left_seconds(evidence.key)) > 0:
            time.sleep(left_seconds)

    def retry(self, evidence: Evidence, *, calls: int = 2) -> None:
        """Let the client ask again, at an instance that lives."""
        assert self.service is not None
        evidence.hear(self.service.ask(evidence.kind, evidence.key, calls=calls))

    def work(self, evidence: Evidence, *, passes: int) -> list[dict[str, Any]]:
        """Let the worker of an instance that lives look after what is due, without any client."""
        assert self.service is not None
        said = evidence.hear(self.service.ask(evidence.kind, evidence.key, calls=0, passes=passes))
        return [entry for entry in said if "passed" in entry]

    def evidence(self, kind: Kind, key: str) -> Evidence:
        """Begin to collect what is seen of one key."""
        return Evidence(self.bank, kind, key, self._takings)

    def _lease_left_seconds(self, key: str) -> float:
        with closing(self.connect()) as connection:
            rows = connection.execute("SELECT key, lease_until FROM nebis_record WHERE state = 'P'").fetchall()
        return max((until for of, until in rows if of == key), default=0) / 1_000_000 - time.time()

    def _takings(self, reference: str) -> list[tuple[str, str]]:
        with closing(self.connect()) as connection:
            rows = connection.execute("SELECT reference, kind, call FROM takings").fetchall()
        return [(kind, call) for of, kind, call in rows if of == reference]


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """A bank in a process of its own."""
    with BankProcess(tmp_path_factory.mktemp("bank") / "bank.db") as process:
        yield process.bank


@pytest.fixture(scope="session")
def troupe() -> Iterator[Troupe]:
    """A warm process that forks children."""
    with Troupe() as started:
        yield started


@pytest.fixture(scope="session")
def sqlite_scene(tmp_path_factory: pytest.TempPathFactory, bank: Bank, troupe: Troupe) -> Iterator[Scene]:
    """A file that every cell shares."""
    file: Path = tmp_path_factory.mktemp("matrix") / "nebis.db"
    with _set(Scene(f"sqlite:///{file}", bank, troupe, lambda: sqlite3.connect(file))) as scene:
        yield scene


@pytest.fixture(scope="session")
def postgres_scene(postgres_server: PostgresServer, bank: Bank, troupe: Troupe) -> Iterator[Scene]:
    """A database that every cell shares."""
    url = postgres_server.create_database()
    with _set(Scene(url, bank, troupe, lambda: psycopg.connect(url))) as scene:
        yield scene


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Scene:
    """The scene of the store that the cell names."""
    store = request.node.callspec.params["store"]
    found: Scene = request.getfixturevalue(f"{store}_scene")
    return found


@contextmanager
def _set(scene: Scene) -> Iterator[Scene]:
    with Nebis(scene.url, housekeeping=False):
        pass
    with closing(scene.connect()) as connection:
        connection.execute("CREATE TABLE takings (reference TEXT NOT NULL, kind TEXT NOT NULL, call TEXT NOT NULL)")
        connection.commit()
    with scene.child() as service:
        scene.service = service
        yield scene
