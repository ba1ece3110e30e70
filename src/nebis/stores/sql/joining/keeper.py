"""A library that keeps transactions, and a transaction of ours inside the one that it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

from nebis.flow import Ask, Flow, drive, drive_async
from nebis.ports.store import AsyncTransaction, BlockingTransaction

T = TypeVar("T")


class Keeper(Protocol):
    """One connection or session of a library, in its blocking form."""

    @property
    def handle(self) -> Any:
        """Return what the application writes its rows with."""
        ...

    @property
    def dialect(self) -> str:
        """Return the library's name for the database: `postgresql`, `sqlite`, or one that we cannot join."""
        ...

    def is_open(self) -> bool:
        """Tell whether a transaction is open that we may join, provided that it only read so far.

        Raises `MisuseError` inside a transaction that is not ours to commit.
        """
        ...

    def begin(self) -> Any:
        """Begin, unless one is open, and return the driver's own connection."""
        ...

    def ask(self, text: str) -> tuple[Any, ...]:
        """Send a statement without parameters in the library's way and return its only row."""
        ...

    def is_current(self) -> bool:
        """Tell whether the library still keeps the transaction of `begin`, on the same connection."""
        ...

    def has_failed(self) -> bool:
        """Tell whether the library has given the transaction up and only lets it be rolled back."""
        ...

    def flush(self) -> None:
        """Send what the library has held back so far."""
        ...

    def commit(self) -> None:
        """Commit in the library's way."""
        ...

    def rollback(self) -> None:
        """Roll back in the library's way."""
        ...

    def discard(self) -> None:
        """Throw the connection away, so that nobody gets it from a pool."""
        ...

    def refusal_of_commit(self, error: Exception) -> Exception | None:
        """Return the driver's own error if it is certain that it was the answer to COMMIT itself."""
        ...


@dataclass(frozen=True, slots=True)
class Keep(Ask[T]):
    """Have the keeper do something, where its library wants it done."""

    act: Callable[[Keeper], T]


@dataclass(frozen=True, slots=True)
class OnDriver(Ask[Any]):
    """Use the driver's own connection; what an asyncio driver returns is awaited."""

    act: Callable[[], Any]


class Script(Protocol):
    """What a transaction does on one kind of database, as flows: the same for both worlds."""

    def begin(self) -> Flow[None]:
        """Begin, or raise `MisuseError` and leave the application's transaction as it was."""
        ...

    def run(self, flow: Flow[T]) -> Flow[T]:
        """Perform a store flow inside the transaction."""
        ...

    def is_same(self) -> Flow[bool]:
        """Tell whether nobody ended the transaction behind our back."""
        ...

    def commit(self) -> Flow[None]:
        """Commit, or raise what is known about it."""
        ...

    def rollback(self) -> Flow[None]:
        """Undo whatever is open, if it was begun."""
        ...


class Library(Protocol):
    """A target that was recognised."""

    def join(self, script: Script) -> BlockingTransaction:
        """Make a transaction for blocking code; raise `MisuseError` for a target of asyncio."""
        ...

    def join_async(self, script: Script) -> AsyncTransaction:
        """Make a transaction for asyncio; raise `MisuseError` for a target that would block the loop."""
        ...


class JoinedTransaction:
    """A transaction that a library keeps for blocking code."""

    def __init__(self, keeper: Keeper, script: Script) -> None:
        self._keeper = keeper
        self._script = script

    @property
    def connection(self) -> Any:
        """Return the connection or session as the application handed it in."""
        return self._keeper.handle

    def begin(self) -> None:
        """Begin in the library's way."""
        drive(self._script.begin(), self._perform)

    def run(self, flow: Flow[T]) -> T:
        """Perform a store flow inside the transaction."""
        return drive(self._script.run(flow), self._perform)

    def is_same(self) -> bool:
        """Tell whether nobody ended the transaction behind our back."""
        return drive(self._script.is_same(), self._perform)

    def commit(self) -> None:
        """Commit in the library's way."""
        drive(self._script.commit(), self._perform)

    def rollback(self) -> None:
        """Undo everything; a connection that cannot even do that is thrown away."""
        with suppress(Exception):
            drive(self._script.rollback(), self._perform)

    def _perform(self, ask: Ask[Any]) -> Any:
        match ask:
            case Keep(act):
                return act(self._keeper)
            case OnDriver(act):
                return act()
            case _:
                raise AssertionError(f"a joined transaction cannot perform {type(ask).__name__}")


class AsyncJoinedTransaction:
    """A transaction that a library keeps for asyncio. A cancelled caller leaves, what runs goes on to its end."""

    def __init__(self, keeper: Keeper, script: Script, call: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """Take `call`, which does something blocking as the library wants it done on an event loop."""
        self._keeper = keeper
        self._script = script
        self._call = call
        self._last: asyncio.Task[Any] | None = None

    @property
    def connection(self) -> Any:
        """Return the connection or session as the application handed it in."""
        return self._keeper.handle

    async def begin(self) -> None:
        """Begin in the library's way."""
        await self._drive(self._script.begin())

    async def run(self, flow: Flow[T]) -> T:
        """Perform a store flow inside the transaction."""
        return await self._drive(self._script.run(flow))

    async def is_same(self) -> bool:
        """Tell whether nobody ended the transaction behind our back."""
        return await self._drive(self._script.is_same())

    async def commit(self) -> None:
        """Commit in the library's way, whether or not the caller stays to hear of it."""
        await self._drive(self._script.commit())

    async def rollback(self) -> None:
        """Undo everything, once what was left behind by a cancelled caller has ended."""
        with suppress(Exception):
            await self._drive(self._script.rollback())

    async def _drive(self, flow: Flow[T]) -> T:
        self._last = asyncio.create_task(self._after(self._last, drive_async(flow, self._perform)))
        self._last.add_done_callback(_retrieved)
        return await asyncio.shield(self._last)

    @staticmethod
    async def _after(earlier: asyncio.Task[Any] | None, work: Coroutine[Any, Any, T]) -> T:
        if earlier is not None and not earlier.done():
            await asyncio.wait([earlier])
        return await work

    async def _perform(self, ask: Ask[Any]) -> Any:
        match ask:
            case Keep(act):
                return await self._call(lambda: act(self._keeper))
            case OnDriver(act):
                answer = act()
                return await answer if isawaitable(answer) else answer
            case _:
                raise AssertionError(f"a joined transaction cannot perform {type(ask).__name__}")


def _retrieved(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # A caller that was cancelled does not ask for it, and the loop would complain.
