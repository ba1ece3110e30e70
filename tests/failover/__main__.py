"""Lose a primary as often as asked, and count what was lost with it or done twice.

python -m tests.failover [--count 5 --json]
python -m tests.failover --control    # an asynchronous standby, whose losses must be noticed
"""

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path

from nebis.testing.bank import Bank, BankProcess
from tests.failover.failover import BROKEN_BY_LOSS, Verdict, broken_rules, lose_acknowledged, lose_primaries
from tests.failover.service import DRIVERS


def main() -> int:
    """Fail over, one driver after another; 0 if nothing went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.failover", description="Lose primaries under load.")
    parser.add_argument("--count", type=int, default=1, help="how many primaries are lost")
    parser.add_argument("--control", action="store_true", help="lose one with an asynchronous standby instead")
    parser.add_argument("--json", action="store_true", help="print the sums as JSON")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)  # A lost server is told of by every caller.
    with tempfile.TemporaryDirectory(prefix="nebis-") as home, BankProcess(Path(home) / "bank.db") as process:
        sums, violations = _control(process.bank) if asked.control else _lose(process.bank, asked.count)
    text = ", ".join(f"{count} {name}" for name, count in {**sums, "violations": len(violations)}.items())
    sys.stdout.write((json.dumps({**sums, "violations": violations}) if asked.json else text) + "\n")
    return 1 if violations else 0


def _lose(bank: Bank, count: int) -> tuple[dict[str, int], list[str]]:
    verdicts = lose_primaries(bank, DRIVERS, count, _tell)
    sums = {
        "failovers": len(verdicts),
        "failover_keys": sum(verdict.keys for verdict in verdicts),
        "under_way": sum(verdict.under_way for verdict in verdicts),
    }
    return sums, [violation for verdict in verdicts for violation in verdict.violations]


def _control(bank: Bank) -> tuple[dict[str, int], list[str]]:
    unseen = sorted(BROKEN_BY_LOSS - broken_rules(lose_acknowledged(bank)))
    told = f"what an asynchronous standby lost did not break {', '.join(unseen)}"
    return {"failover_controls": 1}, [told] if unseen else []


def _tell(driver: str, verdict: Verdict) -> None:
    told = f"failover on {driver}: {verdict.keys} keys, {len(verdict.violations)} violations"
    sys.stderr.write("\n  ".join([told, *verdict.violations]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
