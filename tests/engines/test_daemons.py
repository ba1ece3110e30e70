"""The brokers of the tests keep what they confirmed, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from redis import Redis

from tests.engines.nats import NatsServer
from tests.engines.rabbitmq_programs import ROOT_VARIABLE, find_rabbitmq
from tests.engines.valkey import ValkeyServer


def test_what_valkey_confirmed_survives_its_crash_at_the_same_address(valkey_server: ValkeyServer) -> None:
    with Redis.from_url(valkey_server.url) as client:
        client.set("crash", "survived")

    valkey_server.restart(crash=True)

    with Redis.from_url(valkey_server.url) as client:
        assert client.get("crash") == b"survived"


def test_a_server_is_started_again_by_whoever_finds_it_down(nats_server: NatsServer) -> None:
    nats_server.stop()
    assert not nats_server.is_running

    nats_server.start()
    nats_server.start()

    assert nats_server.is_running


@pytest.mark.parametrize("kind", ["nats.NatsServer", "valkey.ValkeyServer"])
def test_nothing_is_left_of_a_server_whose_tests_were_killed(kind: str) -> None:
    module, _, name = kind.partition(".")
    script = (
        f"from tests.engines.{module} import {name}\n"
        "import os, signal\n"
        f"server = {name}()\n"
        "print(server._process.pid, server._home, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert outcome.returncode == -signal.SIGKILL, outcome.stderr
    pid, home = outcome.stdout.split()
    deadline = time.monotonic() + 30
    while Path(home).exists() or _is_alive(int(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # The janitor is nobody's child here, so that nobody can wait for it.


def test_a_wrong_place_for_rabbitmq_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))

    with pytest.raises(FileNotFoundError, match=ROOT_VARIABLE):
        find_rabbitmq()


def test_a_machine_without_packages_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(FileNotFoundError, match="apt-get install rabbitmq-server"):
        find_rabbitmq()


def _is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_this_process_is_alive() -> None:
    assert _is_alive(os.getpid())
