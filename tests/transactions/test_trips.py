"""How often a transaction goes to the server and back, beside what the application itself says."""

from typing import Any

import pytest

from nebis.flow import Ask
from nebis.stores.sql.postgres.conversation import Execute
from nebis.stores.sql.postgres.transactions_asyncpg import AsyncpgTransactions
from nebis.stores.sql.postgres.transactions_psycopg import AsyncPsycopgTransactions, BlockingPsycopgTransactions
from tests.transactions.scenes import announce, finish, pay
from tests.transactions.shops import Customer, Shop

ENTERING = {"single": ["claim_inside"], "guarded": ["lock", "read"]}


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What transactions ask of their drivers, by name: each is one trip."""
    said: list[str] = []
    for driver in (BlockingPsycopgTransactions, AsyncPsycopgTransactions, AsyncpgTransactions):
        perform = driver.perform

        def told(self: Any, connection: Any, ask: Ask[Any], perform: Any = perform) -> Any:
            said.append(ask.statement.name if isinstance(ask, Execute) else type(ask).__name__)
            return perform(self, connection, ask)

        monkeypatch.setattr(driver, "perform", told)
    return said


def test_a_single_transaction_makes_five_trips_and_a_guarded_one_six(
    postgres_shop: Shop, key: str, trips: list[str]
) -> None:
    postgres_shop.sell(f"{key}-before")  # Opens the connection.
    trips.clear()

    postgres_shop.sell(key, pay, finish)

    entering = ENTERING["single" if postgres_shop.is_single else "guarded"]
    assert trips == ["Start", "enrol", *entering, "complete_inside", "Finish"]


def test_messages_go_with_the_outcome(postgres_shop: Shop, key: str, trips: list[str]) -> None:
    postgres_shop.sell(key, pay, announce, finish)

    assert trips[-2:] == ["complete_and_stage_inside", "Finish"]
    assert postgres_shop.books.of(key) == (1, 1)


def test_it_is_no_more_on_the_applications_own_connection(
    postgres_shop: Shop, postgres_customer: Customer, key: str, trips: list[str]
) -> None:
    postgres_shop.sell(key, pay, finish, connection=postgres_customer.raw)

    entering = ENTERING["single" if postgres_shop.is_single else "guarded"]
    assert trips == ["Start", "enrol", *entering, "complete_inside", "Finish"]
