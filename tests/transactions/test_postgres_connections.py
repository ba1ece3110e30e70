"""Connections of the application as applications have them: what they hold is neither in our way nor changed by us."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import psycopg_pool
import pytest
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.rows import dict_row

from nebis import MisuseError, NotYet, StoreUnavailable
from tests.engines.postgres import PostgresServer
from tests.transactions.scenes import Scene, announce, finish, misspell, pay
from tests.transactions.shops import AsyncShop, Customer, Shop, open_shop

LOCK_TIMEOUT = "SELECT current_setting('lock_timeout')"
SNAPSHOTS = ("REPEATABLE READ", "SERIALIZABLE")


class UuidAsText(Loader):
    """What some applications prefer."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return str(uuid.UUID(bytes=bytes(data)))


def is_asyncpg(shop: Shop) -> bool:
    return shop.driver == "asyncpg"


def test_a_connection_is_idle_after_each_way_out(postgres_shop: Shop, postgres_customer: Customer, key: str) -> None:
    """F024."""
    for steps in ((pay, finish), (pay, misspell), (pay,)):
        try:
            postgres_shop.sell(f"{key}-{len(steps)}-{steps[-1].__name__}", *steps, connection=postgres_customer.raw)
        except Exception:  # noqa: BLE001 - how it ended is the subject of other tests.
            assert steps != (pay, finish)

        raw = postgres_customer.raw
        is_idle = (
            not raw.is_in_transaction() if is_asyncpg(postgres_shop) else raw.info.transaction_status.name == "IDLE"
        )
        assert is_idle


def test_our_own_connections_come_back_idle(postgres_shop: Shop, key: str) -> None:
    """F024."""
    postgres_shop.sell(key)
    with pytest.raises(MisuseError):
        postgres_shop.sell(f"{key}-2", pay)

    open_transactions = postgres_shop.books.ask(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
    )
    assert open_transactions == [(0,)]


def test_settings_of_the_session_hold_inside_and_after(
    postgres_shop: Shop, postgres_customer: Customer, key: str
) -> None:
    seen: list[Any] = []

    postgres_customer.do("execute", "SET lock_timeout = '7s'")
    if not is_asyncpg(postgres_shop):
        postgres_customer.do("commit")

    postgres_shop.sell(key, pay, lambda scene: scene.look(LOCK_TIMEOUT, seen), finish, connection=postgres_customer.raw)

    assert seen == ["7s"]
    assert postgres_customer.rows(LOCK_TIMEOUT) == [("7s",)]


def test_the_applications_statements_run_with_the_servers_own_settings(postgres_shop: Shop, key: str) -> None:
    """Neither the lock timeout nor the plans of our own statements are forced upon them."""
    seen: list[Any] = []

    text = "SELECT current_setting('lock_timeout') || current_setting('enable_seqscan')"

    postgres_shop.sell(key, lambda scene: scene.look(text, seen), finish)

    assert seen == ["0on"]


def test_savepoints_of_the_driver_work_inside(postgres_shop: Shop, postgres_customer: Customer, key: str) -> None:
    def try_something(scene: Scene) -> Any:
        if postgres_shop.driver == "psycopg":
            with pytest.raises(psycopg.errors.UndefinedTable), scene.connection.transaction():
                misspell(scene)
            return None
        return _try_something(scene)

    for connection in (None, postgres_customer.raw):
        postgres_shop.sell(f"{key}-{connection is None}", pay, try_something, announce, finish, connection=connection)

    assert postgres_shop.books.of(f"{key}-True") == postgres_shop.books.of(f"{key}-False") == (1, 1)


async def _try_something(scene: Scene) -> None:
    with pytest.raises((psycopg.errors.UndefinedTable, asyncpg.UndefinedTableError)):
        async with scene.connection.transaction():
            await misspell(scene)


