"""Somebody ends the transaction inside its block: some of its rows may be committed, and nobody says otherwise."""

import pytest

from nebis import InDoubt
from nebis.flows.guarded import DOUBT_ENDED_INSIDE
from tests.transactions.scenes import (
    Step,
    announce,
    begin,
    bill,
    commit,
    fail,
    finish,
    misspell,
    pay,
    reject,
    roll_back,
)
from tests.transactions.shops import Customer, Shop

ENDINGS: dict[str, tuple[Step, ...]] = {
    "commit": (pay, commit, finish),
    "commit, then more rows": (pay, commit, bill, announce, finish),
    "rollback": (pay, roll_back, bill, announce, finish),
    "commit, then no result": (pay, commit),
    "commit, then an exception": (pay, commit, fail),
    "commit, then a rejection": (pay, commit, reject),
    "commit, then a statement that fails": (pay, commit, misspell),
    "commit, then another transaction": (pay, commit, begin, bill, announce, finish),
    "rollback, then another transaction": (pay, roll_back, begin, bill, announce, finish),
    "commit, then another transaction, then an exception": (pay, commit, begin, bill, fail),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_it_is_in_doubt_for_the_caller_and_for_whoever_comes_later(shop: Shop, key: str, how: str) -> None:
    with pytest.raises(InDoubt) as told:
        shop.sell(key, *ENDINGS[how])
    with pytest.raises(InDoubt) as again:
        shop.sell(key)

    assert told.value.reason == again.value.reason == DOUBT_ENDED_INSIDE
    assert shop.books.state(key) == "D"
    # What came after the end was committed statement by statement, or not: nobody knows how much is missing.
    payments, _ = shop.books.of(key)
    assert payments == int(how.startswith("commit"))


@pytest.mark.parametrize("how", ["commit", "rollback", "commit, then a statement that fails"])
def test_on_the_applications_own_connection_too(shop: Shop, customer: Customer, key: str, how: str) -> None:
    with pytest.raises(InDoubt) as told:
        shop.sell(key, *ENDINGS[how], connection=customer.raw)

    assert told.value.reason == DOUBT_ENDED_INSIDE
    assert shop.books.state(key) == "D"


@pytest.mark.parametrize("how", ["commit, then another transaction", "rollback, then another transaction"])
@pytest.mark.parametrize("is_joined", [False, True])
def test_nothing_of_another_transaction_is_committed_neither_a_row_nor_the_outcome(
    shop: Shop, request: pytest.FixtureRequest, key: str, how: str, is_joined: bool
) -> None:
    """The outcome is written only where the transaction's own number is, so not even for a moment."""
    connection = request.getfixturevalue("customer").raw if is_joined else None

    with pytest.raises(InDoubt) as told:
        shop.sell(key, *ENDINGS[how], connection=connection)

    assert told.value.reason == DOUBT_ENDED_INSIDE
    assert shop.books.of(f"bill of {key}") == (0, 0)
    assert shop.books.of(key) == (int(how.startswith("commit")), 0)
    assert shop.books.state(key) == "D"


def test_a_statement_that_fails_without_any_commit_leaves_nothing_and_is_no_doubt(shop: Shop, key: str) -> None:
    with pytest.raises(Exception, match="no_such_table"):
        shop.sell(key, pay, misspell, finish)

    assert shop.books.of(key) == (0, 0)
    assert shop.sell(key).result == "paid"
    assert shop.books.of(key) == (1, 1)
