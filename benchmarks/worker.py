"""A process that holds one contender open and measures it whenever it is told to, by lines of JSON."""

import asyncio
import gc
import json
import os
import sys
import time
import uuid
from argparse import ArgumentParser
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from benchmarks.contender import FRESH_KEYS, AsyncCall, BlockingCall, Contender, Places
from benchmarks.contenders import contender_of
from benchmarks.load import REPLAYED_KEYS, Tally, called, described, keys_for, load, load_threads
from benchmarks.work import ANSWER, ANSWER_BYTES, Work

TWINS = 8
TWIN_SECONDS = 0.05
WARM_UP_SECONDS = 0.2
_WAVE = 64


class Bench:
    """One opened contender."""

    def __init__(self, contender: Contender, call: AsyncCall | BlockingCall, work: Work) -> None:
        self._contender = contender
        self._call = call
        self._work = work
        self._known: list[str] = []
        self._warm: set[tuple[str, int]] = set()

    async def check(self) -> dict[str, Any]:
        """Send twins and a replay; say what went wrong, or nothing."""
        key = str(uuid.uuid4())
        self._work.executions, self._work.pause_seconds = 0, TWIN_SECONDS
        try:
            await self._all([key] * TWINS)
            runs = self._work.executions
            self._work.pause_seconds = 0.0
            [answer] = await self._all([key])
        finally:
            self._work.pause_seconds = 0.0
        faults = [] if runs == 1 else [f"ran {runs} times for {TWINS} twins"]
        if isinstance(answer, BaseException):
            faults.append(f"cannot replay ({described(answer)})")
        elif self._work.executions > runs:
            faults.append("ran again instead of a replay")
        elif _plain(answer) != ANSWER:
            faults.append("replayed something else")
        return {"note": "; ".join(faults) or None}

    async def measure(self, *, case: str, callers: int, seconds: float) -> dict[str, Any]:
        """Measure one case for so long."""
        if case not in FRESH_KEYS and not self._known:
            self._known = [str(uuid.uuid4()) for _ in range(REPLAYED_KEYS)]
            for first in range(0, REPLAYED_KEYS, _WAVE):
                await self._all(self._known[first : first + _WAVE])
        if (case, callers) not in self._warm:
            # Connections are opened and statements prepared once in the life of a process.
            await self._load(case, callers, min(seconds, WARM_UP_SECONDS))
            self._warm.add((case, callers))
        return await self._load(case, callers, seconds)

    async def claims(self, *, seconds: float) -> dict[str, Any]:
        """Measure with one caller how long it takes until the work begins."""
        tally, begun = Tally(), time.perf_counter()
        while (started := time.perf_counter()) < begun + seconds:
            await cast("AsyncCall", self._call)(str(uuid.uuid4()))
            tally.seconds.append(self._work.started_at - started)
        tally.end(len(tally.seconds), time.perf_counter() - begun)
        return tally.sample().as_dict()

    async def _load(self, case: str, callers: int, seconds: float) -> dict[str, Any]:
        keys = keys_for(case, self._known, seconds=seconds)
        if self._contender.uses_threads:
            sample = await asyncio.to_thread(load_threads, self._call, keys, callers=callers, seconds=seconds)
        else:
            sample = await load(cast("AsyncCall", self._call), keys, callers=callers, seconds=seconds)
        return sample.as_dict()

    async def _all(self, keys: list[str]) -> list[object]:
        return await called(self._call, keys, uses_threads=self._contender.uses_threads)


def _plain(answer: object) -> object:
    if isinstance(answer, bytes):
        return ANSWER if answer == ANSWER_BYTES else json.loads(answer)
    return answer


async def serve(contender: Contender, places: Places) -> None:
    """Open, say so, and do what each line asks until there are no more."""
    work = Work()
    assert contender.open is not None
    async with contender.open(places, work) as call:
        bench = Bench(contender, call, work)
        let_rest()
        say({"ready": True})
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            act: Callable[..., Coroutine[Any, Any, dict[str, Any]]] = getattr(bench, order.pop("do"))
            say(await answered(act(**order)))


async def answered(act: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Turn an error into an answer, so that one contender's fault does not end the run."""
    try:
        return await act
    except Exception as error:  # noqa: BLE001 - see above.
        return {"failed": described(error)}


def let_rest() -> None:
    """Take all that is loaded by now out of the garbage collector's sight, as servers do once they have started.

    Else every full collection goes through the modules of all that was imported, which says nothing of a contender.
    """
    gc.collect()
    gc.freeze()


def say(message: dict[str, Any]) -> None:
    """Write one line to whoever started this process."""
    sys.__stdout__.write(json.dumps(message) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed, as a server would."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def places_of(arguments: Any) -> Places:
    """Return where this process keeps its data."""
    return Places(postgres_url=arguments.postgres, redis_url=arguments.redis, directory=Path(arguments.directory))


def parser() -> ArgumentParser:
    """Return what every process of the benchmarks is started with."""
    reader = ArgumentParser()
    reader.add_argument("name")
    reader.add_argument("--postgres", default="")
    reader.add_argument("--redis", default="")
    reader.add_argument("--directory", default="")
    return reader


def main() -> None:
    arguments = parser().parse_args()
    # What a library prints belongs into the log, not between the lines of JSON.
    sys.stdout = sys.stderr
    try:
        contender = contender_of(arguments.name)
        if contender.is_held_to_one_core:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        run_loop(serve(contender, places_of(arguments)))
    except Exception as error:  # noqa: BLE001 - the reason why a contender does not take part.
        say({"failed": described(error)})


if __name__ == "__main__":
    main()
