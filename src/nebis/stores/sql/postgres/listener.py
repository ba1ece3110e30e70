"""The ear of a process: LISTEN on a direct connection and a thread of its own.

What it hears is a hint. Notifications are lost while it reconnects, and nothing depends on them (F026).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from nebis.ports.store import StoreFailure

CHANNEL = "nebis"
_logger = logging.getLogger("nebis.stores.postgres")
_FIRST_DELAY_SECONDS = 0.1  # A restarting server is back in about this time.
_LONGEST_DELAY_SECONDS = 10.0  # Waiters poll anyway, so a slow return costs them latency and nothing else.


class Ear(Protocol):
    """One connection that listens. Made on the listening thread; `wake` comes from another one."""

    def hear(self, heard: Callable[[str], None], ready: Callable[[], None]) -> None:
        """Call `ready` once connected, then `heard` with every payload, until woken; raise when the connection ends."""
        ...

    def wake(self) -> None:
        """Make `hear` return, now or as soon as it starts."""
        ...


class ListeningThread:
    """A listener that reconnects until it is closed."""

    def __init__(self, open_ear: Callable[[], Ear], callback: Callable[[bytes], None]) -> None:
        self._open_ear = open_ear
        self._callback = callback
        self._ear: Ear | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="nebis-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and wait for the thread to end."""
        with self._lock:
            self._stopped.set()
            if self._ear is not None:
                self._ear.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        self._delay_seconds = _FIRST_DELAY_SECONDS
        while not self._stopped.is_set():
            with self._lock:
                if self._stopped.is_set():
                    return
                self._ear = self._open_ear()
            try:
                self._ear.hear(self._heard, self._ready)
            except StoreFailure as failure:
                _logger.info("nebis listens again in %.1f s: %s", self._delay_seconds, failure.detail)
                self._stopped.wait(self._delay_seconds)
                self._delay_seconds = min(self._delay_seconds * 2, _LONGEST_DELAY_SECONDS)

    def _ready(self) -> None:
        self._delay_seconds = _FIRST_DELAY_SECONDS

    def _heard(self, payload: str) -> None:
        try:
            identity = bytes.fromhex(payload)
        except ValueError:  # Anybody may write to a channel; what is not an identity wakes nobody.
            return
        try:
            self._callback(identity)
        except Exception:
            _logger.exception("a listener's callback failed; whoever it should have woken polls")
