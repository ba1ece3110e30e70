"""Reserve, charge, settle with undo, killed after each call in a real process; only a worker comes back (F009)."""

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from nebis import Nebis
from nebis.core.record import OutcomeKind, Record
from nebis.ports.store import Scan
from tests.cli.command import start_nebis

ROOT = Path(__file__).parents[2]
KEY = "3f0c2b1e-9a54-4c57-8f0e-5d2a7c9b1e64"
EFFECTS = ("reserve", "charge", "settle")
UNDOS = tuple(f"undo-{effect}" for effect in reversed(EFFECTS))
CELLS = [
    *(("sqlite", "accepted", place) for place in EFFECTS),
    *(("sqlite", "refused", place) for place in (*EFFECTS, *UNDOS)),
    # tests/flows/test_undo_crashes.py dies at every ask; these are real deaths, so a few of them are enough here.
    ("postgres", "accepted", "charge"),
    ("postgres", "refused", "settle"),
    ("postgres", "refused", "undo-charge"),
]


@pytest.fixture
def url(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if store == "sqlite":
        return f"sqlite:///{tmp_path / 'nebis.db'}"
    location: str = request.getfixturevalue("postgres_url")
    return location


def outcome(url: str) -> Record:
    with Nebis(url, housekeeping=False) as reader:
        backend = reader.opened()[0].backend
        [record] = backend.sessions.run(backend.store.scan(Scan()))
        return record


@pytest.mark.parametrize(("store", "how", "place"), CELLS, ids=["-".join(cell) for cell in CELLS])
def test_all_happened_or_all_that_happened_was_undone_each_once(url: str, tmp_path: Path, how: str, place: str) -> None:
    books = tmp_path / "books"
    environment = {"TILL_STORE": url, "TILL_BOOKS": str(books), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.worker.orders", KEY, "after", place, how]
    died = subprocess.run(command, env={**os.environ, **environment}, check=False, timeout=60).returncode
    assert died == -signal.SIGKILL, "it outlived the place"

    worker = start_nebis("worker", "--app", "tests.worker.orders:nebis", "--interval", "0.1", "--json", **environment)
    try:
        assert worker.stdout is not None
        for line in worker.stdout:
            if json.loads(line)["records"].get("finished"):
                break
    finally:
        worker.kill()
        worker.communicate()

    keys: dict[str, list[str]] = defaultdict(list)
    for line in books.read_text().splitlines():
        what, key = line.split()
        keys[what].append(key)
    wanted = (*EFFECTS, *UNDOS) if how == "refused" else EFFECTS
    assert tuple(keys) == wanted, "in this order"
    assert all(len(set(found)) == 1 for found in keys.values()), "each under one key"
    assert {what: len(found) for what, found in keys.items()} == {what: 1 + (what == place) for what in wanted}
    assert len({found[0] for found in keys.values()}) == len(wanted), "no key for two things"
    kind = OutcomeKind.REJECTED if how == "refused" else OutcomeKind.SUCCEEDED
    assert outcome(url).outcome_kind is kind
