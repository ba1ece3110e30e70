"""Cancellation while a COMMIT runs: the commit goes on, and the retry finds it (F017)."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from nebis import AsyncAttempt
from nebis.async_attempt import AsyncOpenAttempt
from tests.transactions.scenes import Books, Scene, finish, pay, perform_async
from tests.transactions.shops import AsyncShop, open_shop

SLOW_COMMIT = """
CREATE TABLE slow (key text);
CREATE FUNCTION sleep_at_commit() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION sleep_at_commit();
"""
# The one that sleeps: other connections of the shop commit too, and are seen while they wait for the disk.
COMMITTING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COMMIT%' AND wait_event = 'PgSleep'"


@pytest.fixture(params=["psycopg-async", "asyncpg"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(driver: str, postgres_url: str) -> Iterator[AsyncShop]:
    """A shop whose commits take long enough to be cancelled."""
    yield from slow_shop(driver, postgres_url, "guarded")


@pytest.fixture
def single_shop(driver: str, postgres_url: str) -> Iterator[AsyncShop]:
    """The same, with the claim in the same commit."""
    yield from slow_shop(driver, postgres_url, "single")


def slow_shop(driver: str, url: str, mode: str) -> Iterator[AsyncShop]:
    books = Books(url)
    books.create()
    books.ask(SLOW_COMMIT)
    made = open_shop(driver, url, mode)
    assert isinstance(made, AsyncShop)
    yield made
    made.close()


def slow_down(scene: Scene) -> object:
    return scene.execute("INSERT INTO slow VALUES ('once')")


async def until_committing(books: Books) -> None:
    deadline = time.monotonic() + 20
    while await asyncio.to_thread(books.ask, COMMITTING) != [(1,)]:
        assert time.monotonic() < deadline


def test_a_caller_that_leaves_during_the_commit_finds_its_outcome(shop: AsyncShop, key: str) -> None:
    async def scenario() -> None:
        selling = asyncio.create_task(shop.selling(key, pay, slow_down, finish))
        await until_committing(shop.books)
        selling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await selling

    shop.loop.run(scenario())

    wait_for_commit(shop.books, key)
    assert shop.sell(key).is_replay
    assert shop.books.of(key) == (1, 0)


def test_a_handler_that_is_cancelled_during_its_commit_has_committed(shop: AsyncShop, key: str) -> None:
    """As an integration runs it, in a task that its framework may cancel."""

    async def handle(attempt: AsyncAttempt) -> None:
        async with attempt.transaction() as transaction:
            await perform_async((pay, slow_down, finish), shop.scene(key, attempt, transaction))

    async def scenario() -> None:
        _, secrets = await shop.nebis.opened()
        request = shop.operation.declaration.call(secrets, key=key, tenant="acct_1", command=key)
        begun = await shop.nebis.begin(request)
        assert isinstance(begun, AsyncOpenAttempt)
        handling = asyncio.create_task(handle(begun.attempt))
        await until_committing(shop.books)
        handling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handling
        await begun.abandon()

    shop.loop.run(scenario())

    wait_for_commit(shop.books, key)
    assert shop.sell(key).is_replay
    assert shop.books.of(key) == (1, 0)


def test_a_single_transaction_whose_own_task_is_cancelled_during_the_commit_has_committed(
    single_shop: AsyncShop, key: str
) -> None:
    """As by a timer that a handler has left behind."""
    ran_in: list[asyncio.Task[object]] = []

    def remember_task(_: Scene) -> None:
        task = asyncio.current_task()
        assert task is not None
        ran_in.append(task)

    async def scenario() -> None:
        selling = asyncio.create_task(single_shop.selling(key, pay, slow_down, remember_task, finish))
        await until_committing(single_shop.books)
        ran_in[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await selling

    single_shop.loop.run(scenario())

    wait_for_commit(single_shop.books, key)
    assert single_shop.sell(key).is_replay
    assert single_shop.books.of(key) == (1, 0)


def wait_for_commit(books: Books, key: str) -> None:
    deadline = time.monotonic() + 20
    while books.state(key) != "C":
        assert time.monotonic() < deadline


def test_a_begin_that_is_cancelled_keeps_no_lock(shop: AsyncShop, key: str) -> None:
    async def scenario() -> None:
        world, _ = await shop.nebis.opened()
        assert world.backend.transaction is not None
        transaction = world.backend.transaction(None)
        beginning = asyncio.create_task(transaction.begin())
        await asyncio.sleep(0)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        await transaction.rollback()

    shop.loop.run(scenario())

    assert shop.books.ask(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
    ) == [(0,)]
