"""Prove from the command line, with one row for each layer as it ends."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path

from nebis.testing.prove.evidence import Evidence, Record, Seen, totals_of
from nebis.testing.prove.ground import GROUNDS, newest
from nebis.testing.prove.layers import LAYERS, Campaign
from nebis.testing.prove.sizes import SIZES, Size

STORIES_SHOWN = 5
BROKEN, NOT_RUN, UNFINISHED = 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every layer at a size.

    It ends with 0 if nothing was broken and as much was seen as the size asks for; with 1 if something was broken, or
    too little seen; with 2 if nothing could be run; with 3 if nothing is broken and a night needs more rounds.
    """
    asked = _parser().parse_args(arguments)
    root, size = Path.cwd(), SIZES[asked.size]
    if not (root / "tests" / "matrix").is_dir():
        _say("Run this from the root of a checkout: the layers that start processes live with its tests.")
        return NOT_RUN
    evidence, is_night = Evidence(root, size.name), size.name == "night"
    chosen: list[str] = asked.only or list(LAYERS)
    if is_night and (changed := [name for name in chosen if GROUNDS[name].is_changed(root)]):
        _say(f"There are uncommitted changes in the code of: {', '.join(changed)}.")
        _say("Commit them, since a proof names the commit that it is of; or choose other layers with --only.")
        return NOT_RUN
    if not is_night:
        evidence.forget()
    commit = newest(root, [GROUNDS[name].commit(root) for name in chosen])
    _say(f"{'layer':15} {'seconds':>8} {'broken':>7}  seen ({size.name}, {commit[:12]})")
    seen = Seen()
    for name in chosen:
        with evidence.turn(name) as is_ours:
            if not is_ours:
                _say(f"{name:15} {'':8} {'':7}  another process is at it")
            elif is_night and not asked.only and not _missing(name, size, evidence.records()):
                _say(f"{name:15} {'':8} {'':7}  enough was seen already")
            else:
                seen.add(_play(name, asked, evidence))
    evidence.write()
    return _verdict(seen, evidence, size, list(LAYERS) if is_night else chosen)


def _play(name: str, asked: argparse.Namespace, evidence: Evidence) -> Seen:
    """Run a layer, and keep each piece as it ends."""
    root, ground, record = Path.cwd(), GROUNDS[name], evidence.record(name)
    campaign = Campaign(
        size=SIZES[asked.size], root=root, processes=asked.processes, rounds=asked.rounds, record=record
    )
    total, began = Seen(), time.monotonic()
    last = began
    try:
        for seen in LAYERS[name].run(campaign):
            if asked.size == "night" and (ground.is_changed(root) or ground.commit(root) != record.commit):
                total.breakdowns.append(f"The code of the {name} was changed meanwhile: the last piece does not count.")
                break
            if not seen.breakdowns:
                evidence.add(name, seen, time.monotonic() - last)
            last = time.monotonic()
            total.add(seen)
    except BrokenExecutor as error:
        total.breakdowns.append(f"The {name} lost one of its processes, as happens for lack of memory: {error}")
    _say(_row(name, total, time.monotonic() - began))
    return total


def _verdict(seen: Seen, evidence: Evidence, size: Size, layers: list[str]) -> int:
    """Say what was broken and what is missing, and return how it ends."""
    for story in [*seen.breakdowns, *seen.failures][:STORIES_SHOWN]:
        _say("\n" + story)
    records = evidence.records()
    totals = totals_of(records)
    missing = [f"{name} ({told})" for name in layers if (told := _told(_missing(name, size, records)))]
    if missing:
        _say("\nNot enough was seen yet: " + "; ".join(missing))
    is_blind = totals["planted_bugs_caught"] < totals["planted_bugs_total"]
    if is_blind:
        _say(f"\nOf planted bugs, {totals['planted_bugs_caught']} of {totals['planted_bugs_total']} were caught.")
    is_broken = bool(totals["violations"] or seen.breakdowns or is_blind)
    _say(f"\n{'NOT PROVED' if is_broken or missing else 'proved'}: {totals['violations']} broken promises")
    if is_broken or (missing and size.name != "night"):
        return BROKEN
    return UNFINISHED if missing else 0


def _missing(name: str, size: Size, records: dict[str, Record]) -> list[str]:
    done = records[name].done if name in records else []
    return LAYERS[name].missing(size, done, totals_of(records))


def _told(missing: list[str]) -> str:
    return ", ".join(missing) if len(missing) < 4 else f"{missing[0]}, and {len(missing) - 1} more"


def _row(name: str, seen: Seen, seconds: float) -> str:
    counts = ", ".join(f"{label.replace('_', ' ')} {number}" for label, number in seen.counts.items())
    return f"{name:15} {seconds:8.1f} {len(seen.failures):7}  {counts or 'not at this size'}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nebis.testing.prove",
        description=main.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=SIZES, default="smoke")
    parser.add_argument("--processes", type=_positive, default=2, help="how many at the same time")
    parser.add_argument("--only", action="append", choices=LAYERS, help="one layer; repeatable")
    parser.add_argument("--rounds", type=_positive, default=1, help="how often what can be repeated is repeated")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # What runs beside it is ended, too.
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        _say("\nStopped. Pieces that ended before are kept; a night goes on from there.")
        sys.exit(128 + signal.SIGINT)
