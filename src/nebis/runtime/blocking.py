"""The blocking world: performs asks in the calling thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nebis.core.answers import Answer, Locked
from nebis.core.record import Record
from nebis.core.verbs import Verb
from nebis.flow import Ask, Flow, drive
from nebis.ports.asks import (
    Apply,
    AwaitChange,
    Draw,
    Elapsed,
    Find,
    KeepAlive,
    KeepTrying,
    Pause,
    Raised,
    Returned,
    RunHandler,
    Tell,
)
from nebis.ports.observer import Observer
from nebis.ports.store import BlockingBackend
from nebis.runtime.entropy import draw
from nebis.runtime.heartbeat import Heartbeat, Watch
from nebis.runtime.jitter import jittered
from nebis.runtime.observers import tell
from nebis.runtime.signals import Signals

T = TypeVar("T")
Handler = Callable[[Record, "BlockingTurn"], object]


class BlockingWorld:
    """What one process shares between all its blocking requests."""

    def __init__(self, backend: BlockingBackend, observers: Sequence[Observer] = ()) -> None:
        self.backend = backend
        self.observers = tuple(observers)
        self.signals = Signals()
        self.heartbeat = Heartbeat(backend.store, backend.beat, self.signals.applied)
        self._listener = backend.listen(self.signals.wake) if backend.listen is not None else None

    def run(self, flow: Flow[T], handler: Handler) -> T:
        """Run an engine flow whose handler is this one; its claim is renewed until the flow ends."""
        turn = BlockingTurn(self, handler)
        try:
            return drive(flow, turn.perform)
        finally:
            turn.close()

    def apply(self, verb: Verb) -> Answer | Locked:
        """Apply one verb, and wake whoever waits for its record."""
        [answer] = self.backend.sessions.run(self.backend.store.apply([verb]))
        self.signals.applied(verb)
        return answer

    def close(self) -> None:
        """Stop renewing and close every connection."""
        if self._listener is not None:
            self._listener.close()
        self.heartbeat.close()
        self.backend.sessions.close()


class BlockingTurn:
    """One request's turn in the blocking world."""

    def __init__(self, world: BlockingWorld, handler: Handler) -> None:
        self._world = world
        self._handler = handler
        self._watch: Watch | None = None

    def perform(self, ask: Ask[Any]) -> Any:
        """Do what a flow asks for."""
        return _PERFORM[type(ask)](self, ask)

    @property
    def is_lost(self) -> bool:
        """Tell whether another attempt took over."""
        return self._watch is not None and self._watch.is_lost

    def close(self) -> None:
        """End the renewal. The record is not released: whatever was not written is decided by the lease."""
        if self._watch is not None:
            self._world.heartbeat.forget(self._watch)

    def apply(self, ask: Apply) -> Answer | Locked:
        return self._world.apply(ask.verb)

    def find(self, ask: Find) -> Record | None:
        backend = self._world.backend
        return backend.sessions.run(backend.store.find(ask.identity))

    def draw(self, _: Draw) -> object:
        return draw()

    def pause(self, ask: Pause) -> None:
        time.sleep(jittered(ask.seconds))

    def elapsed(self, _: Elapsed) -> float:
        return time.monotonic()

    def await_change(self, ask: AwaitChange) -> bool:
        moved = threading.Event()
        if not self._world.signals.join(ask.identity, moved.set, ask.waiters_limit):
            return False
        try:
            moved.wait(jittered(ask.seconds))
        finally:
            self._world.signals.leave(ask.identity, moved.set)
        return True

    def keep_alive(self, ask: KeepAlive) -> None:
        self._watch = self._world.heartbeat.watch(ask.record, ask.lease_us, ask.renewal_seconds)

    def run_handler(self, ask: RunHandler) -> Returned[object] | Raised:
        assert self._watch is not None  # A handler never runs without a renewal.
        try:
            return Returned(self._handler(ask.record, self))
        except Exception as error:  # noqa: BLE001 - every failure of a handler is an answer that the flow classifies.
            return Raised(error)

    def keep_trying(self, ask: KeepTrying) -> None:
        self._world.heartbeat.keep_trying(ask.verb)

    def tell(self, ask: Tell) -> None:
        """Tell the observers."""
        tell(self._world.observers, ask.event)


_PERFORM: dict[type[Ask[Any]], Callable[[BlockingTurn, Any], Any]] = {
    Apply: BlockingTurn.apply,
    Find: BlockingTurn.find,
    Draw: BlockingTurn.draw,
    Pause: BlockingTurn.pause,
    Elapsed: BlockingTurn.elapsed,
    AwaitChange: BlockingTurn.await_change,
    KeepAlive: BlockingTurn.keep_alive,
    RunHandler: BlockingTurn.run_handler,
    KeepTrying: BlockingTurn.keep_trying,
    Tell: BlockingTurn.tell,
}
