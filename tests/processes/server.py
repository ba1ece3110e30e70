"""A process that serves many keys at once and is told to end in the middle of it, as a supervisor does.

    python -m tests.processes.server blocking|asyncio URL WITNESS stuck|free

A stuck one holds some attempts before any effect, some inside a call and some after one, and answers others meanwhile.
A free one is asked for the same keys and says what it answers the first time that it is asked.
"""

import asyncio
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from nebis import AsyncAttempt, AsyncNebis, Attempt, Declared, Nebis, NebisError, Sticky, days
from nebis.declaration import PolicyOptions
from tests.processes.child import TENANT, Witness, say

EACH = 4
STUCK_KEYS = [f"{how}-key-of-a-shutdown-{number}" for how in ("clean", "calling", "dirty") for number in range(EACH)]
LONG = PolicyOptions(
    lease=timedelta(hours=1),
    renewal=timedelta(minutes=5),
    effect_timeout=timedelta(minutes=1),
    confirm=timedelta(seconds=5),
)
"""Whoever came next would wait for an hour, were it not told that the owner is gone."""
GRACE = timedelta(milliseconds=300)
STICKY = Sticky(days(1))


class Bank:
    """A witness of each call, in which some get stuck."""

    def __init__(self, witness: Path, *, is_stuck: bool) -> None:
        self._witness = Witness(witness)
        self._is_stuck = is_stuck
        self._arrived = threading.Semaphore(0)
        self._never = threading.Event()

    def arrive(self, command: str, how: str) -> None:
        """Go past a place, unless this one gets stuck there."""
        if self._is_stuck and command.startswith(how):
            self._arrived.release()
            self._never.wait()

    def charge(self, command: str, *, idempotency_key: str) -> str:
        self._witness.ran(f"{command} {idempotency_key}")
        self.arrive(command, "calling")
        return f"charged {command}"

    def wait_until_stuck(self) -> None:
        for _ in STUCK_KEYS:
            self._arrived.acquire()


def keys_of_load() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"quick-key-of-a-shutdown-{next(numbers)}"


def serve(url: str, bank: Bank, *, is_stuck: bool) -> None:
    """Serve by threads."""
    nebis, is_told = Nebis(url, housekeeping=False), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_told.set())

    @nebis.operation("pay", effects=Declared, **LONG)
    def pay(attempt: Attempt, command: str) -> str:
        bank.arrive(command, "clean")
        result: str = attempt.effect("charge", bank.charge, command, recall=STICKY)
        bank.arrive(command, "dirty")
        return f"{result} by {os.getpid()}"

    def ask(key: str) -> None:
        try:
            say(key=key, answer=pay(key=key, tenant=TENANT, command=key))
        except NebisError as error:
            say(key=key, error=type(error).__name__)

    def load(next_key: Callable[[], str]) -> None:
        while not is_told.is_set():
            ask(next_key())

    nebis.open()
    if not is_stuck:
        for line in sys.stdin:
            ask(line.strip())
        nebis.close()
        return
    pool = ThreadPoolExecutor(len(STUCK_KEYS) + 1)
    for key in STUCK_KEYS:
        pool.submit(ask, key)
    pool.submit(load, keys_of_load())
    bank.wait_until_stuck()
    say(ready=True)
    is_told.wait()
    nebis.close(GRACE)


async def serve_async(url: str, bank: Bank, *, is_stuck: bool) -> None:
    """Serve by tasks."""
    nebis, is_told = AsyncNebis(url, housekeeping=False), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_told.set)

    async def charge(command: str, *, idempotency_key: str) -> str:
        return await asyncio.to_thread(bank.charge, command, idempotency_key=idempotency_key)

    @nebis.operation("pay", effects=Declared, **LONG)
    async def pay(attempt: AsyncAttempt, command: str) -> str:
        await asyncio.to_thread(bank.arrive, command, "clean")
        result: str = await attempt.effect("charge", charge, command, recall=STICKY)
        await asyncio.to_thread(bank.arrive, command, "dirty")
        return f"{result} by {os.getpid()}"

    async def ask(key: str) -> None:
        try:
            say(key=key, answer=await pay(key=key, tenant=TENANT, command=key))
        except NebisError as error:
            say(key=key, error=type(error).__name__)

    async def load(next_key: Callable[[], str]) -> None:
        while not is_told.is_set():
            await ask(next_key())

    await nebis.open()
    if not is_stuck:
        for line in sys.stdin:
            await ask(line.strip())
        await nebis.close()
        return
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4 * len(STUCK_KEYS)))
    tasks = [asyncio.create_task(ask(key)) for key in STUCK_KEYS]
    tasks.append(asyncio.create_task(load(keys_of_load())))
    await asyncio.to_thread(bank.wait_until_stuck)
    say(ready=True)
    await is_told.wait()
    await nebis.close(GRACE)
    sys.stdout.flush()
    os._exit(0)  # Threads of the stuck are still there, as they are in a process whose supervisor lost patience.


if __name__ == "__main__":
    _, world, url, witness, how = sys.argv
    is_stuck = how == "stuck"
    served = Bank(Path(witness), is_stuck=is_stuck)
    if world == "asyncio":
        asyncio.run(serve_async(url, served, is_stuck=is_stuck))
    else:
        serve(url, served, is_stuck=is_stuck)
    sys.stdout.flush()
    os._exit(0)
