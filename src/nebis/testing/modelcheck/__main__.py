"""The proof from the command line: `python -m nebis.testing.modelcheck`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nebis.core.step import Edge
from nebis.testing.modelcheck.configurations import CONFIGURATIONS
from nebis.testing.modelcheck.mutants import MUTANTS
from nebis.testing.modelcheck.proof import Report, check_all, deeper
from nebis.testing.modelcheck.story import tell

HEADER = f"{'world':38} {'states':>9} {'edges':>10} {'seconds':>8} {'violations':>10} {'poisoned':>8}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, print one row per world, tell a story for each broken promise; 0 means that the proof holds."""
    asked = _parser().parse_args(arguments)
    if asked.mutants:
        return _hunt(asked.only)
    chosen = [one for one in CONFIGURATIONS if not asked.only or one.name in asked.only]
    if not chosen:
        _say("No world has that name. These exist: " + "; ".join(one.name for one in CONFIGURATIONS))
        return 2
    _say(HEADER)
    reports = []
    for report in check_all([deeper(one, asked.deeper) for one in chosen], processes=asked.processes):
        _say(_row(report))
        reports.append(report)
    return _verdict(reports, asked.states)


def _verdict(reports: list[Report], wanted: int) -> int:
    states = sum(report.result.states for report in reports)
    edges = sum(report.result.transitions for report in reports)
    taken: set[Edge] = set().union(*(report.result.edges for report in reports))
    _say(f"{'together':38} {states:9} {edges:10}")
    _say(
        f"edges of the state machine taken: {len(taken)} of {len(Edge)}; not taken: "
        + "; ".join(sorted(set(Edge) - taken))
    )
    stories = [story for report in reports for story in report.stories]
    for story in stories:
        _say("\n" + story)
    if states < wanted:
        _say(f"Only {states} states, {wanted} were wanted: search all worlds, or go deeper (--deeper 1).")
        return 1
    return 1 if stories else 0


def _row(report: Report) -> str:
    result = report.result
    broken = result.violations.total() - result.poisoned
    return (
        f"{result.configuration.name:38} {result.states:9} {result.transitions:10} {result.seconds:8.1f} "
        f"{broken:10} {result.poisoned:8}"
    )


def _hunt(names: list[str]) -> int:
    survivors = 0
    for mutant in MUTANTS:
        if names and mutant.name not in names:
            continue
        search, result = mutant.hunt()
        is_as_argued = mutant.expected in result.violations if mutant.expected else not result.violations
        survivors += not is_as_argued
        verdict = mutant.expected.name if mutant.expected else f"changes nothing: {mutant.reason}"
        _say(f"{'ok' if is_as_argued else 'NOT FOUND':9} {mutant.name:52} {result.states:7} states  {verdict}")
        if names:
            for finding in result.findings:
                _say(tell(search, finding))
    return 1 if survivors else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nebis.testing.modelcheck", description=main.__doc__)
    parser.add_argument("--states", type=int, default=0, help="fail unless at least so many states were visited")
    parser.add_argument("--processes", type=int, default=2, help="worlds that are searched at the same time")
    parser.add_argument(
        "--deeper", type=int, default=0, help="add so many late messages, crashes and requests to each world"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="one world, or one mutant; repeatable"
    )
    parser.add_argument("--mutants", action="store_true", help="hunt the planted mistakes instead")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
