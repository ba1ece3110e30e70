"""A process that measures one thing that is no throughput, and says what it found in one line."""

import asyncio
import gc
import os
import sys
import time
import timeit
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import ours
from benchmarks.contender import Places
from benchmarks.load import described, percentile
from benchmarks.work import ANSWER, COMMAND, Work
from benchmarks.worker import parser, places_of, run_loop, say
from nebis import AsyncAttempt, AsyncNebis, Declared, Local, Sticky
from nebis.core.fingerprint import Fingerprinting, FingerprintVersions
from nebis.core.secret import Keyring, Secret

STEP_CALLS = 200
IN_FLIGHT = 1000
BODY_BYTES = 4096
_WAVE = 200
_WARM_UP = 20


class Steps:
    """Times of durable steps, each taken where it happens: around the call, or inside the handler."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def add(self, step: str, seconds: float) -> None:
        self.seconds.setdefault(step, []).append(seconds)

    def figures(self) -> dict[str, dict[str, float]]:
        return {
            step: {
                "p50_ms": percentile(sorted(seconds[_WARM_UP:]), 0.5) * 1000,
                "p99_ms": percentile(sorted(seconds[_WARM_UP:]), 0.99) * 1000,
            }
            for step, seconds in self.seconds.items()
        }


async def steps(location: str) -> dict[str, Any]:
    """Time each durable step with one caller."""
    found, work, clock = Steps(), Work(), time.perf_counter
    async with AsyncNebis(location) as nebis:

        @nebis.operation("plain", effects=Local)
        async def plain(command: dict[str, Any]) -> dict[str, Any]:
            return await work.run()

        @nebis.operation("effect", effects=Declared)
        async def effect(attempt: AsyncAttempt, command: dict[str, Any]) -> dict[str, Any]:
            started = clock()
            await attempt.effect("charge", _charge, recall=Sticky(timedelta(hours=1)))
            found.add("effect", clock() - started)
            return ANSWER

        @nebis.operation("step", effects=Declared)
        async def step(attempt: AsyncAttempt, command: dict[str, Any]) -> dict[str, Any]:
            started = clock()
            await attempt.step("reserve", _reserve)
            found.add("local_step", clock() - started)
            return ANSWER

        @nebis.operation("transaction", effects=Local)
        async def transaction(attempt: AsyncAttempt, command: dict[str, Any]) -> dict[str, Any]:
            started = clock()
            async with attempt.transaction() as tx:
                tx.finish(ANSWER)
            found.add("transaction", clock() - started)
            return ANSWER

        @nebis.operation("single", effects=Local, single_transaction=True)
        async def single(command: dict[str, Any]) -> dict[str, Any]:
            return await work.run()

        async def timed(operation: Callable[..., Awaitable[Any]], key: str) -> tuple[float, float]:
            started = clock()
            await operation(key=key, tenant=ours.TENANT, command=COMMAND)
            return started, clock()

        for _ in range(STEP_CALLS + _WARM_UP):
            key = str(uuid.uuid4())
            started, ended = await timed(plain, key)
            found.add("claim", work.started_at - started)
            found.add("complete", ended - work.started_at)
            started, ended = await timed(plain, key)
            found.add("replay", ended - started)
            started, ended = await timed(single, key)
            found.add("single_transaction", ended - started)
            for operation in (effect, step, transaction):
                await timed(operation, key)
    return {"steps": found.figures()}


async def _charge(*, idempotency_key: str) -> str:
    return "charged"


async def _reserve(_connection: Any) -> str:
    return "reserved"


async def memory(location: str) -> dict[str, Any]:
    """Hold attempts in flight, each with its own body, and compare the process with its idle self."""
    started, wave_started, release = 0, asyncio.Event(), asyncio.Event()
    async with AsyncNebis(location) as nebis:

        @nebis.operation("hold", effects=Local)
        async def hold(command: dict[str, Any]) -> dict[str, Any]:
            nonlocal started
            started += 1
            if started % _WAVE == 0:
                wave_started.set()
            if command["holds"]:
                await release.wait()
            return ANSWER

        def call(*, holds: bool) -> Awaitable[Any]:
            body = os.urandom(BODY_BYTES // 2).hex()
            return hold(key=str(uuid.uuid4()), tenant=ours.TENANT, command={"holds": holds, "body": body})

        await asyncio.gather(*(call(holds=False) for _ in range(_WAVE)))
        gc.collect()
        idle, started = _resident_bytes(), 0
        running = []
        for _ in range(0, IN_FLIGHT, _WAVE):
            wave_started.clear()
            running += [asyncio.ensure_future(call(holds=True)) for _ in range(_WAVE)]
            await wave_started.wait()
        held = _resident_bytes()
        release.set()
        await asyncio.gather(*running)
    return {"memory_megabytes": (held - idle) / 1_000_000}


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def fingerprints(_location: str) -> dict[str, Any]:
    """Time the digest of a command that is 300 bytes of JSON, as an operation makes it for every request."""
    made = Fingerprinting(FingerprintVersions(), Keyring((Secret(b"s" * 32),)), operation="create_payment")

    def once() -> None:
        made.of(ANSWER)

    number = 2000
    best = min(timeit.repeat(once, number=number, repeat=7))
    return {"fingerprint_us": best / number * 1_000_000}


def _location(name: str, places: Places) -> str:
    return ours.sqlite(places) if name.endswith("@sqlite") else ours.postgres_asyncpg(places)


PROBES = {"steps": steps, "memory": memory, "fingerprint": fingerprints}


async def _probe(name: str, places: Places) -> None:
    say(await PROBES[name.partition("@")[0]](_location(name, places)))


def main() -> None:
    arguments = parser().parse_args()
    sys.stdout = sys.stderr
    try:
        run_loop(_probe(arguments.name, places_of(arguments)))
    except Exception as error:  # noqa: BLE001 - told to whoever asked.
        say({"failed": described(error)})


if __name__ == "__main__":
    main()