def test_rows_that_the_application_wrote_before_are_committed_with_it(
    postgres_shop: Shop, postgres_customer: Customer, key: str
) -> None:
    if is_asyncpg(postgres_shop):
        pytest.skip("An asyncpg connection begins no transaction by itself.")
    postgres_customer.do("execute", f"INSERT INTO payments VALUES ('{key}')")

    postgres_shop.sell(key, announce, finish, connection=postgres_customer.raw)

    assert postgres_shop.books.of(key) == (1, 1)


@pytest.mark.parametrize("is_autocommit", [True, False])
def test_row_factory_and_autocommit_stay_as_they_are(
    postgres_shop: Shop, postgres_customer: Customer, key: str, is_autocommit: bool
) -> None:
    if is_asyncpg(postgres_shop):
        pytest.skip("An asyncpg connection has neither.")
    raw = postgres_customer.raw
    raw.row_factory = dict_row
    raw.prepare_threshold = None
    postgres_customer.do("set_autocommit", is_autocommit)

    postgres_shop.sell(key, connection=raw)

    assert postgres_shop.books.of(key) == (1, 1)
    assert (raw.row_factory, raw.autocommit, raw.prepare_threshold) == (dict_row, is_autocommit, None)


def test_a_connection_of_the_applications_pool_can_be_joined(postgres_shop: Shop, key: str) -> None:
    url = postgres_shop.books.url
    if isinstance(postgres_shop, AsyncShop):
        postgres_shop.loop.run(_sell_on_pool(postgres_shop, url, key))
    else:
        with psycopg_pool.ConnectionPool(url, min_size=1, max_size=1) as pool, pool.connection() as connection:
            postgres_shop.sell(key, connection=connection)

    assert postgres_shop.books.of(key) == (1, 1)


async def _sell_on_pool(shop: AsyncShop, url: str, key: str) -> None:
    if is_asyncpg(shop):
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
            await shop.selling(key, connection=connection)
    else:
        async with (
            psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as open_pool,
            open_pool.connection() as connection,
        ):
            await shop.selling(key, connection=connection)


def test_codecs_for_other_types_do_not_matter(postgres_shop: Shop, postgres_customer: Customer, key: str) -> None:
    if not is_asyncpg(postgres_shop):
        pytest.skip("psycopg's own adapters for JSON are global.")
    set_codec(postgres_customer, "jsonb")

    postgres_shop.sell(key, connection=postgres_customer.raw)

    assert postgres_shop.books.of(key) == (1, 1)


def test_a_codec_for_a_type_that_we_use_is_refused(postgres_shop: Shop, postgres_customer: Customer, key: str) -> None:
    if is_asyncpg(postgres_shop):
        set_codec(postgres_customer, "uuid")
    else:
        postgres_customer.raw.adapters.register_loader("uuid", UuidAsText)

    with pytest.raises(MisuseError, match=r"codec of its own for uuid"):
        postgres_shop.sell(key, connection=postgres_customer.raw)

    assert postgres_shop.sell(key).result == "paid"


@pytest.mark.parametrize("mode", ["single", "guarded"])
@pytest.mark.parametrize("driver", ["psycopg", "psycopg-async", "asyncpg"])
def test_a_codec_that_a_handler_left_on_a_connection_of_ours_is_refused_and_nothing_stays(
    driver: str, mode: str, place: Callable[[str], str], key: str
) -> None:
    def leave_a_codec(scene: Scene) -> object:
        if scene.driver == "asyncpg":
            return scene.connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")
        return scene.connection.adapters.register_loader("uuid", UuidAsText)

    shop = open_shop(driver, place(driver), mode)  # Of its own, as nobody else can use that connection any more.
    try:
        assert shop.sell(f"{key}-before", pay, leave_a_codec, finish).result == "paid"

        with pytest.raises(MisuseError, match=r"codec of its own for uuid"):
            shop.sell(key, pay, finish)

        assert shop.books.of(key)[0] == 0
    finally:
        shop.close()


