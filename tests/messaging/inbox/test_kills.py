"""A consumer that is killed at any moment, and a broker that delivers again: applied once (F112)."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nebis import Delivery, Done, Later, ParkReason
from nebis.consuming import Consumer
from nebis.delivery import Verdict
from tests.messaging.inbox.mortal import SCHEMA, message, open_ledger
from tests.messaging.inbox.offices import BlockingOffice


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], BlockingOffice]:
    """Opens a look at an empty database of a kind, which consumers share."""

    def of(kind: str) -> BlockingOffice:
        url = f"sqlite:///{tmp_path / 'nebis.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
        beside = BlockingOffice(url)
        beside.sql(SCHEMA)
        (tmp_path / "told").mkdir()
        request.addfinalizer(beside.close)
        return beside

    return of


def played(beside: BlockingOffice, folder: Path, mode: str, *, is_deadly: bool = False) -> list[int]:
    """Return how each child ended."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.messaging.inbox.mortal"],
        input=json.dumps({"url": beside.url, "folder": str(folder), "mode": mode, "is_deadly": is_deadly}),
        capture_output=True,
        text=True,
        check=True,
    )
    ends: list[int] = json.loads(ended.stdout)
    assert ends[-1] == 0, ended.stderr
    assert set(ends[:-1]) == {-signal.SIGKILL}
    return ends


def redelivered(consumer: Consumer, given: Delivery) -> Verdict:
    """Deliver as a broker does, until the message is acknowledged."""
    while isinstance(verdict := consumer.handle(given), Later):
        time.sleep(verdict.after_seconds)  # A lease of the dead is over only when its time is.
    return verdict


@pytest.mark.parametrize(("kind", "mode"), [("sqlite", "single"), ("sqlite", "sequence"), ("postgres", "sequence")])
def test_consumer_killed_at_every_moment_applies_each_message_once(
    place: Callable[[str], BlockingOffice], kind: str, mode: str, tmp_path: Path
) -> None:
    beside, folder = place(kind), tmp_path / "told"

    ends = played(beside, folder, mode)

    assert len(ends) > 10, "there are more moments than that"
    nebis, ledger = open_ledger(beside.url, str(folder), mode)
    with nebis:
        for number in range(1, len(ends) + 1):
            assert isinstance(redelivered(ledger, message(number, mode, redeliveries=1)), Done)
            assert ledger.handle(message(number, mode, redeliveries=2)) == Done(is_duplicate=True)
    applied = [row[0] for row in beside.sql("SELECT payment FROM applied ORDER BY 1")]
    assert applied == [f"p-{number:03}" for number in range(1, len(ends) + 1)]
    told = [path.name[:5] for path in folder.iterdir()]
    assert len(told) == len(set(told)), "one key for each message, on every attempt"
    assert mode == "single" or sorted(told) == applied
    if mode == "sequence":
        offsets = beside.sql("SELECT last_offset, gaps FROM nebis_offset")
        assert len(offsets) == len(ends)
        assert {tuple(row) for row in offsets} == {(5, 0)}


@pytest.mark.parametrize(("kind", "mode"), [("sqlite", "guarded"), ("postgres", "single")])
def test_message_that_kills_its_process_each_time_is_parked(
    place: Callable[[str], BlockingOffice], kind: str, mode: str, tmp_path: Path
) -> None:
    """F108: what is counted is in the store, so that a death counts as a failure does."""
    beside = place(kind)

    ends = played(beside, tmp_path / "told", mode, is_deadly=True)

    assert len(ends) == 3, "two deaths, and one that finds the attempts used up"
    assert beside.sql("SELECT reason, attempts FROM nebis_parked") == [(ParkReason.ATTEMPTS_USED_UP, 3)]
    assert beside.sql("SELECT payment FROM applied") == []
