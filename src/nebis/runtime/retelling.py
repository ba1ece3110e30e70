"""Replays on an event loop that are told before anything is claimed.

Where the store has probably seen a record end, it is read first, together with those of other callers. If it is what
the request asks for, there is nothing to claim: no marks are drawn, no flow begins, nothing is written. Whatever else
is found, or goes wrong, says nothing: the request goes the usual way, and the state machine decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from nebis.core.answers import make_replay
from nebis.core.marks import Marks
from nebis.core.replaying import Ended
from nebis.errors import StoreUnavailable
from nebis.flows.request import Finished, Request, finished
from nebis.ports.observer import claimed
from nebis.ports.store import DefiniteFailure, Spoilt
from nebis.runtime.gathering import LANES, LARGEST_BATCH, LONGEST_QUEUE
from nebis.runtime.observers import tell

if TYPE_CHECKING:
    from nebis.runtime.eventloop import AsyncWorld


class Retelling:
    """Reads completed records for the callers of one loop, in shared batches."""

    def __init__(self, world: AsyncWorld) -> None:
        self._world = world
        self._expects = world.backend.store.expects_replay
        self._lanes = min(LANES, world.backend.reading_lanes)
        self._waiting: deque[tuple[bytes, asyncio.Future[Ended | None]]] = deque()
        self._under_way = 0
        self._lanes_open = 0
        self._told: dict[str, int] = {}
        """How many replays of each operation are yet to be counted: batch by batch, as that takes a lock."""
        # The loop itself holds tasks only weakly.
        self._carriers: set[asyncio.Task[None]] = set()

    def ask(self, identity: bytes) -> asyncio.Future[Ended | None] | None:
        """Begin to read a record that has probably ended; None where it has not, or where too many wait already.

        Raises `StoreUnavailable` while the process is ending. Whoever cancels the future only stops waiting.
        """
        if not self._expects(identity) or len(self._waiting) >= LONGEST_QUEUE:
            return None
        world = self._world
        if world.is_closing:
            world.require_open()
        asked: asyncio.Future[Ended | None] = world.loop.create_future()
        self._waiting.append((identity, asked))
        if self._lanes_open < self._lanes:
            self._open_lane()
        return asked

    def ask_for(self, request: Request) -> asyncio.Future[Ended | None] | None:
        """Do the same for a request; None too where something is asked of it first, as `welcome` will."""
        if request.deadline is not None or not request.may_begin or request.charges:
            return None
        return self.ask(request.claim.identity)

    async def known(self, request: Request) -> Finished | None:
        """Say how a request ends that needs no claim; None where it does, or something is asked of it first."""
        asked = self.ask_for(request)
        return None if asked is None else self.ending(request.claim, await asked)

    def ending(self, marks: Marks, ended: Ended | None) -> Finished | None:
        """Say how a request ends that repeats what was read, and tell the observers; None if it does not."""
        if ended is None or not ended.answers(marks.fingerprints):
            return None
        told, world = ended.told, self._world
        self._told[told.operation] = self._told.get(told.operation, 0) + 1
        if world.observers:
            tell(world.observers, claimed(make_replay(record=told)))
        return finished(told, is_replay=True)

    async def close(self) -> None:
        """Wait until everything that was asked for is answered."""
        while self._carriers:
            await asyncio.wait(set(self._carriers))

    def _count(self) -> None:
        """Count what was told, which is by now: whoever was answered goes on before its carrier does."""
        told, self._told = self._told, {}
        if told and self._world.counting is not None:
            self._world.counting.replayed(told)

    def _open_lane(self) -> None:
        # A carrier starts when the callers that are ready now have asked, so they share its first batch.
        self._lanes_open += 1
        carrier = self._world.loop.create_task(self._carry())
        self._carriers.add(carrier)
        carrier.add_done_callback(self._carriers.discard)

    def _take(self) -> list[tuple[bytes, asyncio.Future[Ended | None]]]:
        """Take a lane's share of all that waits or is under way, as `Gathering` does, and for its reasons."""
        waiting = self._waiting
        share = min(-(-(len(waiting) + self._under_way) // self._lanes), len(waiting), LARGEST_BATCH)
        return [waiting.popleft() for _ in range(share)]

    async def _carry(self) -> None:
        try:
            while batch := self._take():
                self._under_way += len(batch)
                try:
                    await self._deliver(batch)
                finally:
                    self._under_way -= len(batch)
                # Those who were answered just now mostly ask again: they share a batch.
                await asyncio.sleep(0)
                self._count()
        finally:
            # In the same breath as the look at an empty queue: whoever asks next must find that nobody carries.
            self._lanes_open -= 1

    async def _deliver(self, batch: list[tuple[bytes, asyncio.Future[Ended | None]]]) -> None:
        backend = self._world.backend
        found: dict[bytes, Ended] = {}
        away: DefiniteFailure | None = None
        try:
            identities = list(dict.fromkeys([identity for identity, _ in batch]))
            found = await backend.sessions.run_unshielded(backend.store.ended(identities))
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was written, and the usual way will say it.
            if isinstance(error, DefiniteFailure) and not isinstance(error, Spoilt):
                away = error  # A claim would only wait for the same once more.
        finally:
            for identity, asked in batch:
                if asked.done():
                    continue  # Its caller was cancelled.
                if away is None:
                    asked.set_result(found.get(identity))
                else:
                    asked.set_exception(StoreUnavailable(away.detail))
