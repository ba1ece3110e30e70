"""One bank, one troupe and one store of each kind for a whole run: each cell has a key of its own."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from nebis import Nebis
from nebis.testing.bank import Bank, BankProcess
from tests.engines.postgres import PostgresServer
from tests.matrix.points import Kind
from tests.matrix.stage import Evidence, Troupe
from tests.matrix.troupe import Part

_TAKINGS = "CREATE TABLE takings (reference TEXT NOT NULL, kind TEXT NOT NULL, call TEXT NOT NULL)"


@dataclass(frozen=True)
class Scene:
    """Where a cell is played."""

    url: str
    bank: Bank
    troupe: Troupe
    connect: Callable[[], Any]

    def part(self, kind: Kind, key: str, **marks: Any) -> Part:
        return Part(url=self.url, bank_port=self.bank.port, kind=kind, key=key, **marks)

    def evidence(self, kind: Kind, key: str) -> Evidence:
        return Evidence(self.bank, kind, key, self._takings)

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
def sqlite_scene(tmp_path_factory: pytest.TempPathFactory, bank: Bank, troupe: Troupe) -> Scene:
    """A file that every cell shares."""
    file: Path = tmp_path_factory.mktemp("matrix") / "nebis.db"
    return _prepared(Scene(f"sqlite:///{file}", bank, troupe, lambda: sqlite3.connect(file)))


@pytest.fixture(scope="session")
def postgres_scene(postgres_server: PostgresServer, bank: Bank, troupe: Troupe) -> Scene:
    """A database that every cell shares."""
    url = postgres_server.create_database()
    return _prepared(Scene(url, bank, troupe, lambda: psycopg.connect(url)))


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Scene:
    """The scene of the store that the cell names."""
    store = request.node.callspec.params["store"]
    found: Scene = request.getfixturevalue(f"{store}_scene")
    return found


def _prepared(scene: Scene) -> Scene:
    with Nebis(scene.url, housekeeping=False):
        pass
    with closing(scene.connect()) as connection:
        connection.execute(_TAKINGS)
        connection.commit()
    return scene
