"""A library that keeps transactions, and how what it does is done in either world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

from nebis.flow import Ask, Flow, drive, drive_async

T = TypeVar("T")


class Standing(Enum):
    """What became of the transaction that a keeper began."""

    CURRENT = auto()
    FAILED = auto()
    """The library has given it up, and only lets it be rolled back."""
    ENDED = auto()
    """Somebody committed it or rolled it back; its connection may be somebody else's by now."""


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

    def lend(self) -> Any:
        """Return the driver's own connection inside the application's transaction, or raise `MisuseError`."""
        ...

    def ask(self, text: str) -> tuple[Any, ...]:
        """Send a statement without parameters in the library's way and return its only row."""
        ...

    def standing(self) -> Standing:
        """Tell what became of the transaction that `begin` began."""
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


class Hands:
    """Does for blocking code what flows ask of a library and its driver."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper

    def do(self, flow: Flow[T]) -> T:
        """Do all that a flow asks."""
        return drive(flow, self._perform)

    def _perform(self, ask: Ask[Any]) -> Any:
        match ask:
            case Keep(act):
                return act(self.keeper)
            case OnDriver(on_driver):
                return on_driver()
            case _:
                raise AssertionError(f"a library cannot perform {type(ask).__name__}")


Call = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Does something that blocks, without blocking the loop."""


class AsyncHands:
    """Does the same on an event loop."""

    def __init__(self, keeper: Keeper, *, call: Call, call_driver: Call | None = None) -> None:
        """Take how the library is called, and its driver, unless that is one for asyncio."""
        self.keeper = keeper
        self._call = call
        self._call_driver = call_driver or _awaited

    async def do(self, flow: Flow[T]) -> T:
        """Do all that a flow asks."""
        return await drive_async(flow, self._perform)

    async def _perform(self, ask: Ask[Any]) -> Any:
        match ask:
            case Keep(act):
                return await self._call(lambda: act(self.keeper))
            case OnDriver(on_driver):
                return await self._call_driver(on_driver)
            case _:
                raise AssertionError(f"a library cannot perform {type(ask).__name__}")


async def _awaited(act: Callable[[], Any]) -> Any:
    answer = act()
    return await answer if isawaitable(answer) else answer


class Library(Protocol):
    """A target that was recognised."""

    def hands(self) -> Hands:
        """Return what blocking code uses it with; raise `MisuseError` for a target of asyncio."""
        ...

    def async_hands(self) -> AsyncHands:
        """Return what asyncio uses it with; raise `MisuseError` for a target that would block the loop."""
        ...
