"""Check recorded histories: 0 if every rule holds, 1 with a line for each violation, 2 if nothing could be judged."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nebis.testing.history.checker import check
from nebis.testing.history.events import HistoryUnusable
from nebis.testing.history.reading import History


def main() -> int:
    """Read all files as one history and judge it."""
    parser = argparse.ArgumentParser(prog="python -m nebis.testing.history", description="Check a recorded history.")
    parser.add_argument("files", type=Path, nargs="+", help="JSON lines of clients, bank and store, in any order")
    asked = parser.parse_args()
    try:
        history = History.read(*asked.files)
        violations = check(history)
    except (HistoryUnusable, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for violation in violations:
        sys.stdout.write(f"{violation}\n")
    sys.stdout.write(f"{len(history.keys)} keys, {history.answers} answers, {len(violations)} violations\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
