"""How often a transaction goes to the server and back, beside what the application itself says."""

from typing import Any

import pytest

from nebis.flow import Ask
from nebis.stores.sql.postgres.conversation import Execute
from nebis.stores.sql.postgres.transactions_asks import FinishWith
from nebis.stores.sql.postgres.transactions_asyncpg import AsyncpgTransactions
from nebis.stores.sql.postgres.transactions_psycopg import AsyncPsycopgTransactions, BlockingPsycopgTransactions
from tests.transactions.scenes import announce, finish, pay
from tests.transactions.shops import Customer, Shop

OURS = {"single": ["claim_and_enrol"], "guarded": ["enrol", "lock", "read"]}
"""What is said before the handler, on a connection of ours and on one of the application."""
PLAIN = {**OURS, "single": ["claim_and_enrol_plain"]}
"""On one of ours of which the driver knows that its codecs are as they were."""
ALONG = {
    ("complete_inside", "Finish"): ["complete_or_fail", "FinishWith"],
    ("complete_and_stage_inside", "Finish"): ["complete_and_stage_or_fail", "FinishWith"],
}
"""What is said in the end where it is one trip."""
THEIRS = {"single": ["enrol", "claim_inside"], "guarded": ["enrol", "lock", "read"]}


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What transactions ask of their drivers, by name: each is one trip, but for a start on asyncpg, which is none."""
    said: list[str] = []
    for driver in (BlockingPsycopgTransactions, AsyncPsycopgTransactions, AsyncpgTransactions):
        perform = driver.perform

        def told(self: Any, connection: Any, ask: Ask[Any], perform: Any = perform) -> Any:
            if isinstance(ask, FinishWith):
                said.append(ask.last.statement.name)
            said.append(ask.statement.name if isinstance(ask, Execute) else type(ask).__name__)
            return perform(self, connection, ask)

        monkeypatch.setattr(driver, "perform", told)
    return said


def leaving(shop: Shop, *usual: str) -> list[str]:
    return ALONG[usual[0], usual[1]] if shop.driver == "asyncpg" and shop.is_single else list(usual)


def test_a_single_transaction_makes_four_trips_on_asyncpg_two_and_a_guarded_one_six(
    postgres_shop: Shop, key: str, trips: list[str]
) -> None:
    postgres_shop.sell(f"{key}-before")  # Opens the connection.
    trips.clear()

    postgres_shop.sell(key, pay, finish)

    ours = PLAIN if postgres_shop.driver == "asyncpg" else OURS
    entering = ours["single" if postgres_shop.is_single else "guarded"]
    assert trips == ["Start", *entering, *leaving(postgres_shop, "complete_inside", "Finish")]


def test_messages_go_with_the_outcome(postgres_shop: Shop, key: str, trips: list[str]) -> None:
    postgres_shop.sell(key, pay, announce, finish)

    assert trips[-2:] == leaving(postgres_shop, "complete_and_stage_inside", "Finish")
    assert postgres_shop.books.of(key) == (1, 1)


def test_it_is_one_more_on_the_applications_own_connection_which_is_looked_at_first(
    postgres_shop: Shop, postgres_customer: Customer, key: str, trips: list[str]
) -> None:
    postgres_shop.sell(key, pay, finish, connection=postgres_customer.raw)

    entering = THEIRS["single" if postgres_shop.is_single else "guarded"]
    assert trips == ["Start", *entering, "complete_inside", "Finish"]
