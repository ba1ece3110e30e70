"""Every integration runs the same suite, on SQLite and on PostgreSQL."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("nebis.testing.http_conformance")

from tests.engines.postgres import PostgresServer  # noqa: E402 - after the registration, which it may import.
from tests.transactions import django_shop  # noqa: E402, F401 - REST framework reads settings while it is imported.

STORES = ["sqlite", "postgres"]


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    """Which store the applications of a module run on."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def store_url(store: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an empty store for the applications of one module."""
    if store == "sqlite":
        directory: Path = tmp_path_factory.mktemp("http")
        return f"sqlite:///{directory / 'nebis.db'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database()
