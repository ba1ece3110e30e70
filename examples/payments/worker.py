"""The worker: finishes payments whose process died, and hands what they staged to the consumers."""

import asyncio
import signal

from examples.payments import bank, operations, orders
from examples.payments.consumers import relay
from examples.payments.database import database
from examples.payments.settings import nebis
from nebis import seconds
from nebis.worker import AsyncWorker

DECLARED = (operations, orders)
"""Imported for what they declare: a worker runs only the operations that it knows."""


async def work() -> None:
    """Go on until told to stop; what is under way is finished first."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await nebis.open()
    await database.open()
    try:
        # Every second, as people watch; five seconds is what a service needs.
        await asyncio.gather(AsyncWorker(nebis, interval=seconds(1)).run(stop), relay.run(stop))
    finally:
        await nebis.close(grace=seconds(3))
        await database.close()
        await bank.client.aclose()


if __name__ == "__main__":
    asyncio.run(work())
