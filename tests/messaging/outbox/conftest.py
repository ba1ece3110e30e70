"""An outbox on each store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nebis.ports.store import BlockingBackend
from nebis.stores import open_blocking
from tests.messaging.outbox.benches import Bench


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/nebis.db"
    address: str = request.getfixturevalue("postgres_url")
    return address


@pytest.fixture
def backend(url: str) -> Iterator[BlockingBackend]:
    opened = open_blocking(url)
    opened.sessions.run(opened.store.migrate())
    yield opened
    opened.sessions.close()


@pytest.fixture
def bench(backend: BlockingBackend) -> Bench:
    return Bench(backend)
