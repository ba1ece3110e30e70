"""Flows: I/O written once, as generators that yield what they ask of the world.

A flow yields asks and gets their results back; `yield from ask` gives a typed result, a bare `yield ask` costs half and
is for what every request does. Small drivers perform the asks, blocking or on an event loop. Each ask is therefore also
a crash point, a trace span and a scheduling point.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from types import CoroutineType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from nebis.core.native import twinned

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


_NOBODY: Final[dict[type[Ask[Any]], Callable[[Any, Any], Any]]] = {}


@twinned
def go_on(
    flow: Flow[T],
    given: object = None,
    performs: Mapping[type[Ask[Any]], Callable[[Any, Any], Any]] = _NOBODY,
    turn: object = None,
    error: BaseException | None = None,
) -> tuple[bool, Any]:
    """Give a flow its answer, or an error in its place, and let it go on while what it asks for is performed at once.

    Return True and its result, or False and the first ask that nobody here performs. What a performer raises is raised
    inside the flow.
    """
    try:
        ask = flow.send(given) if error is None else flow.throw(error)
        while (perform := performs.get(type(ask))) is not None:
            try:
                answer = perform(turn, ask)
            except BaseException as raised:  # noqa: BLE001 - the flow decides; what it does not catch goes on to the caller.
                ask = flow.throw(raised)
            else:
                ask = flow.send(answer)
    except StopIteration as stop:
        return True, stop.value
    return False, ask


def drive(flow: Flow[T], perform: Callable[[Ask[Any]], Any]) -> T:
    """Run a flow to its end, performing each ask in turn. What an ask raises is raised inside the flow."""
    is_over, asked = go_on(flow)
    while not is_over:
        try:
            answer = perform(asked)
        except BaseException as error:  # noqa: BLE001 - the flow decides; what it does not catch goes on to the caller.
            is_over, asked = go_on(flow, error=error)
        else:
            is_over, asked = go_on(flow, answer)
    result: T = asked
    return result


async def drive_async(flow: Flow[T], perform: Callable[[Ask[Any]], Awaitable[Any] | Any]) -> T:
    """Run a flow to its end on an event loop; the twin of `drive`.

    Requests are driven by `runtime.driven_turn`, from answer to answer.

    What `perform` returns is awaited if it can be: an answer that is there at once costs no coroutine. No answer is
    an awaitable itself.
    """
    is_over, asked = go_on(flow)
    while not is_over:
        try:
            answer = perform(asked)
            # Looked at first, as to ask for the attribute makes an object.
            if type(answer) is CoroutineType or hasattr(answer, "__await__"):
                answer = await answer
        except BaseException as error:  # noqa: BLE001 - the flow decides; what it does not catch goes on to the caller.
            is_over, asked = go_on(flow, error=error)
        else:
            is_over, asked = go_on(flow, answer)
    result: T = asked
    return result
