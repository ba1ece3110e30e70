"""Every store that ships, as the conformance suite sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nebis.testing.conformance import Harness
from nebis.testing.conformance.plugin import stage, store, twin
from tests.engines.postgres import PostgresServer
from tests.stores.harnesses import (
    MemoryHarness,
    PostgresHarness,
    SqliteHarness,
    through_async_psycopg,
    through_asyncpg,
    through_psycopg,
)

__all__ = ["stage", "store", "twin"]

OPENINGS = {"psycopg": through_psycopg, "psycopg-async": through_async_psycopg, "asyncpg": through_asyncpg}
STORES = ("memory", "sqlite", *OPENINGS)


def make_harness(name: str, request: pytest.FixtureRequest) -> Harness:
    match name:
        case "memory":
            return MemoryHarness()
        case "sqlite":
            return SqliteHarness(request.getfixturevalue("tmp_path_factory").mktemp("sqlite"))
        case _:
            server: PostgresServer = request.getfixturevalue("postgres_server")
            return PostgresHarness(server, OPENINGS[name])


@pytest.fixture(scope="session", params=STORES)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    made = make_harness(request.param, request)
    yield made
    made.close()
