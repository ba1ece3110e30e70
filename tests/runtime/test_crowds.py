"""Many callers of one process at once, on a real PostgreSQL: nobody harms a neighbour, too many are told at once."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from nebis import AsyncAttempt, AsyncNebis, Local, NotYet, ResultUnstorable
from nebis.core.answers import Answer, Granted, Locked
from nebis.core.verbs import Verb
from nebis.errors import Overloaded, RecordCorrupt
from nebis.runtime.async_batcher import AsyncBatcher
from nebis.runtime.gathering import LONGEST_QUEUE
from nebis.stores import open_async
from tests.runtime.verbs import claim

NEIGHBOURS = 40
CALLERS = 10_000
BATCHES_LIMIT = 3
MEMORY_LIMIT_KILOBYTES = 120 * 1024


def driven_by(url: str, driver: str) -> str:
    return url.replace("postgresql://", "postgresql+asyncpg://") if driver == "asyncpg" else url


@pytest.fixture(params=["psycopg", "asyncpg"])
def url(request: pytest.FixtureRequest, postgres_url: str) -> str:
    return driven_by(postgres_url, request.param)


def key(number: int) -> str:
    return f"crowd-key-{number:06d}-long-enough"


def test_a_result_that_is_too_large_fails_nobody_but_its_own_caller(url: str) -> None:
    async def main() -> list[Any]:
        async with AsyncNebis(url) as nebis:

            @nebis.operation("render", effects=Local, result_limit_bytes=1000)
            async def render(command: int) -> str:
                return "x" * command

            calls = [render(key=key(size), tenant="acct_1", command=size) for size in (*range(NEIGHBOURS), 5000)]
            return await asyncio.gather(*calls, return_exceptions=True)

    *neighbours, too_large = asyncio.run(main())
    assert neighbours == ["x" * size for size in range(NEIGHBOURS)]
    assert isinstance(too_large, ResultUnstorable)


def test_a_key_that_an_open_transaction_holds_fails_and_delays_no_neighbour_beyond_one_split(url: str) -> None:
    """F045: the neighbours are answered while the transaction is still open."""

    async def main() -> tuple[list[Any], Any]:
        async with AsyncNebis(url) as nebis, AsyncNebis(url) as stranger:
            is_held, may_end = asyncio.Event(), asyncio.Event()

            @stranger.operation("pay", effects=Local, single_transaction=True)
            async def hold(attempt: AsyncAttempt, command: int) -> int:
                is_held.set()
                await may_end.wait()
                return command

            @nebis.operation("pay", effects=Local)
            async def pay(command: int) -> int:
                return command

            holding = asyncio.ensure_future(hold(key=key(0), tenant="acct_1", command=0))
            await is_held.wait()
            calls = [pay(key=key(number), tenant="acct_1", command=number) for number in range(NEIGHBOURS)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            may_end.set()
            return answers, await holding

    [held, *neighbours], late = asyncio.run(main())
    assert neighbours == list(range(1, NEIGHBOURS))
    assert isinstance(held, NotYet)
    assert late == 0


def test_a_row_that_cannot_be_read_fails_nobody_but_its_own_caller(url: str, postgres_url: str) -> None:
    async def main() -> list[Any]:
        async with AsyncNebis(url) as nebis:

            @nebis.operation("pay", effects=Local)
            async def pay(command: int) -> int:
                return command

            first = [pay(key=key(number), tenant="acct_1", command=number) for number in range(NEIGHBOURS)]
            await asyncio.gather(*first)
            await asyncio.to_thread(break_row, postgres_url, key(0))
            again = [pay(key=key(number), tenant="acct_1", command=number) for number in range(NEIGHBOURS)]
            return await asyncio.gather(*again, return_exceptions=True)

    broken, *neighbours = asyncio.run(main())
    assert neighbours == list(range(1, NEIGHBOURS))
    assert isinstance(broken, RecordCorrupt)


def break_row(url: str, key: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE nebis_record DROP CONSTRAINT record_mode_is_known")
        connection.execute("UPDATE nebis_record SET mode = 'Z' WHERE key = %s", (key,))


def test_whoever_is_admitted_waits_for_few_batches_and_all_others_hear_at_once_that_they_are_too_many(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Waiting is bounded by the length of the queue: it is compared with the batches of the same run."""

    async def main() -> tuple[list[float], list[float]]:
        backend = open_async(driven_by(postgres_url, "asyncpg"))
        await backend.sessions.run(backend.store.migrate())
        batch_seconds: list[float] = []

        async def send(verbs: Sequence[Verb]) -> Sequence[Answer | Locked]:
            began = time.perf_counter()
            answers = await backend.sessions.run(backend.store.apply(verbs))
            batch_seconds.append(time.perf_counter() - began)
            return answers

        batcher, answered_at = AsyncBatcher(send), []

        async def caller(number: int) -> None:
            with suppress(Overloaded):
                assert isinstance(await batcher.apply(claim(number)), Granted)
                answered_at.append(time.perf_counter())

        # The connections are open by then.
        await asyncio.gather(*(batcher.apply(claim(CALLERS + number)) for number in (1, 2)))
        batch_seconds.clear()
        callers = [asyncio.ensure_future(caller(number)) for number in range(1, CALLERS + 1)]
        await asyncio.sleep(0)
        all_have_asked_at = time.perf_counter()
        # Everybody else was refused in the same turn of the loop, before any batch was sent.
        assert sum(caller.done() for caller in callers) == CALLERS - LONGEST_QUEUE
        await asyncio.wait([caller for caller in callers if not caller.done()])
        await batcher.close()
        await backend.sessions.close()
        return [each - all_have_asked_at for each in answered_at], batch_seconds

    waits, batch_seconds = asyncio.run(main())
    assert len(waits) == LONGEST_QUEUE
    p99_seconds = sorted(waits)[int(0.99 * len(waits))]
    with capsys.disabled():
        print(  # noqa: T201 - figures for whoever runs this.
            f"\n{CALLERS} callers: {len(waits)} admitted with a p99 wait of {p99_seconds * 1000:.1f} ms, in batches "
            f"of up to {max(batch_seconds) * 1000:.1f} ms; {CALLERS - len(waits)} refused at once"
        )
    assert p99_seconds <= BATCHES_LIMIT * max(batch_seconds)


