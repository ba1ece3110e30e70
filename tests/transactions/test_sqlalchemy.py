"""SQLAlchemy: the application's rows and the outcome in one commit, on every driver, in both modes (T1)."""

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from nebis import InDoubt, Rejected, StoreUnavailable
from nebis.ports.store import DefiniteFailure, IndefiniteFailure
from tests.engines.postgres import PostgresServer
from tests.transactions.sqlalchemy_shops import LATE, MODES, AsyncShop, BlockingShop, Order, Shop, payments, staged

DRIVERS: dict[str, tuple[type[BlockingShop | AsyncShop], str]] = {
    "sqlite": (BlockingShop, "sqlite"),
    "aiosqlite": (AsyncShop, "sqlite+aiosqlite"),
    "psycopg": (BlockingShop, "postgresql+psycopg"),
    "psycopg-async": (AsyncShop, "postgresql+psycopg"),
    "psycopg2": (BlockingShop, "postgresql+psycopg2"),
    "asyncpg": (AsyncShop, "postgresql+asyncpg"),
}
KINDS = [f"{driver} {handle}" for driver in DRIVERS for handle in ("session", "connection")]
numbers = count(1)


@pytest.fixture(scope="module")
def databases(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One database of each kind for all tests; each test has a key and an order of its own."""
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    url = postgres_server.create_database()
    with psycopg.connect(url) as connection:
        for statement in LATE:
            connection.execute(statement)
    yield {"sqlite": f"sqlite:///{path}", "postgresql": url}
    postgres_server.drop_database(url)


@pytest.fixture(scope="module", params=KINDS)
def shop(request: pytest.FixtureRequest, databases: dict[str, str]) -> Iterator[Shop]:
    driver, handle = request.param.split()
    kind, scheme = DRIVERS[driver]
    store_url = databases[scheme.partition("+")[0]]
    opened = kind(store_url, f"{scheme}:{store_url.partition(':')[2]}", is_session=handle == "session")
    yield opened
    opened.close()


@pytest.fixture
def key() -> str:
    return f"order-{next(numbers):04}"


@pytest.mark.parametrize("mode", MODES)
def test_rows_and_outcome_are_committed_together_and_replayed(shop: Shop, key: str, mode: str) -> None:
    first = shop.order(key, Order(key), mode)
    again = shop.order(key, Order(key), mode)

    assert (first, again) == (key, key)
    assert payments(shop, key) == [key]
    assert staged(shop, key) == ([key] if mode == "guarded" else [])


@pytest.mark.parametrize("mode", MODES)
def test_a_rejection_takes_the_rows_back_and_is_told_again(shop: Shop, key: str, mode: str) -> None:
    for _ in range(2):
        with pytest.raises(Rejected, match="sold out"):
            shop.order(key, Order(key, "rejects"), mode)

    assert payments(shop, key) == []
    assert staged(shop, key) == []


@pytest.mark.parametrize("mode", MODES)
def test_what_breaks_leaves_neither_rows_nor_outcome(shop: Shop, key: str, mode: str) -> None:
    with pytest.raises(ValueError, match=key):
        shop.order(key, Order(key, "breaks"), mode)
    assert payments(shop, key) == []

    with pytest.raises(ValueError, match=key):
        shop.order(key, Order(key, "breaks"), mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["commits inside", "rolls back inside", "says COMMIT inside"])
def test_a_transaction_that_is_ended_inside_is_in_doubt_never_a_silent_half(
    shop: Shop, key: str, way: str, mode: str
) -> None:
    with pytest.raises(InDoubt, match="transaction-ended-inside"):
        shop.order(key, Order(key, way), mode)

    assert payments(shop, key)[:1] == ([] if way == "rolls back inside" else [key])
    with pytest.raises(InDoubt):
        shop.order(key, Order(key, way), mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_conflict_that_the_handler_swallows_is_refused_as_a_whole(shop: Shop, key: str, mode: str) -> None:
    """The transaction cannot be committed any more: PostgreSQL has aborted it, or the session has rolled back."""
    if shop.database == "sqlite" and not shop.is_session:
        pytest.skip("SQLite undoes only the statement, so the rest is committed as the handler wished.")
    shop.order("the-first", Order("taken"), "single")

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="refused and rolled back"):
            shop.order(key, Order(key, "swallows a conflict"), mode)

    assert payments(shop, key) == []


@pytest.fixture
def late_shop(shop: Shop) -> Shop:
    if shop.database == "sqlite":
        pytest.skip("SQLite has checked everything by the time it commits.")
    return shop


def test_a_commit_that_the_server_refuses_is_a_refusal_at_once(late_shop: Shop, key: str) -> None:
    order = Order(key, "is refused at its commit")

    with pytest.raises(DefiniteFailure, match="receipts_id_key"):
        late_shop.commit_alone(order)
    with pytest.raises(StoreUnavailable, match="refused and rolled back"):
        late_shop.order(key, order, "guarded")

    assert payments(late_shop, key) == []


def test_a_commit_that_may_not_be_replicated_is_not_believed_f017(late_shop: Shop, key: str) -> None:
    with pytest.raises(IndefiniteFailure, match="synchronous standby"):
        late_shop.commit_alone(Order(key, "is warned at its commit"))

    assert payments(late_shop, key) == [key]
