"""The loss of a primary under load: nothing that was acknowledged is lost or done twice (I1, I2, F017)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebis.testing.bank import Bank, BankProcess
from tests.failover.failover import BROKEN_BY_LOSS, broken_rules, lose_acknowledged, lose_primaries
from tests.failover.service import DRIVERS

COUNT = int(os.environ.get("NEBIS_FAILOVERS", "1"))
"""How often each driver's primary is lost; more of them are a matter of time only."""


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    with BankProcess(tmp_path / "bank.db") as process:
        yield process.bank


@pytest.mark.timeout(120 + 60 * COUNT)
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_synchronous_standby_takes_over_everything_that_was_acknowledged(bank: Bank, driver: str) -> None:
    """F017: the primary is killed while callers work; those retry with their keys on whoever takes over."""
    verdicts = lose_primaries(bank, [driver], COUNT)

    assert [verdict.violations for verdict in verdicts] == [[]] * COUNT
    for verdict in verdicts:
        assert verdict.acknowledged >= 40
        assert verdict.under_way > 0, "the primary was lost while nobody worked"


def test_the_checker_sees_what_an_asynchronous_standby_loses(bank: Bank) -> None:
    """The negative control of the one above: what was acknowledged had not reached the standby, and happens again."""
    verdict = lose_acknowledged(bank)

    assert broken_rules(verdict) >= BROKEN_BY_LOSS
    assert len(verdict.violations) >= verdict.acknowledged
