"""What a request's turn is in either world: what it attempts, what it knows of its effects, and whom it tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from nebis.core.record import Outcome, Record
from nebis.core.verbs import Claim
from nebis.flow import Flow
from nebis.flows.ledger import Ledger
from nebis.ports.asks import (
    Elapsed,
    KeepTrying,
    MakeClaim,
    Raised,
    Returned,
    Settled,
    Tell,
    TellClaimed,
    TellCompleted,
)
from nebis.ports.inbox import Inbox
from nebis.ports.messages import Message
from nebis.ports.observer import Event, Observer
from nebis.runtime.counting import Counting
from nebis.runtime.entropy import claimed
from nebis.runtime.heartbeat import Heartbeat, Watch
from nebis.runtime.observers import tell
from nebis.runtime.recursion import require_outside, running
from nebis.runtime.single import Single


class World(Protocol):
    """What all turns of a world share, as far as it is the same in both."""

    heartbeat: Heartbeat
    counting: Counting | None
    """Counts for people, where this process does so."""
    observers: tuple[Observer, ...]
    has_leading_ids: bool
    """Whether the store wants the ids of new records to begin as their identities do."""


class Turn:
    """One request's turn, apart from how it waits.

    What only some requests have stands in the class until one has it; what all get, each turn sets when it is made.
    """

    single: Single | None = None
    target: object | None = None
    """What the next transaction of this turn joins; None for a connection of ours."""
    settled: Outcome | None = None
    """Set once the handler's own transaction holds the outcome."""
    staged: tuple[Message, ...] = ()
    """What a single transaction commits together with that outcome."""
    record: Record | None = None
    """What is attempted, once it is."""
    beside: Callable[[Inbox], Flow[None]] | None = None
    """What is written in the handler's own transaction, right before its outcome."""
    _world: World
    _watch: Watch | None = None
    _ledger: Ledger | None = None
    _moves: bytes | None = None

    @property
    def ledger(self) -> Ledger:
        """Return what the attempt knows of its effects; made when it is asked for, as most have none."""
        if self._ledger is None:
            assert self.record is not None  # Only the handler of an attempt has effects.
            self._ledger = Ledger(self.record)
        return self._ledger

    @property
    def is_lost(self) -> bool:
        """Tell whether another attempt took over."""
        return self._watch is not None and self._watch.is_lost

    def ended(self, end: Returned[object] | Raised) -> Returned[object] | Raised | Settled:
        """Say how an attempt ended: by what its own transaction stored, or as its handler did and knows."""
        if self.settled is not None and isinstance(end, Returned):
            return Settled(self.settled, self.staged)
        if self.single is None and self.target is not None:
            self.target = None  # What comes after the handler is ours, and so is the connection for it.
        assert self.record is not None  # It ran as its owner.
        return end if self._ledger is None and not self.record.effects else self.ledger.of(end)

    def make_claim(self, ask: MakeClaim) -> Claim:
        claim = claimed(ask.make, has_leading_id=self._world.has_leading_ids)
        if running.get():
            require_outside(claim)
        return claim

    def elapsed(self, _: Elapsed) -> float:
        return time.monotonic()

    def keep_trying(self, ask: KeepTrying) -> None:
        self._world.heartbeat.keep_trying(ask.verb)

    def tell(self, ask: Tell) -> None:
        event, world = ask.event, self._world
        if world.counting is not None:
            world.counting(event)
        if world.observers:
            self._observed(event)

    def _observed(self, event: Event) -> None:
        tell(self._world.observers, event)

    def tell_claimed(self, ask: TellClaimed) -> None:
        world = self._world
        if world.counting is not None:
            world.counting.claimed(ask.answer)
        if world.observers:
            self._observed(ask.event)

    def tell_completed(self, ask: TellCompleted) -> None:
        if self._world.observers:  # Nobody counts these.
            self._observed(ask.event)