@pytest.mark.parametrize("mode", ["single", "guarded"])
@pytest.mark.parametrize("driver", ["psycopg", "psycopg-async", "asyncpg"])
def test_a_handler_that_makes_the_server_forget_what_is_prepared_costs_at_most_its_own_attempt(
    driver: str, mode: str, place: Callable[[str], str], key: str
) -> None:
    def forget(scene: Scene) -> object:
        return scene.connection.execute("DEALLOCATE ALL")

    shop = open_shop(driver, place(driver), mode)  # Of its own, so that all are on one connection.
    try:
        shop.sell(f"{key}-before", pay, finish)
        with suppress(StoreUnavailable):
            shop.sell(f"{key}-forgotten", pay, forget, finish)

        assert shop.sell(f"{key}-forgotten", pay, finish).result == "paid"
        assert shop.sell(key, pay, finish).result == "paid"
        assert shop.books.of(f"{key}-forgotten") == shop.books.of(key)
    finally:
        shop.close()


def set_codec(customer: Customer, kind: str) -> None:
    async def set_it() -> None:
        await customer.raw.set_type_codec(kind, schema="pg_catalog", encoder=str, decoder=str, format="text")

    customer.run(set_it())


@pytest.mark.parametrize("isolation", SNAPSHOTS)
def test_a_snapshot_that_begins_with_us_works(
    postgres_shop: Shop, postgres_customer: Customer, key: str, isolation: str
) -> None:
    use_isolation(postgres_customer, isolation, is_asyncpg(postgres_shop))

    assert postgres_shop.sell(key, connection=postgres_customer.raw).result == "paid"
    assert postgres_shop.sell(key, connection=postgres_customer.raw).is_replay
    assert postgres_shop.books.of(key) == (1, 1)


@pytest.mark.parametrize("isolation", SNAPSHOTS)
def test_a_serialization_failure_is_told_as_definite_and_the_retry_works_f020(
    postgres_shop: Shop, postgres_customer: Customer, key: str, isolation: str
) -> None:
    """Whatever conflicts, at a statement or at the COMMIT: nothing is left, and the key is free."""
    use_isolation(postgres_customer, isolation, is_asyncpg(postgres_shop))
    books = postgres_shop.books
    books.ask(f"INSERT INTO payments VALUES ('{key}-contended')")

    def interfere(_: Scene) -> None:
        books.ask(f"UPDATE payments SET key = '{key}-contended' WHERE key = '{key}-contended'")

    def update(scene: Scene) -> Any:
        return scene.execute(f"UPDATE payments SET key = '{key}-contended' WHERE key = '{key}-contended'")

    with pytest.raises(
        (NotYet, psycopg.errors.SerializationFailure, asyncpg.SerializationError), match=r"40001|serialize"
    ):
        postgres_shop.sell(key, pay, interfere, update, finish, connection=postgres_customer.raw)

    assert books.of(key) == (0, 0)
    assert postgres_shop.sell(key, connection=postgres_customer.raw).result == "paid"
    assert books.of(key) == (1, 1)


def use_isolation(customer: Customer, isolation: str, is_asyncpg: bool) -> None:
    customer.do("execute", f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {isolation}")
    if not is_asyncpg:
        customer.do("commit")


@pytest.mark.parametrize(
    ("opening", "words"),
    [
        ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "REPEATABLE READ transaction"),
        ("SET TRANSACTION READ ONLY", "read-only"),
    ],
)
def test_an_open_transaction_that_cannot_serve_is_refused_and_left_alone(
    postgres_shop: Shop, postgres_customer: Customer, key: str, opening: str, words: str
) -> None:
    if is_asyncpg(postgres_shop):
        pytest.skip("On asyncpg every open transaction is refused.")
    postgres_customer.do("execute", opening)

    with pytest.raises(MisuseError, match=words):
        postgres_shop.sell(key, connection=postgres_customer.raw)

    assert postgres_customer.raw.info.transaction_status.name == "INTRANS"
    assert postgres_shop.sell(key).result == "paid"


