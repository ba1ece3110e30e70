"""A world that dies at a chosen point: before or after any ask, of the engine's flows or of the store's own."""

from collections.abc import Callable
from typing import Any, TypeVar

from nebis.core.answers import Answer, Locked
from nebis.core.record import Record
from nebis.core.verbs import Verb
from nebis.flow import Ask, Flow
from nebis.ports.asks import (
    Apply,
    AwaitChange,
    CallEffect,
    Draw,
    Elapsed,
    Find,
    KeepLate,
    KeepTrying,
    MakeClaim,
    Pause,
    Raised,
    Returned,
    RunHandler,
    Tell,
)
from nebis.ports.store import BlockingBackend
from nebis.runtime.entropy import draw

T = TypeVar("T")

_ABANDONED: list[object] = []
"""Flows of the dead. Collecting one would run its clean-up, which a killed process does not do."""


class Crash(BaseException):
    """The end of the process; no flow may catch it."""


class Doom:
    """Counts the points at which a process can die, and dies at one of them."""

    def __init__(self, at: int | None = None) -> None:
        self._at = at
        self.points = 0
        self.where = ""

    def pass_by(self, flow: Flow[Any], where: str) -> None:
        """Go past one more point, or die there."""
        self.points += 1
        if self.points - 1 == self._at:
            self.where = where
            _ABANDONED.append(flow)
            raise Crash(where)


def doomed(flow: Flow[T], doom: Doom) -> Flow[T]:
    """Relay what a flow asks, with a point to die before and after each ask."""
    try:
        ask = next(flow)
        while True:
            doom.pass_by(flow, f"before {_name(ask)}")
            try:
                answer = yield ask
            except BaseException as error:  # noqa: BLE001 - the flow decides, as with every driver.
                ask = flow.throw(error)
            else:
                doom.pass_by(flow, f"after {_name(ask)}")
                ask = flow.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value


def _name(ask: Ask[Any]) -> str:
    described = getattr(ask, "verb", None) or getattr(ask, "statement", None) or ask
    return getattr(described, "name", None) or type(described).__name__


class Clock:
    """The store's clock, moved by hand."""

    def __init__(self, now: int) -> None:
        self.now = now

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * 1_000_000)


class MortalWorld:
    """Performs engine asks on a real store, at the instant of a clock moved by hand, and may die on the way."""

    def __init__(self, backend: BlockingBackend, clock: Clock, doom: Doom | None = None) -> None:
        self.backend = backend
        self.clock = clock
        self.doom = doom or Doom()
        self.handler: Callable[[MortalWorld, Record], object] = lambda _, __: "done"
        self.while_waiting: Callable[[], object] = lambda: None
        self._elapsed_seconds = 0.0

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow; a death abandons it where it stands."""
        mortal = doomed(flow, self.doom)
        try:
            ask = next(mortal)
            while True:
                ask = mortal.send(self._perform(ask))
        except StopIteration as stop:
            value: T = stop.value
            return value
        except Crash:
            _ABANDONED.append(mortal)
            raise

    def apply(self, verb: Verb) -> Answer | Locked:
        flow = self.backend.store.apply([verb], now=self.clock.now)
        [answer] = self.backend.sessions.run(doomed(flow, self.doom))
        return answer

    def find(self, identity: bytes) -> Record | None:
        return self.backend.sessions.run(doomed(self.backend.store.find(identity), self.doom))

    def _perform(self, ask: Ask[Any]) -> Any:
        match ask:
            case Apply():
                return self.apply(ask.verb)
            case Find():
                return self.find(ask.identity)
            case MakeClaim():
                drawn = draw()
                return ask.make(drawn.record_id, drawn.nonce)
            case Draw():
                return draw()
            case Elapsed():
                return self._elapsed_seconds
            case Pause():
                self._elapsed_seconds += ask.seconds
                return None
            case AwaitChange():
                self._elapsed_seconds += ask.seconds
                self.while_waiting()
                return True
            case RunHandler():
                return self._run_handler(ask.record)
            case CallEffect():
                return _called(ask)
            case KeepLate() | KeepTrying() | Tell():
                return None
            case _:
                raise AssertionError(f"no flow asks for {type(ask).__name__}")

    def _run_handler(self, record: Record) -> Returned[object] | Raised:
        try:
            return Returned(self.handler(self, record))
        except Exception as error:  # noqa: BLE001 - as the runtimes do.
            return Raised(error)


def _called(ask: CallEffect) -> Returned[Any] | Raised:
    try:
        return Returned(ask.call(ask.effect))
    except Exception as error:  # noqa: BLE001 - as the runtimes do.
        return Raised(error)
