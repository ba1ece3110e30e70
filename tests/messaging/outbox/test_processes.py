"""`nebis relay` and `nebis worker` as processes, killed and stopped for real."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from nebis.ports.outbox import MessageState
from tests.cli.command import start_nebis
from tests.messaging.outbox.benches import Bench, message

APP = "tests.messaging.outbox.relay_app"
KEYS = [f"key {number}" for number in range(5)]


class Place:
    """A store, a broker that is a file, and relays between them."""

    def __init__(self, bench: Bench, url: str, path: Path) -> None:
        self.bench = bench
        self.path = path / "ledger"
        self._environment = {"STORE": url, "LEDGER": str(self.path)}

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return start_nebis(*arguments, **self._environment, **environment)

    @property
    def arrived(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def first_times(self, key: str) -> list[str]:
        return list(dict.fromkeys(name for name in self.arrived if name.startswith(f"{key}/")))

    def wait_until_published(self) -> None:
        deadline = time.monotonic() + 30
        while set(self.bench.states().values()) != {MessageState.PUBLISHED}:
            assert time.monotonic() < deadline, self.bench.states()
            time.sleep(0.05)  # Another process works meanwhile.


@pytest.fixture
def place(bench: Bench, url: str, tmp_path: Path) -> Place:
    return Place(bench, url, tmp_path)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_relays_that_are_killed_lose_nothing_and_keep_the_order_f106(place: Place) -> None:
    for number in range(20):
        place.bench.stage(*(message(f"{key}/{number:02}", key) for key in KEYS))
    for fatal in (1, 7, 23):
        process = place.start("relay", "--app", f"{APP}:relay", FATAL_MESSAGE=str(fatal))
        assert process.wait(30) == -signal.SIGKILL
        process.communicate()

    last = place.start("relay", "--app", f"{APP}:relay")
    place.wait_until_published()
    last.terminate()
    stdout, stderr = last.communicate(timeout=30)

    assert last.returncode == 0, stderr
    assert "published" in stdout
    for key in KEYS:
        assert place.first_times(key) == [f"{key}/{number:02}" for number in range(20)]
    # Each of the dead had one wave in its hands: at most one message of each key.
    assert len(place.arrived) <= 100 + 3 * len(KEYS)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_relay_that_is_stopped_past_its_lease_marks_nothing_when_it_wakes_up_f114(place: Place) -> None:
    place.bench.stage(*(message(f"k/{number}", "k") for number in range(6)))
    fate = {"FATAL_MESSAGE": "2", "FATAL_SIGNAL": "SIGSTOP", "LEASE_SECONDS": "4"}
    sleeper = place.start("relay", "--app", f"{APP}:relay", "--once", "--json", **fate)
    os.waitpid(sleeper.pid, os.WUNTRACED)

    successor = place.start("relay", "--app", f"{APP}:relay")
    place.wait_until_published()  # A real lease has to pass.
    os.kill(sleeper.pid, signal.SIGCONT)
    stdout, _ = sleeper.communicate(timeout=30)
    successor.terminate()
    successor.communicate(timeout=30)

    assert json.loads(stdout.splitlines()[0])["lost"] == 5
    assert place.first_times("k") == [f"k/{number}" for number in range(6)]
    assert place.arrived.count("k/2") == 1


@pytest.mark.parametrize(("url", "is_async"), [("sqlite", ""), ("postgres", "1")], indirect=["url"])
def test_a_worker_publishes_too_where_the_application_has_a_relay(place: Place, is_async: str) -> None:
    place.bench.stage(message("one"), message("two"))

    once = place.start("worker", "--app", f"{APP}:nebis", "--once", IS_ASYNC=is_async)
    once.communicate(timeout=30)
    place.bench.stage(message("three"))
    lasting = place.start("worker", "--app", f"{APP}:nebis", IS_ASYNC=is_async)
    place.wait_until_published()
    lasting.terminate()
    lasting.communicate(timeout=30)

    assert (once.returncode, lasting.returncode) == (0, 0)
    assert place.arrived == ["one", "two", "three"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_relay_is_found_by_the_name_of_its_nebis_too(place: Place) -> None:
    place.bench.stage(message("one"))

    told = place.start("relay", "--app", f"{APP}:nebis", "--once", "--json", IS_ASYNC="1")
    stdout, _ = told.communicate(timeout=30)

    assert json.loads(stdout) == {"taken": 1, "published": 1, "postponed": 0, "parked": 0, "lost": 0}
