"""A running demo for the tests of one module, on each store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.stage import Demo
from tests.engines.postgres import PostgresServer


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One demo for a module: starting it takes longer than most tests."""
    folder: Path = tmp_path_factory.mktemp("demo")
    if request.param == "sqlite":
        with Demo(folder) as running:
            yield running
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database()
    with Demo(folder, store=url) as running:
        yield running
    server.drop_database(url)
