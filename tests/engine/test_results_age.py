"""Results that older code stored (F118): a type that lost a field still reads them, a command's never does."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from nebis import Attempt, Declared, Nebis, NotYet, RecordCorrupt, Sticky, days

KEY = "a-key-of-a-test-0001"


@dataclass(frozen=True)
class Once:
    id: str
    legacy: int


@dataclass(frozen=True)
class Now:
    id: str


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'nebis.db'}"


def charge_once(*, idempotency_key: str) -> Once:
    return Once("charge-1", 5)


def charge_now(*, idempotency_key: str) -> Now:
    raise AssertionError("it happened before")


def test_stored_outcome_is_replayed_without_the_field_that_its_type_lost(url: str) -> None:
    with Nebis(url) as old:

        @old.operation("pay", effects=Declared)
        def pay(command: int) -> Once:
            return Once("payment-1", 5)

        pay(key=KEY, tenant="acct_1", command=1)
    with Nebis(url) as new:

        @new.operation("pay", effects=Declared)
        def pay_now(command: int) -> Now:
            raise AssertionError("it ran before")

        assert pay_now(key=KEY, tenant="acct_1", command=1) == Now("payment-1")


def test_checkpoint_of_an_effect_is_returned_without_the_field_that_its_type_lost(url: str) -> None:
    with Nebis(url) as old:

        @old.operation("pay", effects=Declared)
        def pay(attempt: Attempt, command: int) -> str:
            attempt.effect("charge", charge_once, recall=Sticky(days(1)))
            raise NotYet("later", retry_after_seconds=1)

        with pytest.raises(NotYet):
            pay(key=KEY, tenant="acct_1", command=1)
    with Nebis(url) as new:

        @new.operation("pay", effects=Declared)
        def pay_now(attempt: Attempt, command: int) -> str:
            charged: Now = attempt.effect("charge", charge_now, recall=Sticky(days(1)))
            return charged.id

        assert pay_now(key=KEY, tenant="acct_1", command=1) == "charge-1"


def test_result_that_lacks_what_its_type_needs_is_corrupt_and_runs_nothing(url: str) -> None:
    with Nebis(url) as old:

        @old.operation("pay", effects=Declared)
        def pay(command: int) -> Now:
            return Now("payment-1")

        pay(key=KEY, tenant="acct_1", command=1)
    with Nebis(url) as new:

        @new.operation("pay", effects=Declared)
        def pay_now(command: int) -> Once:
            raise AssertionError("it ran before")

        with pytest.raises(RecordCorrupt):
            pay_now(key=KEY, tenant="acct_1", command=1)
