"""`nebis worker` as people run it: in a process of its own, next to one that was killed.

Leases are real here, so the worker is given the time to see them pass.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from nebis import Nebis
from nebis.core.record import RecordId, State
from nebis.ports.store import Scan
from tests.cli.command import nebis, start_nebis

ROOT = Path(__file__).parents[2]
KEY = "3f0c2b1e-9a54-4c57-8f0e-5d2a7c9b1e64"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'nebis.db'}"
    location: str = request.getfixturevalue("postgres_url")
    return location


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """The file in which the bank writes each charge."""
    path = tmp_path / "books"
    path.touch()
    return path


def environment(url: str, books: Path) -> dict[str, str]:
    return {"TILL_STORE": url, "TILL_BOOKS": str(books), "PYTHONPATH": str(ROOT)}


def api(url: str, books: Path, *words: str) -> int:
    """Run the process that serves the request, to its end or its death."""
    command = [sys.executable, "-m", "tests.worker.till", KEY, *words]
    return subprocess.run(command, env={**os.environ, **environment(url, books)}, check=False, timeout=60).returncode


@contextmanager
def running(url: str, books: Path, *arguments: str) -> Iterator[Any]:
    process = start_nebis("worker", *arguments, **environment(url, books))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def state(url: str) -> State:
    with Nebis(url, housekeeping=False) as reader:
        backend = reader.opened()[0].backend
        [record] = backend.sessions.run(backend.store.scan(Scan()))
        assert reader.find(RecordId(UUID(str(record.record_id)))) is not None
        return record.state


@pytest.mark.parametrize(("words", "app"), [((), "nebis"), (("later",), "later")], ids=["blocking", "asyncio"])
def test_worker_alone_finishes_what_a_killed_process_left_and_ends_on_sigterm(
    url: str, books: Path, words: tuple[str, ...], app: str
) -> None:
    """F004, F078: kill -9 after the charge, and no retry ever comes."""
    assert api(url, books, "dies", *words) == -signal.SIGKILL

    with running(url, books, "--app", f"tests.worker.till:{app}", "--interval", "0.1", "--json") as worker:
        for line in worker.stdout:
            if json.loads(line)["records"].get("finished"):
                break
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=60)

    assert worker.returncode == 0
    assert said == "nebis: worker for pay\n"
    assert state(url) is State.COMPLETED
    keys = books.read_text().split()
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_one_pass_says_what_it_did(tmp_path: Path, books: Path) -> None:
    url = f"sqlite:///{tmp_path / 'nebis.db'}"
    assert api(url, books) == 0

    told = nebis("worker", "--app", "tests.worker.till:nebis", "--once", **environment(url, books))
    counted = nebis("worker", "--app", "tests.worker.till:later", "--once", "--json", **environment(url, books))

    assert (told.status, told.stdout) == (0, "nothing to do\n")
    assert json.loads(counted.stdout) == {"records": {}, "skipped": {}, "swept": 0, "redriven": 0}


@pytest.mark.parametrize(
    ("app", "advice"),
    [
        ("tests.worker.till", "package.module:name"),
        ("no_such_package.module:nebis", "there is no module 'no_such_package'"),
        ("tests.worker.till:charge", "is no Nebis"),
        ("tests.worker.till:absent", "has no 'absent'"),
    ],
)
def test_application_that_is_not_there_is_one_line_of_advice(
    app: str, advice: str, tmp_path: Path, books: Path
) -> None:
    told = nebis("worker", "--app", app, "--once", **environment(f"sqlite:///{tmp_path / 'nebis.db'}", books))

    assert told.status == 2
    assert advice in told.stderr
