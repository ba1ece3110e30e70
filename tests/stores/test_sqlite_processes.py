"""Several processes on one file: every key is granted once, in every way of journalling."""

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from nebis.core.record import State
from nebis.stores.sql.sqlite import open_blocking
from tests.stores.sql_backends import sqlite_url

PROCESSES = 3
KEYS = 240

# Each process opens the file by itself, claims the same keys in batches, completes what it was granted, and says so.
RACER = """
import json, sys
from nebis.core.answers import Granted
from nebis.ports.store import RowLocked
from nebis.stores.sql.sqlite import journal, open_blocking
from nebis.testing.conformance.specimens import claim, complete

url, wish, name, keys = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
journal._CHANGES_PER_CHECKPOINT = 20  # Checkpoints meet writes as often as possible.
backend = open_blocking(url, journal=wish, busy_seconds=60)
sys.stdin.readline()
backend.sessions.run(backend.store.migrate())
granted = []
for start in range(0, keys, 8):
    answers = backend.sessions.run(
        backend.store.apply([claim(str(number), by=name, life=name) for number in range(start, start + 8)])
    )
    owned = [answer.record for answer in answers if isinstance(answer, Granted)]
    granted += [record.key for record in owned]
    backend.sessions.run(backend.store.apply([complete(record.ownership) for record in owned]))
backend.sessions.close()
print(json.dumps(granted))
"""


@pytest.mark.parametrize("journal", ["wal", "rollback"])
def test_processes_that_race_are_granted_each_key_once(tmp_path: Path, journal: str) -> None:
    url = sqlite_url(tmp_path)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, url, journal, f"racer {number}", str(KEYS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]

    told = [racer.communicate(timeout=100)[0] for racer in _started(racers)]

    granted = Counter(key for line in told for key in json.loads(line))
    assert granted == Counter({str(number): 1 for number in range(KEYS)})
    backend = open_blocking(url)
    counts = backend.sessions.run(backend.store.count())
    backend.sessions.close()
    assert counts.by_state[State.COMPLETED] == KEYS
    with sqlite3.connect(tmp_path / "nebis.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        # Fences are as unique as the lives that they were drawn for (I10).
        assert connection.execute("SELECT count(DISTINCT fence) FROM nebis_record").fetchone() == (KEYS,)
    connection.close()


def _started(racers: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Let all of them go at the same moment."""
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return racers


def test_a_process_that_is_killed_while_it_writes_many_at_once_leaves_whole_batches(tmp_path: Path) -> None:
    """F020: a batch is there from its first member to its last, or not at all; what was told is there."""
    url = sqlite_url(tmp_path)
    endless = """
import sys
from nebis.stores.sql.sqlite import journal, open_blocking
from nebis.testing.conformance.specimens import claim, complete
journal._CHANGES_PER_CHECKPOINT = 40
backend = open_blocking(sys.argv[1])
backend.sessions.run(backend.store.migrate())
number = int(sys.argv[2])
while True:
    claims = [claim(f"{number}/{place}") for place in range(16)]
    granted = backend.sessions.run(backend.store.apply(claims))
    print("claimed", number, flush=True)
    backend.sessions.run(backend.store.apply([complete(answer.record.ownership) for answer in granted]))
    print("completed", number, flush=True)
    number += 1
"""
    told: list[str] = []
    for start in range(0, 5_000, 1_000):
        writer = subprocess.Popen([sys.executable, "-c", endless, url, str(start)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        told += [writer.stdout.readline() for _ in range(20 + start // 500)]
        writer.kill()
        told += writer.stdout.readlines()
        writer.wait()
        writer.stdout.close()

    with sqlite3.connect(tmp_path / "nebis.db") as connection:
        rows = connection.execute(
            "SELECT substr(key, 1, instr(key, '/') - 1), state, count(*) FROM nebis_record GROUP BY 1, 2"
        ).fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        fences = connection.execute("SELECT count(DISTINCT fence), count(*) FROM nebis_record").fetchone()
    connection.close()
    assert {number for _, _, number in rows} == {16}
    assert fences[0] == fences[1]
    state = {batch: state for batch, state, _ in rows}
    assert len(state) == len(rows)
    for line in told:
        event, batch = line.split()
        assert state[batch] == "C" if event == "completed" else state[batch] in {"P", "C"}
    assert len(state) - len([line for line in told if line.startswith("claimed")]) <= 5


def test_a_process_that_is_killed_in_the_middle_leaves_a_sound_file(tmp_path: Path) -> None:
    """F020: whatever was told as done before the kill is there, and the next process goes on."""
    url = sqlite_url(tmp_path)
    endless = """
import sys
from nebis.stores.sql.sqlite import journal, open_blocking
from nebis.testing.conformance.specimens import claim
journal._CHANGES_PER_CHECKPOINT = 5
backend = open_blocking(sys.argv[1])
backend.sessions.run(backend.store.migrate())
number = 0
while True:
    backend.sessions.run(backend.store.apply([claim(str(number))]))
    print(number, flush=True)
    number += 1
"""
    writer = subprocess.Popen([sys.executable, "-c", endless, url], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    told = [writer.stdout.readline() for _ in range(100)]
    writer.kill()
    told += writer.stdout.readlines()
    writer.wait()
    writer.stdout.close()

    backend = open_blocking(url)
    counts = backend.sessions.run(backend.store.count())
    backend.sessions.close()

    assert counts.by_state[State.IN_PROGRESS] in (len(told), len(told) + 1)
