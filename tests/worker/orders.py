"""Reserve, charge, settle: an operation of three effects with undos, in a process that can be killed after each.

    python -m tests.worker.orders KEY [after WHAT] [refused]

The books are a file that is only ever appended to, one line for each call: what, and under which key.
"""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from nebis import Attempt, Declared, Nebis, Rejected, Sticky, Undo, days

BOOKS = Path(os.environ["TILL_BOOKS"])
LEASE = timedelta(milliseconds=500)
STICKY = Sticky(days(1))
EFFECTS = ("reserve", "charge", "settle")
DIES_AFTER = sys.argv[3] if "after" in sys.argv else ""

nebis = Nebis(os.environ["TILL_STORE"], housekeeping=False)


def happened(what: str, key: str) -> str:
    """Write it down, and die if this is where."""
    with BOOKS.open("a") as books:
        books.write(f"{what} {key}\n")
    if what == DIES_AFTER:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{what} done"


def reserve(*, idempotency_key: str) -> str:
    return happened("reserve", idempotency_key)


def charge(*, idempotency_key: str) -> str:
    return happened("charge", idempotency_key)


def settle(*, idempotency_key: str) -> str:
    return happened("settle", idempotency_key)


def undo_reserve(result: str, *, idempotency_key: str) -> str:
    return happened("undo-reserve", idempotency_key)


def undo_charge(result: str, *, idempotency_key: str) -> str:
    return happened("undo-charge", idempotency_key)


def undo_settle(result: str, *, idempotency_key: str) -> str:
    return happened("undo-settle", idempotency_key)


UNDOS = {
    "reserve": Undo(call=undo_reserve, recall=STICKY),
    "charge": Undo(call=undo_charge, recall=STICKY),
    "settle": Undo(call=undo_settle, recall=STICKY),
}


@nebis.operation("order", effects=Declared, lease=LEASE, renewal=LEASE / 4, effect_timeout=LEASE / 2, undo=UNDOS)
def order(attempt: Attempt, is_refused: bool) -> str:
    for name, call in zip(EFFECTS, (reserve, charge, settle), strict=True):
        attempt.effect(name, call, recall=STICKY)
    if is_refused:
        raise Rejected("no carrier")
    return "ordered"


if __name__ == "__main__":
    order(key=sys.argv[1], tenant="acct_1", command="refused" in sys.argv)
