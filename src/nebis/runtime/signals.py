"""Wake-ups inside one process for those who wait for a record to move. A hint: polling is the truth (F026)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from nebis.core.verbs import Complete, Doubt, Release, Resolve, Suspend, Verb, Withdraw, identity_of

ENDINGS = (Complete, Suspend, Release, Withdraw, Doubt, Resolve)
"""Verbs that a waiter waits for. A claim is none: two waiters would wake each other with every poll."""


class Signals:
    """Who waits for which record."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[bytes, list[Callable[[], None]]] = {}

    def join(self, identity: bytes, wake: Callable[[], None], limit: int) -> bool:
        """Let `wake` be called when the record moves; False if as many as allowed wait already (SEC36)."""
        with self._lock:
            waiting = self._waiting.setdefault(identity, [])
            if len(waiting) >= limit:
                return False
            waiting.append(wake)
            return True

    def leave(self, identity: bytes, wake: Callable[[], None]) -> None:
        """Stop waiting."""
        with self._lock:
            waiting = self._waiting.get(identity, [])
            if wake in waiting:
                waiting.remove(wake)
            if not waiting:
                self._waiting.pop(identity, None)

    @property
    def is_anybody_waiting(self) -> bool:
        """Tell whether anybody waits for any record: mostly nobody does, and nobody has to be looked for."""
        return bool(self._waiting)

    def applied(self, verb: Verb) -> None:
        """Wake those who wait for the record if this verb may have ended its attempt."""
        if isinstance(verb, ENDINGS):
            self.wake(identity_of(verb))

    def wake(self, identity: bytes) -> None:
        """Call everybody who waits for this record; may be called from any thread."""
        if identity not in self._waiting:
            return
        with self._lock:
            waiting = tuple(self._waiting.get(identity, ()))
        for wake in waiting:
            wake()
