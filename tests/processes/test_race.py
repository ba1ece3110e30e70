"""Eight processes race on five thousand keys."""

import json
import random
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.processes.company import Process, runs

PROCESSES, KEYS, RIVALS = 8, 5000, 3
"""Each key is asked for by three of the eight, at random: as many races as with all eight, in half the time."""


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: nobody loses power here, and fsync would be most of the time."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="nebis-race-", dir=shared if shared.is_dir() else tmp_path) as made:
        yield Path(made)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_each_key_runs_once_and_all_answers_of_a_key_are_one(
    kind: str, request: pytest.FixtureRequest, witness: Path, tmp_path: Path, memory_disk: Path
) -> None:
    """G1, G2: the witness is a file that is only ever appended to."""
    url = f"sqlite:///{memory_disk / 'nebis.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_url")

    told = raced(url, witness, tmp_path)

    counted = runs(witness)
    assert len(counted) == KEYS
    assert set(counted.values()) == {1}
    assert len(told) == KEYS
    for answers in told.values():
        assert len(answers) == RIVALS
        assert len(set(answers)) == 1
    if kind == "sqlite":
        with sqlite3.connect(memory_disk / "nebis.db") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


def raced(url: str, witness: Path, directory: Path) -> dict[str, list[str]]:
    """Let all processes go at once and return what each key was answered with."""
    answers = [directory / f"answers-{number}" for number in range(PROCESSES)]
    with ExitStack() as stack:
        racers = [
            stack.enter_context(Process("race", url, witness, keys, path))
            for keys, path in zip(dealt(directory), answers, strict=True)
        ]
        for racer in racers:
            assert racer.hear() == {"ready": True}
        for racer in racers:
            racer.go_on()
        for racer in racers:
            assert racer.hear() == {"done": True}
    told = defaultdict(list)
    for path in answers:
        for key, answer in json.loads(path.read_text()).items():
            told[key].append(answer)
    return told


def dealt(directory: Path) -> list[Path]:
    """Deal the keys out to the processes, each in an order of its own, and return where they are written."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed of the race: {seed}")  # noqa: T201 - shown by pytest if the test fails.
    chance = random.Random(seed)
    hands: list[list[str]] = [[] for _ in range(PROCESSES)]
    for number in range(KEYS):
        for hand in chance.sample(hands, RIVALS):
            hand.append(f"key-of-the-race-{number:05}")
    paths = []
    for number, hand in enumerate(hands):
        chance.shuffle(hand)
        paths.append(directory / f"keys-{number}")
        paths[-1].write_text(json.dumps(hand))
    return paths
