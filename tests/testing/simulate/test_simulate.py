"""The simulation: no seed fails, each can be had again, planted mistakes are found and told with few faults."""

import subprocess
import sys
from pathlib import Path

import pytest

from nebis.testing.modelcheck import sabotage
from nebis.testing.simulate import Fault, Rule, Trouble, minimised, simulate
from nebis.testing.simulate.campaign import play, story
from nebis.testing.simulate.store import Transition

KEPT = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def test_no_seed_fails() -> None:
    """G1 to G5 by the bank's own books, with crashes before and after every ask (F001-F007, F012-F016, F048-F050)."""
    tally = play(range(400))

    assert not tally.stories, "\n\n".join(tally.stories)
    assert tally.seeds == 400
    assert tally.faults > 1_000
    assert tally.answers > 500
    assert tally.messages > 100


@pytest.mark.parametrize("seed", KEPT)
def test_seed_that_failed_once_does_not_fail_again(seed: int) -> None:
    assert not simulate(seed).violations


def test_worker_goes_on_with_a_single_transaction_that_died_before_its_doubt_was_written() -> None:
    faults = [Fault(0, Trouble.DOUBT, 1.0), Fault(10, Trouble.CRASH_AFTER, 1.0)]

    run = simulate(9, faults)

    assert not run.violations


def test_seed_goes_the_same_way_twice_also_in_another_process() -> None:
    code = "from nebis.testing.simulate import simulate; print([simulate(seed).digest for seed in range(8)])"
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    ]

    assert told[0] == told[1] == f"{[simulate(seed).digest for seed in range(8)]}\n"


def test_different_seeds_go_different_ways() -> None:
    assert len({simulate(seed).digest for seed in range(50)}) == 50


@pytest.mark.parametrize(
    ("transition", "rules"),
    [
        (sabotage.any_command, {Rule.OTHER_COMMAND}),
        (sabotage.release_when_dirty, {Rule.EFFECT_VANISHED, Rule.DOUBLE_EFFECT}),
        (sabotage.purge_of_anything, {Rule.NEW_LIFE_TOO_SOON, Rule.EFFECT_VANISHED}),
        (sabotage.complete_overwrites, {Rule.OUTCOME_CHANGED, Rule.ACKS_DIFFER}),
    ],
)
def test_planted_mistake_is_found(transition: Transition, rules: set[Rule]) -> None:
    for seed in range(200):
        broken = {violation.rule for violation in simulate(seed, transition=transition).violations}
        if broken & rules:
            return
    pytest.fail("200 seeds did not show it")


def test_faults_are_minimised_to_those_that_it_takes() -> None:
    faults = [Fault(at, trouble, 1.0) for at, trouble in enumerate(Trouble)]
    guilty = {faults[3], faults[11]}

    assert set(minimised(faults, guilty.issubset)) == guilty


def test_story_names_the_seed_its_faults_and_what_was_broken() -> None:
    runs = (simulate(seed, transition=sabotage.any_command) for seed in range(50))
    run = next(run for run in runs if run.violations)

    told = story(run, sabotage.any_command)

    assert told.startswith(f"seed {run.seed}\n")
    assert "=> OTHER_COMMAND" in told


def test_command_says_how_many_seeds_were_played() -> None:
    command = [sys.executable, "-m", "nebis.testing.simulate", "--seeds", "60", "--from", "7", "--processes", "1"]

    finished = subprocess.run(command, capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stdout
    assert finished.stdout.startswith("60 seeds (7 to 66), ")
    assert ", 0 failed; " in finished.stdout
