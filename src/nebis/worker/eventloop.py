"""The worker for asyncio code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from nebis.aio import AsyncNebis
from nebis.errors import NotYet
from nebis.ports.store import StoreFailure
from nebis.recovery import Patience, Report
from nebis.runtime.jitter import jittered
from nebis.runtime.sweeping import sweep_once
from nebis.worker.pace import INTERVAL, SignOfLife, Told, complain, tell, unseen


class AsyncWorker:
    """Recovers the operations that are declared on an `AsyncNebis`; any number may run at once (F059)."""

    def __init__(self, nebis: AsyncNebis, *, interval: timedelta = INTERVAL, told: Told = tell) -> None:
        """Name the operations by the `AsyncNebis` that they are declared on; `told` gets the report of each pass."""
        self._nebis = nebis
        self._interval_seconds = interval.total_seconds()
        self._told = told
        self._patience = Patience()
        self._sign = SignOfLife()

    async def run_once(self, may_go_on: Callable[[], bool] = lambda: True) -> Report:
        """Look once after everything that is due, let records age, and say what was done."""
        backend = (await self._nebis.opened())[0].backend
        if self._sign.is_due():
            try:
                await backend.sessions.run(backend.store.note_worker())
            except StoreFailure as failure:
                unseen(failure)
        report = await self._nebis.recover(self._patience, may_go_on)
        report.swept += await backend.sessions.run(sweep_once(backend.store))
        self._told(report)
        return report

    async def run(self, stop: asyncio.Event) -> None:
        """Go on until told to stop; the record that is being looked after is finished first."""
        while not stop.is_set():
            try:
                await self.run_once(lambda: not stop.is_set())
            except (NotYet, StoreFailure) as error:
                complain(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), jittered(self._interval_seconds))