CROWD = """
import asyncio, resource, sys
from nebis import AsyncNebis, Local
from nebis.errors import Overloaded

async def main() -> None:
    async with AsyncNebis(sys.argv[1]) as nebis:

        @nebis.operation("pay", effects=Local)
        async def pay(command: str) -> str:
            return command

        async def call(number: int) -> bool:
            try:
                return await pay(key=f"{number:024d}", tenant="acct_1", command="x" * 4096) != ""
            except Overloaded:
                return False

        await call(0)
        idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answered = sum(await asyncio.gather(*(call(number) for number in range(1, 1 + int(sys.argv[2])))))
        print(answered, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle)

asyncio.run(main())
"""


def test_a_crowd_does_not_fill_the_memory(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In a process of its own, whose largest size nothing else has set before."""
    found = subprocess.run(
        [sys.executable, "-c", CROWD, driven_by(postgres_url, "asyncpg"), str(CALLERS)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answered, kilobytes = map(int, found.stdout.split())
    with capsys.disabled():
        told = f"{CALLERS} callers with 4 KB each: {answered} answered, {kilobytes // 1024} MB above idle"
        print(f"\n{told}")  # noqa: T201 - figures for whoever runs this.
    assert LONGEST_QUEUE <= answered < CALLERS
    assert kilobytes < MEMORY_LIMIT_KILOBYTES


def test_a_request_leaves_nothing_for_the_garbage_collector() -> None:
    """What refers to itself in a circle is found by searching all objects, which cost about a tenth of each request."""

    async def main() -> int:
        async with AsyncNebis("memory://") as nebis:

            @nebis.operation("pay", effects=Local)
            async def pay(command: int) -> int:
                return command

            async def call(number: int) -> int:
                return await pay(key=key(number % 50), tenant="acct_1", command=number % 50)

            await call(0)
            gc.collect()
            gc.disable()
            try:
                for number in range(100):
                    await call(number)
                return gc.collect()
            finally:
                gc.enable()

    assert asyncio.run(main()) < 50  # Not even one for each; the interpreter's own are few.
