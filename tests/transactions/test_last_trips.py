"""The outcome and COMMIT in one trip, on connections of ours through asyncpg: both happen, or neither."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nebis import InDoubt, NotYet
from nebis.flows.guarded import DOUBT_ENDED_INSIDE
from tests.engines.proxy import FaultProxy
from tests.transactions.scenes import Scene, Step, announce, commit, finish, pay
from tests.transactions.shops import AsyncShop, open_shop

LATE = "CREATE TABLE late (id text UNIQUE DEFERRABLE INITIALLY DEFERRED)"
PREPARED_COMMIT = b"COMMIT_"
"""In the name of a COMMIT that goes along, and in no text of a handler's."""


@pytest.fixture(scope="module")
def proxied(place: Callable[[str], str]) -> Iterator[tuple[AsyncShop, FaultProxy]]:
    """A shop behind a proxy, on the driver and in the mode that have such trips."""
    url = place("asyncpg")
    with FaultProxy.before(url) as proxy:
        made = open_shop("asyncpg", proxy.url(url), "single")
        assert isinstance(made, AsyncShop)
        made.books.ask(LATE)
        yield made, proxy
        made.close()


@pytest.fixture
def shop(proxied: tuple[AsyncShop, FaultProxy], key: str) -> AsyncShop:
    """The same, with a connection on which everything is prepared."""
    made, _ = proxied
    made.sell(f"{key}-before", pay, finish)
    made.sell(f"{key}-before-2", pay, announce, finish)
    return made


def counting(into: list[Any]) -> Step:
    """Keep the connection of a transaction, and how many trips asyncpg has waited for on it."""
    return lambda scene: into.append((scene.connection, scene.connection._protocol.queries_count))


def pid(scene: Scene) -> int:
    return int(scene.connection.get_server_pid())


@pytest.mark.parametrize("messages", [0, 1, 3])
def test_it_is_two_trips_beside_those_of_the_handler(shop: AsyncShop, key: str, messages: int) -> None:
    seen: list[Any] = []
    shop.sell(f"{key}-first", *[announce] * messages, finish)
    shop.sell(f"{key}-second", counting(seen), *[announce] * messages, finish)
    shop.sell(f"{key}-third", counting(seen), finish)

    [(first, before), (second, after)] = seen
    assert first is second
    assert after - before == len(["the outcome and COMMIT", "BEGIN and the next claim"])
    assert shop.books.of(f"{key}-second") == (0, messages)


def test_messages_of_one_transaction_keep_their_order(shop: AsyncShop, key: str) -> None:
    def say(number: int) -> Step:
        return lambda scene: scene.transaction.stage("said", {"number": number, "nothing": None}, ordering_key=key)

    shop.sell(key, *(say(number) for number in range(5)), finish)

    payloads = shop.books.ask(
        f"SELECT convert_from(payload, 'UTF8')::json ->> 'number' FROM nebis_outbox WHERE ordering_key = '{key}' "
        "ORDER BY sequence"
    )
    assert payloads == [(str(number),) for number in range(5)]


def spoil(statement: str) -> Step:
    return lambda scene: scene.execute(statement.format(key=scene.key))


TAKEN = {
    "another fence": "UPDATE nebis_record SET fence = fence + 1 WHERE key = '{key}'",
    "gone": "DELETE FROM nebis_record WHERE key = '{key}'",
}


@pytest.mark.parametrize("way", TAKEN)
@pytest.mark.parametrize("says", [(), (announce,)])
def test_nothing_is_committed_if_the_record_is_not_ours_any_more(
    shop: AsyncShop, key: str, way: str, says: tuple[Step, ...]
) -> None:
    with pytest.raises(NotYet, match="rolled back"):
        shop.sell(key, pay, *says, spoil(TAKEN[way]), finish)

    assert shop.books.of(key) == (0, 0)
    assert shop.books.state(key) is None
    assert shop.sell(key).result == "paid"
    assert shop.books.of(key) == (1, 1)


def test_a_commit_that_the_server_refuses_left_nothing_and_the_connection_goes_on(shop: AsyncShop, key: str) -> None:
    pids: list[int] = []
    twice = spoil("INSERT INTO late VALUES ('{key}'), ('{key}')")

    with pytest.raises(NotYet, match=r"rolled back.*late_id_key"):
        shop.sell(key, pay, announce, twice, lambda scene: pids.append(pid(scene)), finish)

    assert shop.books.of(key) == (0, 0)
    assert shop.books.state(key) is None
    shop.sell(key, pay, lambda scene: pids.append(pid(scene)), finish)
    assert len(set(pids)) == 1
    assert shop.books.of(key) == (1, 0)


