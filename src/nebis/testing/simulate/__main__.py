"""Play seeds from the command line: `python -m nebis.testing.simulate --seeds 1000`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from nebis.testing.simulate.campaign import play_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Play a range of seeds and tell how each that fails comes about; 0 means that none did."""
    asked = _parser().parse_args(arguments)
    began = time.monotonic()
    seeds = asks = calls = answers = messages = faults = failed = 0
    for tally in play_all(asked.first, asked.seeds, processes=asked.processes):
        seeds, asks, calls = seeds + tally.seeds, asks + tally.asks, calls + tally.calls
        answers, messages = answers + tally.answers, messages + tally.messages
        faults, failed = faults + tally.faults, failed + len(tally.stories)
        for story in tally.stories:
            _say(story)
    spent = time.monotonic() - began
    _say(
        f"{seeds} seeds ({asked.first} to {asked.first + asked.seeds - 1}), {calls} calls, {answers} HTTP answers, "
        f"{messages} messages, {asks} asks, "
        f"{faults} faults, {failed} failed; {spent:.1f} s, {seeds / spent:.0f} seeds/s"
    )
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nebis.testing.simulate", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED", help="the first one")
    parser.add_argument("--processes", type=int, default=2, help="how many at the same time")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
