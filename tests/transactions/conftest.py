"""Shops of every kind, each with an empty database of its own."""

from collections.abc import Callable, Iterator

import pytest

from tests.engines.postgres import PostgresServer
from tests.transactions.scenes import Books
from tests.transactions.shops import DRIVERS, MODES, POSTGRES, Customer, Shop, open_shop


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Returns the URL of the one database that all tests of a kind share; each of them uses keys of its own."""
    urls: dict[str, str] = {}

    def of(driver: str) -> str:
        kind = driver.partition("-")[0] if driver.startswith("sqlite") else "postgres"
        if kind not in urls:
            if kind == "sqlite":
                urls[kind] = f"sqlite:///{tmp_path_factory.mktemp('shop') / 'shop.db'}"
            else:
                server: PostgresServer = request.getfixturevalue("postgres_server")
                urls[kind] = server.create_database()
            Books(urls[kind]).create()
        return urls[kind]

    return of


@pytest.fixture(scope="session", params=[f"{driver}-{mode}" for driver in DRIVERS for mode in MODES])
def shop(request: pytest.FixtureRequest, place: Callable[[str], str]) -> Iterator[Shop]:
    """Every driver in both modes."""
    driver, _, mode = request.param.rpartition("-")
    made = open_shop(driver, place(driver), mode)
    yield made
    made.close()


@pytest.fixture(scope="session", params=[f"{driver}-{mode}" for driver in POSTGRES for mode in MODES])
def postgres_shop(request: pytest.FixtureRequest, place: Callable[[str], str]) -> Iterator[Shop]:
    """Every driver of PostgreSQL in both modes."""
    driver, _, mode = request.param.rpartition("-")
    made = open_shop(driver, place(driver), mode)
    yield made
    made.close()


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key that no other test uses."""
    return f"{abs(hash(request.node.nodeid)):x}"


@pytest.fixture
def customer(shop: Shop) -> Iterator[Customer]:
    """A connection that the application already has."""
    if shop.driver == "sqlite-async":
        pytest.skip("Under asyncio a SQLite transaction runs on the store's own connection.")
    made = Customer(shop)
    yield made
    made.close()


@pytest.fixture
def postgres_customer(postgres_shop: Shop) -> Iterator[Customer]:
    """The same on PostgreSQL."""
    made = Customer(postgres_shop)
    yield made
    made.close()