def test_a_transaction_that_had_failed_left_nothing_and_the_connection_goes_on(shop: AsyncShop, key: str) -> None:
    pids: list[int] = []

    async def fail_quietly(scene: Scene) -> None:
        pids.append(pid(scene))
        with pytest.raises(Exception, match="no_such_table"):
            await scene.connection.fetch("SELECT * FROM no_such_table")

    with pytest.raises(NotYet, match="25P02"):
        shop.sell(key, pay, fail_quietly, finish)

    assert shop.books.of(key) == (0, 0)
    shop.sell(key, pay, lambda scene: pids.append(pid(scene)), finish)
    assert len(set(pids)) == 1
    assert shop.books.of(key) == (1, 0)


@pytest.mark.parametrize("way", ["cut_before", "cut_reply_after"])
def test_somebody_who_committed_inside_is_noticed_even_if_the_answer_is_lost(
    proxied: tuple[AsyncShop, FaultProxy], shop: AsyncShop, key: str, way: str
) -> None:
    _, proxy = proxied

    def cut(_: Scene) -> None:
        proxy.was_cut.clear()
        setattr(proxy, way, PREPARED_COMMIT)

    with pytest.raises(InDoubt) as told:
        shop.sell(key, pay, commit, cut, finish)

    assert proxy.was_cut.is_set()
    assert told.value.reason == DOUBT_ENDED_INSIDE
    assert shop.books.of(key) == (1, 0)
    assert shop.books.state(key) == "D"


def test_a_server_that_ends_the_session_before_the_commit_left_nothing(shop: AsyncShop, key: str) -> None:
    def end_session(scene: Scene) -> None:
        shop.books.ask(f"SELECT pg_terminate_backend({pid(scene)}, 10000)")

    with pytest.raises(NotYet):
        shop.sell(key, pay, announce, finish, end_session)

    assert shop.books.of(key) == (0, 0)
    assert shop.books.state(key) is None
    assert shop.sell(key).result == "paid"


def test_a_query_that_a_handler_left_running_keeps_everything_from_being_committed(shop: AsyncShop, key: str) -> None:
    left: list[asyncio.Task[Any]] = []

    async def leave_running(scene: Scene) -> None:
        left.append(asyncio.create_task(scene.connection.fetch("SELECT pg_sleep(0.3)")))
        await asyncio.sleep(0)

    with pytest.raises(NotYet):
        shop.sell(key, pay, leave_running, finish)

    assert shop.books.of(key) == (0, 0)
    assert shop.books.state(key) is None
    shop.loop.run(asyncio.wait(left))
    assert shop.sell(key).result == "paid"


def test_a_query_that_a_handler_cancelled_keeps_everything_from_being_committed(shop: AsyncShop, key: str) -> None:
    async def give_up(scene: Scene) -> None:
        with pytest.raises(TimeoutError):
            await scene.connection.fetch("SELECT pg_sleep(30)", timeout=0.01)

    with pytest.raises(NotYet):
        shop.sell(key, pay, give_up, finish)

    assert shop.books.of(key) == (0, 0)
    assert shop.sell(key).result == "paid"


def test_statements_that_a_handler_made_the_server_forget_are_prepared_anew(shop: AsyncShop, key: str) -> None:
    with pytest.raises(NotYet, match="26000"):
        shop.sell(key, pay, spoil("DEALLOCATE ALL"), finish)

    assert shop.books.of(key) == (0, 0)
    for number in range(3):
        shop.sell(f"{key}-{number}", pay, finish)
        assert shop.books.of(f"{key}-{number}") == (1, 0)


def test_a_codec_that_a_handler_sets_is_in_nobodys_way(shop: AsyncShop, key: str) -> None:
    async def set_codec(scene: Scene) -> None:
        await scene.connection.set_type_codec("json", schema="pg_catalog", encoder=str, decoder=str)

    shop.sell(key, pay, set_codec, announce, finish)
    for number in range(3):
        shop.sell(f"{key}-{number}", pay, announce, finish)

    assert [shop.books.of(f"{key}-{number}") for number in range(3)] == [(1, 1)] * 3
    assert shop.books.of(key) == (1, 1)
