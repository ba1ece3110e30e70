"""A COMMIT whose answer is lost, on its way there or back: resolved behind the lock, never by guessing."""

import time
from collections.abc import Callable, Iterator

import pytest

from nebis import InDoubt, NotYet
from nebis.flows.guarded import DOUBT_ENDED_INSIDE
from tests.engines.proxy import FaultProxy
from tests.transactions.scenes import Scene, announce, commit, finish, pay
from tests.transactions.shops import MODES, POSTGRES, AsyncShop, BlockingShop, Customer, open_shop

ProxiedShop = tuple[BlockingShop | AsyncShop, FaultProxy]


@pytest.fixture(scope="module", params=[f"{driver}-{mode}" for driver in POSTGRES for mode in MODES])
def proxied(request: pytest.FixtureRequest, place: Callable[[str], str]) -> Iterator[ProxiedShop]:
    """A shop behind a proxy, on every driver of PostgreSQL in both modes."""
    driver, _, mode = request.param.rpartition("-")
    url = place(driver)
    with FaultProxy.before(url) as proxy:
        shop = open_shop(driver, proxy.url(url), mode)
        yield shop, proxy
        shop.close()


@pytest.mark.parametrize("joins", [False, True])
def test_a_commit_whose_reply_is_cut_is_found_done_f012(proxied: ProxiedShop, key: str, joins: bool) -> None:
    shop, proxy = proxied
    customer = Customer(shop)

    def cut_the_reply(_: Scene) -> None:
        proxy.was_cut.clear()
        proxy.cut_reply_after = b"COMMIT"

    first = shop.sell(key, pay, announce, finish, cut_the_reply, connection=customer.raw if joins else None)

    assert proxy.was_cut.is_set()
    assert (first.result, first.is_replay) == ("paid", False)
    assert shop.books.of(key) == (1, 1)
    assert shop.sell(key).is_replay
    assert is_closed(customer) is joins
    customer.close()


@pytest.mark.parametrize("joins", [False, True])
def test_a_commit_that_never_arrives_is_found_undone_f013(proxied: ProxiedShop, key: str, joins: bool) -> None:
    shop, proxy = proxied
    customer = Customer(shop)

    def cut_before(_: Scene) -> None:
        proxy.was_cut.clear()
        proxy.cut_before = b"COMMIT"

    with pytest.raises(NotYet, match="nothing was committed"):
        shop.sell(key, pay, announce, finish, cut_before, connection=customer.raw if joins else None)

    assert proxy.was_cut.is_set()
    assert shop.books.of(key) == (0, 0)
    assert sold(shop, key) == "paid"
    assert shop.books.of(key) == (1, 1)
    customer.close()


@pytest.mark.parametrize("way", ["cut_before", "cut_reply_after"])
def test_a_begin_that_is_lost_on_its_way_there_or_back_left_nothing(proxied: ProxiedShop, key: str, way: str) -> None:
    """On asyncpg with the claim that goes along with it, or with the look at the connection."""
    shop, proxy = proxied
    shop.sell(f"{key}-before")  # Opens the connection, and prepares what is said on it.
    proxy.was_cut.clear()
    setattr(proxy, way, b"BEGIN ISOLATION" if shop.driver == "asyncpg" else b"BEGIN")

    with pytest.raises(NotYet):
        shop.sell(key)

    assert proxy.was_cut.is_set()
    assert shop.books.of(key) == (0, 0)
    assert sold(shop, key) == "paid"
    assert shop.books.of(key) == (1, 1)


def test_a_connection_that_breaks_before_the_commit_left_nothing(proxied: ProxiedShop, key: str) -> None:
    shop, proxy = proxied

    with pytest.raises(NotYet):
        shop.sell(key, pay, finish, lambda _: proxy.reset_all())

    assert shop.books.of(key) == (0, 0)
    assert sold(shop, key) == "paid"
    assert shop.books.of(key) == (1, 1)


def test_a_connection_that_breaks_after_somebody_committed_inside_is_in_doubt(proxied: ProxiedShop, key: str) -> None:
    """It cannot be asked any more, but its transaction has a number that the server knows."""
    shop, proxy = proxied

    with pytest.raises(InDoubt) as told:
        shop.sell(key, pay, commit, finish, lambda _: proxy.reset_all())

    assert told.value.reason == DOUBT_ENDED_INSIDE
    assert shop.books.of(key) == (1, 0)
    assert shop.books.state(key) == "D"


def sold(shop: BlockingShop | AsyncShop, key: str) -> str:
    """Retry as a client does, while the server has not noticed yet whom it lost."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return shop.sell(key).result
        except NotYet:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def is_closed(customer: Customer) -> bool:
    raw = customer.raw
    return bool(raw.is_closed() if hasattr(raw, "is_closed") else raw.closed)
