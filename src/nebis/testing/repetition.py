"""Operations repeated, raced and killed on purpose, for the tests of whoever wrote them."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast
from uuid import uuid4

from nebis.aio import AsyncOperation
from nebis.answering import Execution
from nebis.core.answers import Answer, Locked
from nebis.core.verbs import Verb
from nebis.errors import InDoubt, NotYet, Rejected
from nebis.flow import Ask, Flow
from nebis.policy import microseconds
from nebis.ports.asks import Apply, CallEffect, Draw, Elapsed, MakeClaim, Tell
from nebis.ports.store import Store
from nebis.runtime.async_turn import AsyncTurn
from nebis.runtime.blocking import BlockingTurn, BlockingWorld
from nebis.runtime.driven_turn import DrivenTurn
from nebis.runtime.eventloop import AsyncWorld
from nebis.sync import Operation

PATIENCE_SECONDS: Final = 30.0
"""How long twins are waited for."""
RETRIES: Final = 10
"""How often a caller comes back after a crash, each time a lease later."""
_POINTS_LIMIT: Final = 500
_SILENT: Final = (Draw, Elapsed, MakeClaim, Tell)
"""Asks that change nothing outside of the process: dying there is dying at the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """One place at which the process died, and how a retry ended."""

    where: str
    """Before or after which ask, such as "after effect charge"."""
    key: str
    execution: Execution[Any] | None = field(default=None, repr=False)
    error: InDoubt | Rejected | None = None
    """What the retry raised instead: the outcome is in doubt, or the operation rejected the command."""

    @property
    def result(self) -> Any:
        """Return what the retry was told; raise what it raised."""
        if self.execution is None:
            assert self.error is not None
            raise self.error
        return self.execution.result


class Died(BaseException):
    """The end of the process, as far as the operation can tell; no handler catches it by accident."""


class _Doom:
    """Counts the places at which a process can die, and dies at one of them; the dead do nothing more."""

    def __init__(self, at: int | None) -> None:
        self._at = at
        self._passed = 0
        self.where = ""

    def pass_by(self, where: str) -> None:
        if self.where:
            raise Died(self.where)
        self._passed += 1
        if self._passed - 1 == self._at:
            self.where = where
            raise Died(where)


class _Later:
    """A store whose clock is ahead, so that nobody has to wait for a lease."""

    def __init__(self, store: Store, ahead_us: int) -> None:
        self._store = store
        self._ahead_us = ahead_us

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def apply(self, verbs: Sequence[Verb], *, now: int | None = None) -> Flow[list[Answer | Locked]]:
        if now is None:
            now = (yield from self._store.clock()) + self._ahead_us
        return (yield from self._store.apply(verbs, now=now))


@contextmanager
def _mortal(world: BlockingWorld | AsyncWorld, doom: _Doom) -> Iterator[None]:
    """Put a place to die before and after everything that this world is asked for."""
    # By name: a method cannot be assigned to under mypy.
    if isinstance(world, BlockingWorld):
        kind, seam, usual, mortal = _blocking_seam(world, doom)
    else:
        kind, seam, usual, mortal = _async_seam(world, doom)
    setattr(kind, seam, mortal)
    DrivenTurn.applies_directly = False
    try:
        yield
    finally:
        setattr(kind, seam, usual)
        DrivenTurn.applies_directly = True


def _blocking_seam(world: BlockingWorld, doom: _Doom) -> tuple[type, str, Any, Any]:
    usual = BlockingTurn.performs

    def performed(turn: Any, ask: Ask[Any]) -> Any:
        if turn._world is not world:  # noqa: SLF001 - others' turns live on.
            return usual[type(ask)](turn, ask)
        doom.pass_by(f"before {_name(ask)}")
        answer = usual[type(ask)](turn, ask)
        doom.pass_by(f"after {_name(ask)}")
        return answer

    return BlockingTurn, "performs", usual, _unless_silent(usual, performed)


def _unless_silent(usual: Mapping[type[Ask[Any]], Any], performed: Any) -> dict[type[Ask[Any]], Any]:
    return {kind: perform if issubclass(kind, _SILENT) else performed for kind, perform in usual.items()}


def _async_seam(world: AsyncWorld, doom: _Doom) -> tuple[type, str, Any, Any]:
    usual = AsyncTurn.performs

    async def performed(turn: Any, ask: Ask[Any]) -> Any:
        is_mortal = turn._world is world  # noqa: SLF001 - others' turns live on.
        if is_mortal:
            doom.pass_by(f"before {_name(ask)}")
        answer = usual[type(ask)](turn, ask)
        if inspect.isawaitable(answer):  # What is there at once is not wrapped.
            answer = await answer
        if is_mortal:
            doom.pass_by(f"after {_name(ask)}")
        return answer

    return AsyncTurn, "performs", usual, _unless_silent(usual, performed)


@contextmanager
def _ahead(world: Any, ahead_us: int) -> Iterator[None]:
    backend = world.backend
    world.backend = dataclasses.replace(backend, store=cast("Store", _Later(backend.store, ahead_us)))
    try:
        yield
    finally:
        world.backend = backend


def _name(ask: Ask[Any]) -> str:
    match ask:
        case Apply():
            return type(ask.verb).__name__.lower()
        case CallEffect():
            return f"effect {ask.effect.name}"
        case _:
            spelled = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(ask).__name__)
            return spelled.strip()


def _call(command: Any, key: str) -> Any:
    """Return the command of a key; where many keys are used it may be made from each."""
    return command(key) if callable(command) and not isinstance(command, type) else command


