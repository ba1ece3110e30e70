"""Every store that ships, as the conformance suite sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nebis.testing.conformance import Harness
from nebis.testing.conformance.plugin import stage, store, twin
from tests.engines.postgres import PostgresServer
from tests.stores import harnesses
from tests.stores.harnesses import MemoryHarness, PostgresHarness, SqliteHarness

__all__ = ["stage", "store", "twin"]

MEMORY = {"memory": harnesses.memory, "memory-async": harnesses.memory_async}
SQLITE = {"sqlite": harnesses.sqlite, "sqlite-async": harnesses.sqlite_async}
POSTGRES = {
    "psycopg": harnesses.psycopg_blocking,
    "psycopg-async": harnesses.psycopg_async,
    "asyncpg": harnesses.asyncpg,
}
STORES = (*MEMORY, *SQLITE, *POSTGRES)


def make_harness(name: str, request: pytest.FixtureRequest) -> Harness:
    if name in MEMORY:
        return MemoryHarness(MEMORY[name])
    if name in SQLITE:
        return SqliteHarness(request.getfixturevalue("tmp_path_factory").mktemp("sqlite"), SQLITE[name])
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return PostgresHarness(server, POSTGRES[name])


@pytest.fixture(scope="session", params=STORES)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    made = make_harness(request.param, request)
    yield made
    made.close()
