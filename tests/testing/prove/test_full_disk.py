"""The disk of a store fills up to the last byte, at every moment of a request (F019, G1, G2, P4, P6)."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nebis.testing.bank import Bank, BankProcess
from tests.testing.prove.full_disk import Moment
from tests.testing.prove.small_disk import namespace

ROOT = Path(__file__).parents[3]
LONGEST_SECONDS = 200
STORE_ERRORS = {"StoreUnavailable", "NotConfirmed"}
SAID_OF_THE_DISK = ("disk is full", "No space left on device", "disk I/O error")


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    """A bank whose books are on another disk."""
    with BankProcess(tmp_path / "bank.db") as process:
        yield process.bank


def played(store: str, bank: Bank, home: Path) -> dict[Moment, dict[str, Any]]:
    """Let a service of its own live through every moment."""
    home.mkdir()
    part = [sys.executable, "-m", "tests.testing.prove.full_disk", store, str(bank.port), str(home)]
    outcome = subprocess.run(
        [*namespace(), *part, "mounted" if namespace() else "limited"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return {Moment(moment): seen for moment, seen in json.loads(outcome.stdout).items()}


def check_answers(moment: Moment, seen: dict[str, Any]) -> None:
    """Nothing was acknowledged that was not stored, and what was stored is all that anybody is ever told."""
    first, second = seen["full"]
    assert first["error"] in STORE_ERRORS, (moment, first)
    assert second["error"] in {*STORE_ERRORS, "InFlight"}, (moment, second)
    after, again, earlier = seen["after"]
    stored = {"answer": seen["before"]["answer"], "is_replay": True}
    assert again == {"answer": after["answer"], "is_replay": True}, moment
    assert earlier == stored, moment
    assert seen["earlier"] == stored or seen["earlier"]["error"] in STORE_ERRORS, (moment, seen["earlier"])


def check_effects(moment: Moment, seen: dict[str, Any], bank: Bank) -> None:
    """Each key had one effect, however often its handler ran."""
    keys = [moment.earlier_key, moment.key]
    if moment is Moment.IN_TRANSACTION:
        assert sorted(seen["rows"]) == sorted(keys), moment
        return
    for key in keys:
        assert len(bank.ledger(key)) == 1, (moment, key)
    assert Counter(seen["runs"])[moment.earlier_key] == 1, moment


@pytest.mark.timeout(LONGEST_SECONDS + 40)
def test_sqlite_on_a_full_disk_acknowledges_nothing_and_goes_on_when_there_is_space_f019(
    bank: Bank, tmp_path: Path
) -> None:
    moments = played("sqlite", bank, tmp_path / "disk")

    assert len(moments) == 4
    for moment, seen in moments.items():
        check_answers(moment, seen)
        check_effects(moment, seen, bank)
        assert any(words in seen["full"][0]["says"] for words in SAID_OF_THE_DISK), (moment, seen["full"])
    # Its claim was not stored, so that nothing was begun.
    assert Counter(moments[Moment.BEFORE_CLAIM]["runs"])[Moment.BEFORE_CLAIM.key] == 1


@pytest.mark.timeout(LONGEST_SECONDS + 40)
def test_postgres_on_a_full_disk_acknowledges_nothing_and_goes_on_when_there_is_space(
    bank: Bank, tmp_path: Path
) -> None:
    """The tables cannot grow, and at one moment the log cannot either, of which the server dies."""
    if not namespace():
        pytest.skip("nobody may mount a file system here, and a server's files cannot be limited one by one")

    moments = played("postgres", bank, tmp_path / "disk")

    assert len(moments) == 5
    for moment, seen in moments.items():
        check_answers(moment, seen)
        check_effects(moment, seen, bank)
        assert seen["has_died"] is (moment is Moment.LOG), moment
        if moment is not Moment.LOG:
            assert "No space left on device" in seen["full"][0]["says"], (moment, seen["full"])
    for moment in (Moment.BEFORE_CLAIM, Moment.LOG):
        assert Counter(moments[moment]["runs"])[moment.key] == 1
