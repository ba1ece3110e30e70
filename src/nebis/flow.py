"""Flows: I/O written once, as generators that yield what they ask of the world.

A flow yields asks and gets their results back; `yield from ask` gives a typed result, a bare `yield ask` costs half and
is for what every request does. Two small drivers perform the asks, one blocking and one asyncio. Each ask is therefore
also a crash point, a trace span and a scheduling point.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

R = TypeVar("R")
T = TypeVar("T")


class Ask(Generic[R]):
    """One piece of I/O as data; R is what the world answers."""

    __slots__ = ()

    def __iter__(self) -> Generator[Ask[Any], Any, R]:
        """Yield this ask to the driver and return its answer."""
        result: R = yield self
        return result


Flow: TypeAlias = Generator[Ask[Any], Any, T]
"""A use case that asks; it contains no async, no clock and no randomness."""


def drive(flow: Flow[T], perform: Callable[[Ask[Any]], Any]) -> T:
    """Run a flow to its end, performing each ask in turn. What an ask raises is raised inside the flow."""
    try:
        ask = next(flow)
        while True:
            try:
                result = perform(ask)
            except BaseException as error:  # noqa: BLE001 - the flow decides; what it does not catch goes on to the caller.
                ask = flow.throw(error)
            else:
                ask = flow.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value


async def drive_async(flow: Flow[T], perform: Callable[[Ask[Any]], Awaitable[Any] | Any]) -> T:
    """Run a flow to its end on an event loop; the twin of `drive`.

    Requests are driven by `runtime.driven_turn`, from answer to answer.

    What `perform` returns is awaited if it can be: an answer that is there at once costs no coroutine. No answer is
    an awaitable itself.
    """
    try:
        ask = next(flow)
        while True:
            try:
                result = perform(ask)
                if hasattr(result, "__await__"):
                    result = await result
            except BaseException as error:  # noqa: BLE001 - the flow decides; what it does not catch goes on to the caller.
                ask = flow.throw(error)
            else:
                ask = flow.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
