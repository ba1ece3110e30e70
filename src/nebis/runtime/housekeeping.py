"""One slow thread per process: it lets records age, recovers what nobody owns, and adds what was counted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from nebis.ports.store import BlockingSessions, Store, StoreFailure
from nebis.runtime.counting import Counting
from nebis.runtime.jitter import jittered
from nebis.runtime.sweeping import Sweeper

log = logging.getLogger("nebis.housekeeping")

IDLE_SECONDS = 60.0
"""Between two rounds. Nothing waits for a sweep: a claim decides by itself whether a record's time is over."""


class Housekeeping:
    """Sweeps in short strides with rests between them; any number of processes may do so at once."""

    def __init__(
        self,
        store: Store,
        connect: Callable[[], BlockingSessions],
        counting: Counting,
        recover: Callable[[], object] | None = None,
    ) -> None:
        self._store = store
        self._counting = counting
        self._recover = recover
        self._connect = connect
        self._sweeper = Sweeper()
        self._look_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nebis-housekeeping", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the sweep that is under way, and add the last counts."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        sessions: BlockingSessions | None = None
        # The first look is late and spread: a fleet that is restarted must not sweep in step.
        pause_seconds = jittered(IDLE_SECONDS)
        while not self._stop.wait(pause_seconds):
            pause_seconds = jittered(IDLE_SECONDS)
            try:
                sessions = sessions or self._connect()
                _, rest_seconds = self._sweeper.stride(self._store, sessions)
                self._look_around(sessions)
                pause_seconds = pause_seconds if rest_seconds is None else rest_seconds
            except StoreFailure as failure:
                log.warning("a sweep did not finish (%s); trying again later", failure.detail)
            except Exception:  # The thread must outlive any fault, or the tables only grow.
                log.exception("housekeeping failed; trying again later")
        self._end(sessions)

    def _look_around(self, sessions: BlockingSessions) -> None:
        """Add counts and recover, each minute, however many strides there are in between."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + jittered(IDLE_SECONDS)
        self._add_counts(sessions)
        if self._recover is not None:
            self._recover()

    def _end(self, sessions: BlockingSessions | None) -> None:
        try:
            if self._counting.has_any:
                sessions = sessions or self._connect()
                self._add_counts(sessions)
        except Exception as error:  # noqa: BLE001 - the process ends; counts are all that is lost.
            log.warning("the last counts were not added (%s)", type(error).__name__)
        if sessions is not None:
            sessions.close()

    def _add_counts(self, sessions: BlockingSessions) -> None:
        taken = self._counting.take()
        if not taken:
            return
        try:
            sessions.run(self._store.tally(taken))
        except StoreFailure:
            self._counting.give_back(taken)
            raise
