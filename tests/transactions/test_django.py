"""Django: the application's rows and the outcome in one commit (T1; traps D1, D2)."""

import asyncio
from collections.abc import Iterator

import pytest
from asgiref.sync import sync_to_async
from django.db import connection as default_connection
from django.db import connections, transaction
from django.test import AsyncClient, Client

from nebis import AsyncAttempt, AsyncNebis, InDoubt, Local, MisuseError, Rejected, StoreUnavailable
from nebis.stores.sql.joining import adapter_for
from tests.engines.postgres import PostgresServer
from tests.transactions import django_views
from tests.transactions.django_shop import MODES, Order, Payment, Shop, database


@pytest.fixture(scope="module")
def databases(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One database of each kind for all tests; each test has a key of its own."""
    url = postgres_server.create_database()
    yield {"sqlite": f"sqlite:///{tmp_path_factory.mktemp('shop') / 'shop.db'}", "postgres": url}
    postgres_server.drop_database(url)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, databases: dict[str, str]) -> Iterator[Shop]:
    url = databases[request.param]
    with database("shop", url):
        opened = Shop(url, "shop")
        opened.create_table()
        yield opened
        opened.nebis.close()


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"{abs(hash(request.node.nodeid)):x}"


@pytest.mark.parametrize("mode", MODES)
def test_rows_and_outcome_are_committed_together_and_replayed(shop: Shop, key: str, mode: str) -> None:
    first = shop.order(key, Order(key), mode)
    again = shop.order(key, Order(key), mode)

    assert (first, again) == (key, key)
    assert shop.payments(key) == [key]
    assert shop.staged(key) == ([key] if mode == "guarded" else [])
    assert connections["shop"].get_autocommit()


@pytest.mark.parametrize("mode", MODES)
def test_a_rejection_takes_the_rows_back_and_is_told_again(shop: Shop, key: str, mode: str) -> None:
    for _ in range(2):
        with pytest.raises(Rejected, match="sold out"):
            shop.order(key, Order(key, "rejects"), mode)

    assert shop.payments(key) == []


@pytest.mark.parametrize("mode", MODES)
def test_what_breaks_leaves_neither_rows_nor_outcome(shop: Shop, key: str, mode: str) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match=key):
            shop.order(key, Order(key, "breaks"), mode)

    assert shop.payments(key) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_transaction_that_is_ended_inside_is_in_doubt_never_a_silent_half(shop: Shop, key: str, mode: str) -> None:
    """Django itself refuses `commit()` inside a block, but not a statement that says so."""
    with pytest.raises(InDoubt, match="transaction-ended-inside"):
        shop.order(key, Order(key, "says COMMIT inside"), mode)

    assert shop.payments(key) == [key]
    with pytest.raises(InDoubt):
        shop.order(key, Order(key, "says COMMIT inside"), mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["asks for a rollback", "closes inside"])
def test_what_django_would_undo_in_silence_is_refused(shop: Shop, key: str, way: str, mode: str) -> None:
    """Leaving such a block raises nothing and commits nothing, which must not be told as done (I11)."""
    with pytest.raises(StoreUnavailable, match="rolled back"):
        shop.order(key, Order(key, way), mode)

    assert shop.payments(key) == []


@pytest.mark.parametrize("mode", MODES)
def test_atomic_blocks_inside_are_savepoints(shop: Shop, key: str, mode: str) -> None:
    shop.order(key, Order(key, "undoes a part"), mode)

    assert shop.payments(key) == [key, f"{key} instead"]


@pytest.mark.parametrize("mode", MODES)
def test_a_hook_that_fails_after_the_commit_does_not_undo_the_answer(
    shop: Shop, key: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """D2: it runs after the commit, so whatever it raises, the outcome is stored and told."""
    assert shop.order(key, Order(key, "hooks"), mode) == key
    assert "hook" in caplog.text
    assert shop.payments(key) == [key]


@pytest.mark.parametrize("mode", MODES)
def test_a_connection_inside_a_block_is_refused(shop: Shop, key: str, mode: str) -> None:
    with transaction.atomic(using="shop"), pytest.raises(MisuseError, match="atomic block"):
        shop.order(key, Order(key), mode)

    assert shop.payments(key) == []


def test_a_connection_without_autocommit_is_refused(shop: Shop, key: str) -> None:
    transaction.set_autocommit(False, using="shop")
    try:
        with pytest.raises(MisuseError, match="autocommit"):
            shop.order(key, Order(key), "single")
    finally:
        transaction.rollback(using="shop")
        transaction.set_autocommit(True, using="shop")


def test_a_view_of_atomic_requests_has_to_be_non_atomic(shop: Shop, key: str) -> None:
    """D1: otherwise the outcome would be told before the view's own transaction is committed."""
    django_views.orders["blocking"] = lambda key: shop.order(key, Order(key), "single")
    connections["shop"].settings_dict["ATOMIC_REQUESTS"] = True
    connections.settings["shop"]["ATOMIC_REQUESTS"] = True
    try:
        with pytest.raises(MisuseError, match="non_atomic_requests"):
            Client().get(f"/plain/{key}")
        answer = Client().get(f"/non-atomic/{key}")
    finally:
        connections["shop"].settings_dict["ATOMIC_REQUESTS"] = False
        connections.settings["shop"]["ATOMIC_REQUESTS"] = False

    assert answer.content.decode() == key
    assert shop.payments(key) == [key]


def test_a_connection_to_another_database_is_refused(shop: Shop, databases: dict[str, str], key: str) -> None:
    with database("other", databases["postgres"], OPTIONS={"options": "-c search_path=elsewhere"}):
        shop.alias = "other"
        try:
            with pytest.raises(MisuseError, match="store's own"):
                shop.order(key, Order(key), "single")
        finally:
            shop.alias = "shop"


def test_the_proxy_of_the_default_connection_is_recognised() -> None:
    assert adapter_for(default_connection) is not None
    with pytest.raises(MisuseError, match="no connection of Django"):
        adapter_for(Payment())


@pytest.mark.parametrize("mode", MODES)
def test_async_views_write_with_the_orm_inside_the_transaction(
    shop: Shop, databases: dict[str, str], key: str, mode: str
) -> None:
    """D3: everything that blocks runs on one thread, and so on the one connection that has the transaction."""
    kind = {"sqlite": "sqlite", "postgresql": "postgres"}[connections["shop"].vendor]
    # The thread keeps what it knows of an alias, so each database has one of its own.
    with database(f"async_{kind}", databases[kind]) as alias:
        asyncio.run(_order_twice(databases[kind], alias, key, mode))


async def _order_twice(url: str, alias: str, key: str, mode: str) -> None:
    objects = Payment.objects.using(alias)
    async with AsyncNebis(url, housekeeping=False) as nebis:

        @nebis.operation("guarded-async", effects=Local)
        async def guarded(attempt: AsyncAttempt, command: str) -> str:
            async with attempt.transaction(connections[alias]) as tx:
                await objects.acreate(id=command)
                tx.finish(command)
            return command

        @nebis.operation("single-async", effects=Local, single_transaction=True)
        async def single(command: str) -> str:
            await objects.acreate(id=command)
            return command

        async def take_order(key: str) -> str:
            if mode == "guarded":
                return await guarded(key=key, tenant="shop", command=key)
            return await single(key=key, tenant="shop", command=key, connection=connections[alias])

        django_views.orders["async"] = take_order
        try:
            answers = [(await AsyncClient().get(f"/async/{key}")).content.decode() for _ in range(2)]
            rows = [row.id async for row in objects.filter(id=key)]
        finally:
            await sync_to_async(connections.close_all)()

    assert answers == [key, key]
    assert rows == [key]
