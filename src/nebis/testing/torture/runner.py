"""Running checks, one after another, and what becomes of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from nebis.errors import ConfigError
from nebis.testing.torture.bench import Bench
from nebis.testing.torture.check import Check, Failed, NotApplicable, Result, Verdict
from nebis.testing.torture.operation import Operation
from nebis.testing.torture.wire import Address, NoAnswer

CHECK_SECONDS: Final = 120.0
"""More than any check needs whose requests are answered; the server that hangs longer has failed it."""

Watch = Callable[[int, Check, Result | None], None]
"""Told of each check by number, before it runs and with its result after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of it."""

    target: str
    operation: str
    started_at: str
    seconds: float
    results: tuple[Result, ...]

    def having(self, verdict: Verdict) -> list[Result]:
        """Return the results that ended like this."""
        return [result for result in self.results if result.verdict is verdict]

    @property
    def has_passed(self) -> bool:
        """Tell whether nothing failed."""
        return not self.having(Verdict.FAILED)


def _silent(_number: int, _check: Check, _result: Result | None) -> None:
    return


async def run(operation: Operation, url: str, checks: Sequence[Check], *, watch: Watch = _silent) -> Run:
    """Run checks against an API; raise `ConfigError` if it cannot be called, or its effects cannot be counted."""
    try:
        target = Address.parse(url)
    except ValueError as error:
        raise ConfigError([str(error)]) from None
    bench = Bench(operation, target)
    await _probe(bench)
    started_at, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    results = []
    for number, check in enumerate(checks, start=1):
        watch(number, check, None)
        result = await _result(bench, check)
        watch(number, check, result)
        results.append(result)
    return Run(
        target=target.url,
        operation=f"{operation.method} {operation.path}",
        started_at=started_at,
        seconds=time.monotonic() - began,
        results=tuple(results),
    )


async def _result(bench: Bench, check: Check) -> Result:
    bench.begin()
    began = time.monotonic()
    verdict, detail = Verdict.PASSED, ""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await check.body(bench)
    except Failed as failure:
        verdict, detail = Verdict.FAILED, str(failure)
    except NotApplicable as reason:
        verdict, detail = Verdict.SKIPPED, str(reason)
    except NoAnswer as silence:
        verdict, detail = Verdict.FAILED, str(silence)
    except TimeoutError:
        verdict, detail = Verdict.FAILED, f"it did not end within {CHECK_SECONDS:g} s"
    reproduce = bench.reproduction if verdict is Verdict.FAILED else ""
    return Result(check=check, verdict=verdict, detail=detail, reproduce=reproduce, seconds=time.monotonic() - began)


async def _probe(bench: Bench) -> None:
    """Make sure of what every check relies on: the operation can be called, and its effect can be counted."""
    bench.begin()
    draft = bench.draft()
    before = await bench.tally(draft)
    try:
        reply = await bench.send(bench.request(draft))
    except NoAnswer as error:
        raise ConfigError([f"{bench.target.url} does not answer: {error}; start it, or correct the URL"]) from None
    what = f"{bench.operation.method} {bench.operation.path}"
    if not bench.is_success(reply):
        advice = "correct the operation file, or the server"
        raise ConfigError([f"{what} was answered {reply.status}, which is not in request.success; {advice}"])
    seen = await before.since(1)
    if seen == 0:
        raise ConfigError([f"{what} succeeded and the counter did not move; correct the section effects"])
    if seen != 1:
        advice = "count something that moves by one, and keep others away from the API meanwhile"
        raise ConfigError([f"one call of {what} moved the counter by {seen}; {advice}"])
