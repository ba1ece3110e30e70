"""Prove from the command line, with one row for each layer as it ends."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nebis.testing.prove import evidence
from nebis.testing.prove.layers import LAYERS, Campaign, Seen
from nebis.testing.prove.sizes import SIZES

STORIES_SHOWN = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every layer at a size; 0 if nothing was broken and as much was seen as the size asks for."""
    asked = _parser().parse_args(arguments)
    root, size = Path.cwd(), SIZES[asked.size]
    if not (root / "tests" / "matrix").is_dir():
        _say("Run this from the root of a checkout: the layers that start processes live with its tests.")
        return 2
    if size.name == "night" and evidence.is_changed(root):
        _say("There are uncommitted changes under src; commit them, since a proof names the commit that it is of.")
        return 2
    commit, place = evidence.commit_of(root), evidence.place_of(root, size.name)
    total = evidence.read(place, commit) if size.name == "night" else evidence.read(Path(os.devnull, "none"), commit)
    campaign = Campaign(
        size=size,
        root=root,
        commit=commit,
        processes=asked.processes,
        piece=total["simulation_seeds"] // size.seeds,
    )
    chosen = asked.only or list(LAYERS)
    _say(f"{'layer':15} {'seconds':>8} {'broken':>7}  seen ({size.name}, {commit[:12]})")
    failures: list[str] = []
    for name in chosen:
        began = time.monotonic()
        seen = LAYERS[name](campaign)
        total = evidence.added(total, seen.counts, len(seen.failures))
        failures += seen.failures
        _say(_row(name, seen, time.monotonic() - began))
        if size.name == "night":
            evidence.write(place, total)
    evidence.write(place, total)
    return _verdict(total, {} if asked.only else size.wanted, failures)


def _verdict(total: dict[str, int], wanted: dict[str, int], failures: list[str]) -> int:
    for failure in failures[:STORIES_SHOWN]:
        _say("\n" + failure)
    missing = [f"{name}: {total[name]} of {number}" for name, number in wanted.items() if total[name] < number]
    if total["planted_bugs_caught"] < total["planted_bugs_total"]:
        missing.append(f"planted bugs: {total['planted_bugs_caught']} of {total['planted_bugs_total']} were caught")
    if missing:
        _say("\nNot enough was seen: " + "; ".join(missing))
    _say(f"\n{'NOT PROVED' if failures or missing else 'proved'}: {len(failures)} broken promises")
    return 1 if failures or missing else 0


def _row(name: str, seen: Seen, seconds: float) -> str:
    counts = ", ".join(f"{label.replace('_', ' ')} {number}" for label, number in seen.counts.items())
    return f"{name:15} {seconds:8.1f} {len(seen.failures):7}  {counts or 'not at this size'}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nebis.testing.prove", description=main.__doc__)
    parser.add_argument("--size", choices=SIZES, default="smoke")
    parser.add_argument("--processes", type=int, default=2, help="how many at the same time")
    parser.add_argument("--only", action="append", choices=LAYERS, help="one layer; repeatable")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
