"""The proof of G1 to G5 on the production state machine, and the planted mistakes that keep it honest."""

import subprocess
import sys

import pytest

from nebis.core.record import State
from nebis.testing.modelcheck import CONFIGURATIONS, MUTANTS, Configuration, Mutant, Search, Violation, check, tell
from nebis.testing.modelcheck.__main__ import main
from nebis.testing.modelcheck.naming import Naming
from nebis.testing.modelcheck.theorems import Theorems
from nebis.testing.modelcheck.world import NOBODY, Ack, At, Attempt, Body, Entry, Message, Past, Situation

LARGE = 60_000
"""Worlds of so many states and more are searched by `make prove SIZE=ci`, as all others are."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "world", [world for world in CONFIGURATIONS if world.at_least < LARGE], ids=lambda world: world.name
)
def test_no_promise_is_broken_and_nothing_is_poisoned(world: Configuration) -> None:
    """G1, G2, G4 and G5 hold in each state, and from each a record at rest is reached without anybody's help (G3)."""
    report = check(world)

    assert not report.stories, "\n\n".join(report.stories)
    assert report.result.states >= world.at_least > 0


def test_the_worlds_together_have_more_than_a_million_states() -> None:
    assert sum(world.at_least for world in CONFIGURATIONS) >= 1_000_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_mistake_is_found_or_changes_nothing(mutant: Mutant) -> None:
    search, result = mutant.hunt()

    if mutant.expected is None:
        assert mutant.reason
        assert not result.violations
    else:
        assert mutant.expected in result.violations
        assert all(len(tell(search, finding).splitlines()) == len(finding.path) for finding in result.findings)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("world", list(dict.fromkeys(mutant.world for mutant in MUTANTS)), ids=lambda world: world.name)
def test_the_world_of_a_planted_mistake_is_clean_without_it(world: Configuration) -> None:
    """Otherwise the verdict would say nothing about the mistake."""
    result = Search(world).run()

    assert not result.violations


def _mutant(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def test_a_counterexample_is_told_as_numbered_sentences() -> None:
    search, result = _mutant("transaction run again without reading").hunt()

    story = tell(search, result.findings[0]).splitlines()

    assert story[0] == "DOUBLE_EFFECT: G1: an effect happened twice. (local, guarded transaction)"
    assert story[1] == "  1. A arrives as a request. | store: no record"
    assert "A claims the key. [claim: new] | store: in_progress (life A, owner A)" in story[2]
    assert "answer lost" in story[3]
    assert story[-1].endswith("bank for life A: effect 0 x2")


def _situation(*, first: int, second: int, third: int, low: int, high: int) -> Situation:
    """The same moment under any names and fences: one attempt calls, another waits, a late message is on its way."""
    return Situation(
        records=(0,),
        attempts=(
            Attempt(At.CALLING, first, first, high, 0, 0, view="o", key=first),
            Attempt(At.CLAIMING, second, second, 0, 0, 0),
        ),
        sent=(Message("complete", 0, third, third, low, "S"),),
        bank=(Entry(third, "0", third, 1, "S"),),
        acks=(Ack(third, Body("S", third, third)),),
        past=(Past(third, "S"),),
    )


def test_names_and_the_size_of_fences_make_no_difference() -> None:
    search = Search(CONFIGURATIONS[0])
    naming = Naming(search.table, Theorems(search.plan, search.table), keeps_fences=False)

    one, _ = naming.canonical(_situation(first=0, second=1, third=2, low=1, high=2))
    other, names = naming.canonical(_situation(first=7, second=0, third=3, low=4, high=9))

    assert one == other
    assert sorted(name for name in names if name != NOBODY) == [0, 1, 2]


def test_what_nobody_can_touch_any_more_is_dropped_unless_it_breaks_a_promise() -> None:
    search = Search(CONFIGURATIONS[0])
    naming = Naming(search.table, Theorems(search.plan, search.table), keeps_fences=False)
    kept_promise = Situation(records=(0,), bank=(Entry(0, "0", 0, 1, "S"),), past=(Past(0, "S"),))
    broken_promise = Situation(records=(0,), bank=(Entry(0, "0", 0, 2, "S"),), past=(Past(0, "S"),))

    assert naming.canonical(kept_promise)[0] == Situation(records=(0,))
    assert naming.canonical(broken_promise)[0] == broken_promise


def test_a_search_reaches_every_state_of_a_record() -> None:
    search = Search(next(world for world in CONFIGURATIONS if world.name == "queryable, ageing"))
    search.run()

    assert {face.state for face in search.table.faces} == {None, *State}


def test_the_command_prints_a_row_per_world_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--only", "opaque mode, two commands", "--processes", "1"])

    printed = capsys.readouterr().out
    assert code == 0
    assert "opaque mode, two commands" in printed
    assert "together" in printed


def test_the_command_fails_if_too_few_states_were_visited(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--only", "opaque mode, two commands", "--processes", "1", "--states", "1000000000"])

    assert code == 1
    assert "go deeper" in capsys.readouterr().out


def test_the_command_names_the_worlds_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--only", "no such world"])

    assert code == 2
    assert "success only" in capsys.readouterr().out


def test_the_command_hunts_mutants_and_tells_their_stories() -> None:
    """As a process of its own, as a reader would start it."""
    command = [sys.executable, "-m", "nebis.testing.modelcheck", "--mutants", "--only", "undo skipped"]

    finished = subprocess.run(command, capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stderr
    assert Violation.ACK_ERROR_BUT_EFFECT.value in finished.stdout
    assert "turns back" in finished.stdout
