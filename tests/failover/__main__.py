"""Lose a primary as often as asked, and count what was lost with it or done twice."""

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path

from nebis.testing.bank import BankProcess
from tests.failover.failover import Verdict, lose_primaries
from tests.failover.service import DRIVERS


def main() -> int:
    """Fail over, one driver after another; 0 if nothing went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.failover", description="Lose primaries under load.")
    parser.add_argument("--count", type=int, default=1, help="how many primaries are lost")
    parser.add_argument("--json", action="store_true", help="print the sums as JSON")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)  # A lost server is told of by every caller.
    with tempfile.TemporaryDirectory(prefix="nebis-") as home, BankProcess(Path(home) / "bank.db") as process:
        verdicts = lose_primaries(process.bank, DRIVERS, asked.count, _tell)
    violations = sum(len(verdict.violations) for verdict in verdicts)
    sums = {
        "failovers": len(verdicts),
        "violations": violations,
        "keys": sum(verdict.keys for verdict in verdicts),
        "under_way": sum(verdict.under_way for verdict in verdicts),
    }
    text = json.dumps(sums) if asked.json else ", ".join(f"{count} {name}" for name, count in sums.items())
    sys.stdout.write(f"{text}\n")
    return 1 if violations else 0


def _tell(driver: str, verdict: Verdict) -> None:
    told = f"failover on {driver}: {verdict.keys} keys, {len(verdict.violations)} violations"
    sys.stderr.write("\n  ".join([told, *verdict.violations]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
