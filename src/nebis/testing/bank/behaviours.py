"""How the bank misbehaves: on demand, once for each time that it was asked to."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """One way to treat a call."""

    LOSE_REPLY = "lose_reply"
    """Charge, and close the connection without a word."""
    DELAY_BEFORE = "delay_before"
    """Wait before the call is served at all: its sender may be gone by then."""
    DELAY_AFTER = "delay_after"
    """Charge, and wait before the reply."""
    FAIL_BEFORE = "fail_before"
    """Answer 503 without serving the call."""
    DECLINE = "decline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What will be done with one call."""

    kind: Kind
    seconds: float = 0.0
    """The longest delay; `release` ends it sooner."""
    released: threading.Event = field(default_factory=threading.Event, compare=False)

    def delay(self) -> None:
        """Wait for as long as was asked for, or until released."""
        self.released.wait(self.seconds)


class Behaviours:
    """What was asked for and not done yet, for each reference in the order of asking."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._waiting: defaultdict[str, deque[Behaviour]] = defaultdict(deque)
        self._begun: defaultdict[str, list[Behaviour]] = defaultdict(list)

    def ask(self, reference: str, behaviour: Behaviour) -> None:
        """Ask for a behaviour towards the next call with this reference."""
        with self._turn:
            self._waiting[reference].append(behaviour)

    def take(self, reference: str) -> Behaviour | None:
        """Return how the call that just arrived is to be treated, or None for as usual."""
        with self._turn:
            waiting = self._waiting.get(reference)
            if not waiting:
                return None
            self._begun[reference].append(waiting[0])
            return waiting.popleft()

    def release(self, reference: str) -> None:
        """End every delay of calls with this reference, those that did not begin yet included."""
        with self._turn:
            for behaviour in (*self._begun.pop(reference, ()), *self._waiting.get(reference, ())):
                behaviour.released.set()
