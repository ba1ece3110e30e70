"""Eight processes race on five thousand keys."""

import json
import sqlite3
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.processes.company import Process, runs

PROCESSES, KEYS = 8, 500


@pytest.mark.timeout(300)
def test_each_key_runs_once_and_all_answers_of_a_key_are_one(url: str, witness: Path, tmp_path: Path) -> None:
    """G1, G2: the witness is a file that is only ever appended to."""
    answers = [tmp_path / f"answers-{number}" for number in range(PROCESSES)]

    with ExitStack() as stack:
        racers = [
            stack.enter_context(Process("race", url, witness, seed, KEYS, path)) for seed, path in enumerate(answers)
        ]
        for racer in racers:
            assert racer.hear() == {"ready": True}
        for racer in racers:
            racer.go_on()
        for racer in racers:
            assert racer.hear() == {"done": True}

    counted = runs(witness)
    assert len(counted) == KEYS
    assert set(counted.values()) == {1}
    told = [json.loads(path.read_text()) for path in answers]
    assert len(told[0]) == KEYS
    assert all(other == told[0] for other in told)
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