def _check(executions: Sequence[Execution[Any]], what: str) -> None:
    fresh = sum(not execution.is_replay for execution in executions)
    assert fresh == 1, f"{what}: {fresh} of {len(executions)} calls were no replay; use a key that is new"
    first = executions[0].result
    assert all(execution.result == first for execution in executions), f"{what}: the callers got different results"


def duplicate(operation: Any, *, tenant: str, command: Any, key: str | None = None, times: int = 3) -> Any:
    """Call an operation several times with one key; require one run and equal results; return the executions.

    An asyncio operation gives an awaitable.
    """
    key = key or str(uuid4())
    asked = {"key": key, "tenant": tenant, "command": _call(command, key)}
    if isinstance(operation, AsyncOperation):
        return _duplicate_async(operation, asked, times)
    executions = [operation.execute(**asked) for _ in range(times)]
    _check(executions, operation.name)
    return executions


async def _duplicate_async(operation: AsyncOperation[Any, Any], asked: dict[str, Any], times: int) -> Any:
    executions = [await operation.execute(**asked) for _ in range(times)]
    _check(executions, operation.name)
    return executions


def race(operation: Any, *, tenant: str, command: Any, key: str | None = None, count: int = 8) -> Any:
    """Call an operation at the same moment from many threads, or tasks; require one run and equal results.

    Whoever is told to come back does. Return the executions; an asyncio operation gives an awaitable.
    """
    key = key or str(uuid4())
    asked = {"key": key, "tenant": tenant, "command": _call(command, key)}
    if isinstance(operation, AsyncOperation):
        return _race_async(operation, asked, count)
    start = threading.Barrier(count)

    def call(_: int) -> Execution[Any]:
        start.wait(PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                execution: Execution[Any] = operation.execute(**asked)
            except NotYet:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return execution

    with ThreadPoolExecutor(count) as threads:
        executions = list(threads.map(call, range(count)))
    _check(executions, operation.name)
    return executions


async def _race_async(operation: AsyncOperation[Any, Any], asked: dict[str, Any], count: int) -> Any:
    async def call() -> Execution[Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await operation.execute(**asked)
            except NotYet:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.01)

    executions = await asyncio.gather(*(call() for _ in range(count)))
    _check(executions, operation.name)
    return executions


def crash_points(operation: Any, *, tenant: str, command: Any) -> Any:
    """Run an operation under a new key for each place where it can die, die there, and retry a lease later.

    Return a `Crash` for each; what was counted is for the test to compare. A command that must differ from key to key
    is given as a function of the key. An asyncio operation gives an awaitable. `finally` blocks of handlers run, which
    a killed process would not have done.
    """
    if isinstance(operation, AsyncOperation):
        return _crash_points_async(operation, tenant, command)
    world, _ = operation._nebis.opened()  # noqa: SLF001 - the operation's own world.
    crashes: list[Crash] = []
    for point in range(_POINTS_LIMIT):
        key, doom = str(uuid4()), _Doom(point)
        asked = {"key": key, "tenant": tenant, "command": _call(command, key)}
        try:
            with _mortal(world, doom):
                operation.execute(**asked)
        except Died:
            crashes.append(_retried(operation, world, asked, doom.where))
        except Rejected:
            return crashes
        else:
            return crashes
    raise AssertionError(f"{operation.name} asks for more than {_POINTS_LIMIT} things; crash a smaller one")


def _retried(operation: Operation[Any, Any], world: BlockingWorld, asked: dict[str, Any], where: str) -> Crash:
    for ahead_us in _leases(operation):
        try:
            with _ahead(world, ahead_us):
                return Crash(where=where, key=asked["key"], execution=operation.execute(**asked))
        except NotYet as error:
            last = error
        except (InDoubt, Rejected) as error:
            return Crash(where=where, key=asked["key"], error=error)
    raise AssertionError(f"{operation.name}, having died {where}, does not come to an end") from last


async def _crash_points_async(operation: AsyncOperation[Any, Any], tenant: str, command: Any) -> Any:
    world, _ = await operation._nebis.opened()  # noqa: SLF001 - the operation's own world.
    crashes: list[Crash] = []
    for point in range(_POINTS_LIMIT):
        key, doom = str(uuid4()), _Doom(point)
        asked = {"key": key, "tenant": tenant, "command": _call(command, key)}
        try:
            with _mortal(world, doom):
                await operation.execute(**asked)
        except Died:
            crashes.append(await _retried_async(operation, world, asked, doom.where))
        except Rejected:
            return crashes
        else:
            return crashes
    raise AssertionError(f"{operation.name} asks for more than {_POINTS_LIMIT} things; crash a smaller one")


async def _retried_async(
    operation: AsyncOperation[Any, Any], world: AsyncWorld, asked: dict[str, Any], where: str
) -> Crash:
    for ahead_us in _leases(operation):
        try:
            with _ahead(world, ahead_us):
                return Crash(where=where, key=asked["key"], execution=await operation.execute(**asked))
        except NotYet as error:
            last = error
        except (InDoubt, Rejected) as error:
            return Crash(where=where, key=asked["key"], error=error)
    raise AssertionError(f"{operation.name}, having died {where}, does not come to an end") from last


def _leases(operation: Any) -> Iterator[int]:
    """Yield how far ahead of the crash each retry is: a lease later, and another one."""
    lease_us = microseconds(operation.declaration.policy.lease) + 1_000_000
    yield from (lease_us * number for number in range(1, RETRIES + 1))
