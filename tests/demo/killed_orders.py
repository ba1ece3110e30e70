"""Orders whose process is killed after each thing that happens to them; run beside a demo, in its folder.

Prints, for each order, its invoice, its key, what it orders, and after which event its process died.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from itertools import count
from typing import Any
from uuid import uuid4

from examples.payments.orders import PlaceOrder, place_order
from examples.payments.settings import nebis, watchers
from nebis import Rejected
from nebis.ports.observer import Event


class Assassin:
    """Kills this process after the nth event."""

    def __init__(self, after: int, line: int) -> None:
        self._left = after
        self._line = line

    def watch(self, event: Event) -> None:
        self._left -= 1
        if self._left == 0:
            os.write(self._line, f"{type(event).__name__}:{getattr(event, 'effect', '')}".encode())
            os.kill(os.getpid(), signal.SIGKILL)


async def order(key: str, command: PlaceOrder) -> None:
    async with nebis:
        try:
            await place_order(key=key, tenant="alice", command=command)
        except Rejected:
            return


def killed(after: int, wish: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Place an order in a process that dies after so many events; say whether it came to that."""
    bill, key = f"inv_{uuid4().hex[:12]}", str(uuid4())
    paid = {"invoice_id": bill, "amount_cents": 4200, "currency": "USD", "card": "4242424242424242"}
    body = {"payment": paid, **wish}
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            watchers.append(Assassin(after, there).watch)
            asyncio.run(order(key, PlaceOrder.model_validate(body)))
        except BaseException:  # noqa: BLE001 - a child of a fork must not go on as if it were its parent.
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(there)
    _, status = os.waitpid(child, 0)
    event = os.read(here, 100).decode()
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0, f"order {after} of {wish} failed"
    os.close(here)
    return {"invoice": bill, "key": key, "body": body, "after": event}, os.WIFSIGNALED(status)


def main() -> None:
    for wish in json.loads(sys.argv[1]):
        for after in count(1):
            told, was_killed = killed(after, wish)
            if not was_killed:
                break
            print(json.dumps(told), flush=True)  # noqa: T201 - what the test reads.


if __name__ == "__main__":
    main()
