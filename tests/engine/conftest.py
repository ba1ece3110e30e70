"""Every behaviour of the engine runs on every store through both façades."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.faces import AsyncFace, BlockingFace, Face
from tests.engines.postgres import PostgresServer

FACES = {
    "memory-blocking": BlockingFace,
    "memory-asyncio": AsyncFace,
    "sqlite-blocking": BlockingFace,
    "sqlite-asyncio": AsyncFace,
    "postgres-psycopg": BlockingFace,
    "postgres-psycopg-asyncio": AsyncFace,
    "postgres-asyncpg": AsyncFace,
}
DURABLE = [name for name in FACES if not name.startswith("memory")]


def location(name: str, directory: Path, request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store of that kind."""
    kind = name.partition("-")[0]
    if kind == "memory":
        return "memory://"
    if kind == "sqlite":
        return f"sqlite:///{directory / 'nebis.db'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database()
    return url.replace("postgresql://", "postgresql+asyncpg://") if name.endswith("asyncpg") else url


@pytest.fixture(scope="session", params=list(FACES))
def face(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    """One façade on one store for all behaviours; each of them has operations of its own."""
    url = location(request.param, tmp_path_factory.mktemp("engine"), request)
    made = FACES[request.param](url)
    yield made
    made.close()


@pytest.fixture(params=DURABLE)
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Face]]:
    """Makes façades on one empty store, as several processes would have them."""
    url = location(request.param, tmp_path, request)
    faces: list[Face] = []

    def make(**options: object) -> Face:
        faces.append(FACES[request.param](url, **options))
        return faces[-1]

    yield make
    for made in faces:
        made.close()