def test_a_transaction_that_somebody_else_commits_is_refused_and_left_alone(
    postgres_shop: Shop, postgres_customer: Customer, key: str
) -> None:
    raw = postgres_customer.raw
    if isinstance(postgres_shop, AsyncShop):
        shop = postgres_shop

        async def sell_inside() -> None:
            async with raw.transaction():
                await raw.execute(f"INSERT INTO payments VALUES ('{key}-theirs')")
                await shop.selling(key, connection=raw)

        with pytest.raises(MisuseError, match="inside a"):
            shop.loop.run(sell_inside())
    else:
        with pytest.raises(MisuseError, match=r"transaction\(\) block"), raw.transaction():
            postgres_shop.sell(key, connection=raw)

    assert postgres_shop.sell(key).result == "paid"


def test_a_connection_in_error_and_a_closed_one_are_refused(
    postgres_shop: Shop, postgres_customer: Customer, key: str
) -> None:
    if not is_asyncpg(postgres_shop):
        with pytest.raises(psycopg.Error):
            postgres_customer.do("execute", "SELECT 1 / 0")
        with pytest.raises(MisuseError, match="roll back before"):
            postgres_shop.sell(key, connection=postgres_customer.raw)
    postgres_customer.close()

    with pytest.raises(MisuseError, match="closed"):
        postgres_shop.sell(key, connection=postgres_customer.raw)

    assert postgres_shop.books.state(key) in (None, "A")


def test_a_connection_to_another_database_is_refused(
    postgres_shop: Shop, postgres_server: PostgresServer, key: str
) -> None:
    """Even if there is a store in it: the claim is not."""
    url = postgres_server.create_database()
    other = open_shop(postgres_shop.driver, url, "guarded")
    stranger = Customer(other)
    try:
        if isinstance(postgres_shop, AsyncShop) and isinstance(other, AsyncShop):
            connection = postgres_shop.loop.run(_connect(postgres_shop.driver, url))
        else:
            connection = stranger.raw

        with pytest.raises(MisuseError, match="another database"):
            postgres_shop.sell(key, connection=connection)
        if isinstance(postgres_shop, AsyncShop):
            postgres_shop.loop.run(connection.close())
    finally:
        stranger.close()
        other.close()
        postgres_server.drop_database(url)


async def _connect(driver: str, url: str) -> Any:
    return await (asyncpg.connect(url) if driver == "asyncpg" else psycopg.AsyncConnection.connect(url))


def test_durability_is_switched_on_for_the_transaction_only(
    postgres_shop: Shop, postgres_customer: Customer, key: str
) -> None:
    setting = "SELECT current_setting('synchronous_commit')"
    postgres_customer.do("execute", "SET synchronous_commit = off")
    if not is_asyncpg(postgres_shop):
        postgres_customer.do("commit")

    def require_on(scene: Scene) -> Any:
        return scene.execute(f"INSERT INTO payments SELECT '{key}-' || current_setting('synchronous_commit')")

    postgres_shop.sell(key, require_on, finish, connection=postgres_customer.raw)

    assert postgres_shop.books.of(f"{key}-on") == (1, 0)
    assert postgres_customer.rows(setting) == [("off",)]


def test_a_psycopg_connection_serves_a_store_on_asyncpg(place: Any, key: str) -> None:
    """What is handed in decides, not the driver that the store itself uses."""
    shop = open_shop("asyncpg", place("asyncpg"), "guarded")
    assert isinstance(shop, AsyncShop)
    shop.driver = "psycopg-async"
    try:
        customer = Customer(shop)
        shop.sell(key, connection=customer.raw)
        customer.close()
    finally:
        shop.close()

    assert shop.books.of(key) == (1, 1)


def test_a_blocking_connection_is_refused_under_asyncio_and_the_other_way_round(postgres_shop: Shop, key: str) -> None:
    url = postgres_shop.books.url
    if isinstance(postgres_shop, AsyncShop):
        with psycopg.connect(url) as blocking, pytest.raises(MisuseError, match="AsyncConnection"):
            postgres_shop.sell(key, connection=blocking)
    else:
        with pytest.raises(MisuseError, match=r"psycopg\.Connection"):
            postgres_shop.sell(key, connection=uuid.uuid4())
