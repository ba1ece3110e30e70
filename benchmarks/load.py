"""Callers that wait for an answer and call again, and what they saw."""

import asyncio
import itertools
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from benchmarks.contender import FRESH_KEYS, AsyncCall, BlockingCall

REPLAYED_KEYS = 256
_MOST_PER_SECOND = 100_000
_SPREAD = 0x9E3779B97F4A7C15
"""Odd, so that no two numbers below 2**60 come to the same, and neighbours come far from each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement: how many calls were answered, how fast, and how long single ones took."""

    calls: int
    failures: int
    per_second: float
    """The throughput of all callers together; calls that failed are no work done."""
    p50_ms: float
    p99_ms: float
    first_failure: str | None = None
    cpu_us: float = 0.0
    """Processor time of the calling process per call: what the library itself costs, without its store."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Tally:
    """What the callers of one measurement saw, added up when all have ended.

    A caller's last call ends after the deadline, in a store where some starve long after it. So each caller counts over
    its own time, and the throughput is the sum of theirs: what there was while all of them were calling.
    """

    def __init__(self) -> None:
        self.per_second = 0.0
        self._cpu_before = time.process_time()
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def end(self, calls: int, elapsed_seconds: float) -> None:
        """Count one caller that has ended."""
        self.per_second += calls / elapsed_seconds

    def sample(self) -> Sample:
        """Add up."""
        ordered = sorted(self.seconds)
        return Sample(
            calls=len(ordered),
            failures=len(self.failures),
            per_second=self.per_second,
            p50_ms=percentile(ordered, 0.5) * 1000,
            p99_ms=percentile(ordered, 0.99) * 1000,
            first_failure=self.failures[0] if self.failures else None,
            cpu_us=(time.process_time() - self._cpu_before) / max(1, len(ordered)) * 1_000_000,
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed; 0 where there is none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def keys_for(case: str, known: Sequence[str], *, seconds: float) -> Iterator[str]:
    """Give a key per call, to any number of threads: always a new one, or one of those that were completed before.

    New ones are UUIDs, as most clients send, in no order that an index could profit from. More than anybody needs in so
    many seconds are made now: clients make their keys before they ask, and later it would be taken for work of the
    library.
    """
    if case not in FRESH_KEYS:
        return itertools.cycle(known)
    end = str(uuid.uuid4())[-17:]

    def key(number: int) -> str:
        spread = f"{number * _SPREAD % 2**60:015x}"
        return f"{spread[:8]}-{spread[8:12]}-4{spread[12:15]}-{end}"

    made = [key(number) for number in range(math.ceil(seconds * _MOST_PER_SECOND))]
    # A generator could not be asked by two threads at once.
    return itertools.chain(made, map(key, itertools.count(len(made))))


async def load(call: AsyncCall, keys: Iterator[str], *, callers: int, seconds: float) -> Sample:
    """Keep that many tasks calling for so long."""
    tally = Tally()
    deadline = time.perf_counter() + seconds

    async def caller() -> None:
        clock, calls = time.perf_counter, 0
        started = begun = clock()
        while started < deadline:
            try:
                await call(next(keys))
            except Exception as error:  # noqa: BLE001 - whatever a system raises is a call without an answer.
                tally.failures.append(described(error))
                await asyncio.sleep(0)
            else:
                calls += 1
                tally.seconds.append(clock() - started)
            started = clock()
        tally.end(calls, clock() - begun)

    await asyncio.gather(*(caller() for _ in range(callers)))
    return tally.sample()


def load_threads(call: BlockingCall, keys: Iterator[str], *, callers: int, seconds: float) -> Sample:
    """Keep that many threads calling for so long."""
    tally = Tally()
    lock = threading.Lock()
    barrier = threading.Barrier(callers)

    def caller() -> None:
        clock, calls = time.perf_counter, 0
        barrier.wait()
        started = begun = clock()
        deadline = started + seconds
        while started < deadline:
            try:
                call(next(keys))
            except Exception as error:  # noqa: BLE001 - as above.
                tally.failures.append(described(error))
            else:
                calls += 1
                tally.seconds.append(clock() - started)
            started = clock()
        with lock:
            tally.end(calls, clock() - begun)

    threads = [threading.Thread(target=caller, daemon=True) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally.sample()


async def called(call: AsyncCall | BlockingCall, keys: Sequence[str], *, uses_threads: bool) -> list[object]:
    """Call once with each key, all at the same time; an error is returned like an answer."""
    if not uses_threads:
        return list(await asyncio.gather(*(cast("AsyncCall", call)(key) for key in keys), return_exceptions=True))
    return await asyncio.to_thread(_called_by_threads, call, keys)


def _called_by_threads(call: Callable[[str], object], keys: Sequence[str]) -> list[object]:
    answers: list[object] = [None] * len(keys)

    def caller(position: int) -> None:
        try:
            answers[position] = call(keys[position])
        except Exception as error:  # noqa: BLE001 - returned to whoever asked.
            answers[position] = error

    threads = [threading.Thread(target=caller, args=(position,), daemon=True) for position in range(len(keys))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def described(error: BaseException) -> str:
    """Name an error in one short line."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]
