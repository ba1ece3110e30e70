"""Mutation testing of the core: change one thing at a time, and see whether the core's own tests notice.

    python -m tests.planted.mutation [--part 20 --turn 3] [--only owning] [--processes 2]

`tests/planted/mutants.py` makes the changes, `tests/planted/trials.py` runs the tests of `tests/core` against each. A
mutant is killed when a test fails, when the changed module cannot be loaded, or when it takes far more time or memory
than the true code.

`tests/planted/survivors.txt` lists the mutants that no test can kill because they behave like the true code, each with
the reason. They are tried all the same: an entry that is killed, or that is no mutant any more, is a violation, and so
is a survivor that is not listed. The score is killed / (all - listed), in per cent, rounded down. A run can be made in
parts, each of which judges its own mutants.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tests.planted.mutants import CORE, Mutant, mutants_of
from tests.planted.trials import KILLED, NOT_LOADED, SURVIVED, UNCHANGED, Hunter, Suite, load_anew, try_all

ROOT = Path(__file__).parents[2]
SURVIVORS = Path(__file__).parent / "survivors.txt"


class Hunt:
    """A hunt for the mutants that survive."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self._waiting = {mutant.name: mutant for mutant in mutants}
        self._began = time.monotonic()
        self.killed: set[str] = set()
        self.survived: set[str] = set()
        self.broken: list[str] = []
        """What kept it from looking."""

    def run(self, processes: int) -> None:
        """Try the mutants, first those that a process can try that has loaded the core already."""
        with tempfile.TemporaryDirectory() as home:
            told = Path(home) / "told.json"
            child = os.fork()
            if child == 0:
                Hunter(lambda hunter, suite: self._try_living(hunter, suite, processes, told)).run()
                os._exit(0)
            os.waitpid(child, 0)
            if not told.exists():
                self.broken.append("without a mutant: the tests of the core cannot be loaded")
                return
            known, killed, survived, self.broken = json.loads(told.read_text())
        self.killed, self.survived = set(killed), set(survived)
        for name in self.killed | self.survived:
            del self._waiting[name]
        if not self.broken:
            self._try_anew(Suite(**known), processes)

    def _try_living(self, hunter: Hunter, suite: Suite, processes: int, told: Path) -> None:
        self.broken += suite.failures
        if not self.broken:
            trials = [
                (each, suite.nearest(each)) for each in self._waiting.values() if not suite.runs_when_loaded(each)
            ]
            for mutant, _, end in try_all(trials, suite, processes, hunter.change_living):
                if end != UNCHANGED:
                    self._note(mutant, end)
        told.write_text(json.dumps([asdict(suite), list(self.killed), list(self.survived), self.broken]))

    def _try_anew(self, suite: Suite, processes: int) -> None:
        begin = partial(load_anew, suite)
        nearest = {mutant.name: suite.nearest(mutant) for mutant in self._waiting.values()}
        trials = [(self._waiting[name], tests) for name, tests in nearest.items() if tests]
        for mutant, _, end in try_all(trials, suite, processes, begin):
            if end != SURVIVED:
                self._note(mutant, end)
        left = [(mutant, suite.others(nearest[mutant.name])) for mutant in self._waiting.values()]
        for mutant, _, end in try_all(left, suite, processes, begin):
            self._note(mutant, end)

    def _note(self, mutant: Mutant, end: int) -> None:
        del self._waiting[mutant.name]
        if end == SURVIVED:
            self.survived.add(mutant.name)
            sys.stderr.write(f"line {mutant.lines[-1]} survived: {mutant.name}\n")
        elif end in (KILLED, NOT_LOADED):
            self.killed.add(mutant.name)
        else:
            self.broken.append(f"the trial ended with {end}: {mutant.name}")
        if len(self._waiting) % 50 == 0:
            sys.stderr.write(f"{len(self._waiting)} mutants are left after {time.monotonic() - self._began:.0f} s\n")


def listed() -> dict[str, str]:
    """Read the survivors that are known: each on a line of its own, its reason indented below it."""
    reasons: dict[str, str] = {}
    name = ""
    for line in SURVIVORS.read_text().splitlines():
        if line.startswith(" "):
            reasons[name] += line.strip()
        elif line and not line.startswith("#"):
            name = line
            reasons[name] = ""
    return reasons


def every_mutant() -> list[Mutant]:
    """Return all mutants of the core."""
    return [mutant for path in sorted(CORE.glob("*.py")) for mutant in mutants_of(path.stem)]


def judged(*, killed: set[str], survived: set[str], every: set[str], reasons: Mapping[str, str]) -> dict[str, object]:
    """Say what became of the mutants that were tried, and what is wrong with that or with the list."""
    excused = survived & reasons.keys()
    violations = [
        *(f"survived: {name}" for name in survived - excused),
        *(f"listed as a survivor, but killed: {name}" for name in killed & reasons.keys()),
        *(f"listed as a survivor, but no mutant: {name}" for name in reasons.keys() - every),
        *(f"listed as a survivor without a reason: {name}" for name, reason in reasons.items() if not reason),
    ]
    tried = len(killed) + len(survived)
    score = 100 * len(killed) // max(1, tried - len(excused))
    counts = {"mutants": tried, "mutants_killed": len(killed), "mutation_score": score}
    return {**counts, "violations": sorted(violations)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=1, help="try one mutant of so many")
    parser.add_argument("--turn", type=int, default=0, help="which of them, from 0")
    parser.add_argument("--only", default="", help="how the names of the mutants begin")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    os.chdir(ROOT)
    every = every_mutant()
    hunt = Hunt([mutant for mutant in every if mutant.name.startswith(asked.only)][asked.turn :: asked.part])
    hunt.run(asked.processes)
    if hunt.broken:
        told: dict[str, object] = {"violations": hunt.broken}  # A hunt that could not look has no score.
    else:
        names = {mutant.name for mutant in every}
        told = judged(killed=hunt.killed, survived=hunt.survived, every=names, reasons=listed())
    print(json.dumps(told))  # noqa: T201 - a command speaks by printing.
    return 1 if told["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
