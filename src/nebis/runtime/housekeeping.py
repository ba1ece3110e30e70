"""One slow thread per process: it lets records age, recovers what nobody owns, and adds what was counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from nebis.ports.store import BlockingSessions, Store, StoreFailure, Sweep
from nebis.runtime.counting import Counting
from nebis.runtime.jitter import jittered

log = logging.getLogger("nebis.housekeeping")

SWEEP_LIMIT = 1000
"""Small enough to hold its locks for milliseconds; large enough to outrun any arrival rate at the pace below."""
IDLE_SECONDS = 60.0
"""Nothing waits for a sweep: a claim decides by itself whether a record's time is over."""
BUSY_SECONDS = 0.25
"""Between two full sweeps, so that a backlog is worked off without traffic feeling it."""


class Housekeeping:
    """Sweeps in bounded batches; any number of processes may do so at once."""

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
            try:
                sessions = sessions or self._connect()
                self._add_counts(sessions)
                swept = sweep_once(self._store, sessions)
                pause_seconds = BUSY_SECONDS if swept >= SWEEP_LIMIT else jittered(IDLE_SECONDS)
                if self._recover is not None:
                    self._recover()
            except StoreFailure as failure:
                log.warning("a sweep did not finish (%s); trying again later", failure.detail)
                pause_seconds = jittered(IDLE_SECONDS)
            except Exception:  # The thread must outlive any fault, or the tables only grow.
                log.exception("housekeeping failed; trying again later")
                pause_seconds = jittered(IDLE_SECONDS)
        self._end(sessions)

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


def sweep_once(store: Store, sessions: BlockingSessions) -> int:
    """Run each sweep once; return the largest number of records that one of them found due."""
    return max(sessions.run(store.sweep(sweep, limit=SWEEP_LIMIT)) for sweep in Sweep)
