"""An application in a module of its own, as `nebis worker --app` imports it.

The bank is a file that is only ever appended to: it outlives every process, and no store can talk it into anything.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from nebis import AsyncAttempt, AsyncNebis, Attempt, Declared, Nebis, Sticky, days

BOOKS = Path(os.environ["TILL_BOOKS"])
URL = os.environ["TILL_STORE"]
LEASE = timedelta(seconds=1)

nebis = Nebis(URL)
later = AsyncNebis(URL)


def charge(amount: int, *, idempotency_key: str) -> str:
    """Charge once per key, and die afterwards if told so."""
    with BOOKS.open("a") as books:
        books.write(f"{idempotency_key}\n")
    if "dies" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"charged {amount}"


@nebis.operation("pay", effects=Declared, lease=LEASE, renewal=LEASE / 4, effect_timeout=LEASE / 2)
def pay(attempt: Attempt, command: int) -> str:
    result: str = attempt.effect("charge", charge, command, recall=Sticky(days(1)))
    return result


@later.operation("pay", effects=Declared, lease=LEASE, renewal=LEASE / 4, effect_timeout=LEASE / 2)
async def pay_later(attempt: AsyncAttempt, command: int) -> str:
    result: str = await attempt.effect("charge", charge, command, recall=Sticky(days(1)))
    return result


if __name__ == "__main__":
    if "later" in sys.argv:
        asyncio.run(pay_later.execute(key=sys.argv[1], tenant="acct_1", command=42))
    else:
        pay(key=sys.argv[1], tenant="acct_1", command=42)
