"""SIGTERM in the middle of the work, and a process that goes on with it (F077, F078)."""

import json
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from nebis import Nebis
from nebis.core.record import Record, State
from nebis.ports.store import Scan
from tests.processes.company import ROOT
from tests.processes.server import EACH, STUCK_KEYS


def start(world: str, url: str, witness: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.processes.server", world, url, str(witness), how]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def stored(url: str) -> tuple[dict[str, Record], int]:
    """Return every record by its key, and the store's clock."""
    with Nebis(url, housekeeping=False) as nebis:
        backend = nebis.opened()[0].backend
        records = backend.sessions.run(backend.store.scan(Scan(limit=10_000)))
        return {record.key: record for record in records}, backend.sessions.run(backend.store.clock())


def told_to_end(world: str, url: str, witness: Path) -> dict[str, str]:
    """Let a process be told to end while it is at work, and return what it had answered by then."""
    process = start(world, url, witness, "stuck")
    said: list[dict[str, Any]] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            said.append(json.loads(line))
            is_at_work = any("ready" in each for each in said) and sum("answer" in each for each in said) >= EACH
            if is_at_work:
                break
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    said += [json.loads(line) for line in rest.splitlines()]
    return {each["key"]: each["answer"] for each in said if "answer" in each}


def asked(world: str, url: str, witness: Path, keys: list[str]) -> dict[str, str]:
    """Ask a new process for each key once, and return what it answered to that."""
    process = start(world, url, witness, "free")
    said, _ = process.communicate("".join(f"{key}\n" for key in keys), timeout=60)
    told = [json.loads(line) for line in said.splitlines()]
    assert [each for each in told if "error" in each] == []
    return {each["key"]: each["answer"] for each in told}


@pytest.mark.parametrize("world", ["blocking", "asyncio"])
def test_restarted_process_serves_at_once_what_sigterm_interrupted(world: str, url: str, witness: Path) -> None:
    answered = told_to_end(world, url, witness)

    records, now = stored(url)
    for key in STUCK_KEYS:
        if key.startswith("clean"):
            assert records[key].state is State.AVAILABLE, "what is clean is given back"
        else:
            assert records[key].state is State.IN_PROGRESS
            assert records[key].has_lapsed(now), "what is dirty is suspended, its lease of an hour notwithstanding"
    assert not any(key.startswith(("clean", "calling", "dirty")) for key in answered)
    assert all(records[key].state is State.COMPLETED for key in answered)

    again = asked(world, url, witness, [*STUCK_KEYS, *answered])

    assert again.keys() == {*STUCK_KEYS, *answered}
    assert {key: again[key] for key in answered} == answered
    calls: dict[str, list[str]] = defaultdict(list)
    for line in witness.read_text().splitlines():
        key, derived_key = line.split()
        calls[key].append(derived_key)
    assert all(len(set(calls[key])) == 1 for key in again)
    assert {key: len(calls[key]) for key in STUCK_KEYS} == {
        key: 2 if key.startswith("calling") else 1 for key in STUCK_KEYS
    }
