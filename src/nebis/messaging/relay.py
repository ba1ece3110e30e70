"""The relay: publishes what transactions staged, as a process of its own or inside another one."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from nebis.aio import AsyncNebis
from nebis.errors import ConfigError, NotYet
from nebis.flow import Ask, drive, drive_async
from nebis.flows.relay import Relayed, RelayPolicy, relay_once
from nebis.messaging.routing import Routes
from nebis.policy import microseconds
from nebis.ports.asks import Elapsed
from nebis.ports.messages import Publisher
from nebis.ports.outbox import MarkMessages, PublishMessages, ResetPublishers, TakeMessages, outbox_of
from nebis.ports.store import StoreFailure
from nebis.runtime.jitter import jittered
from nebis.stores.sql.postgres.private_loop import PrivateLoop
from nebis.sync import Nebis

log = logging.getLogger("nebis.relay")

Publishers = Publisher | Mapping[str, Publisher]
Told = Callable[[Relayed], None]

PURGE_LIMIT = 1000
PURGE_SECONDS = 60.0
"""Between two purges, unless one was full: nothing waits for it."""


def tell(relayed: Relayed) -> None:
    """Log a round in which something went wrong; what goes well is too much to tell."""
    if relayed.postponed or relayed.parked or relayed.lost:
        log.warning("%s", relayed)


class _Relaying:
    """What both worlds share."""

    def __init__(self, publishers: Publishers, policy: RelayPolicy | None, told: Told) -> None:
        self._policy = policy or RelayPolicy()
        if faults := self._policy.faults():
            raise ConfigError(faults)
        self._routes = Routes(publishers, timeout_seconds=self._policy.publish_timeout.total_seconds())
        # The last part tells two relays of one process apart, and a process from its predecessor with the same number.
        self._name = f"{socket.gethostname()[:100]}:{os.getpid()}:{secrets.token_hex(4)}"
        self.told = told
        """Gets the report of each round."""
        self._purge_at = 0.0

    @property
    def _keeps_us(self) -> int:
        return microseconds(self._policy.retention)

    def _is_purge_due(self) -> bool:
        return time.monotonic() >= self._purge_at

    def _purged(self, number: int) -> None:
        pause_seconds = 0.0 if number >= PURGE_LIMIT else jittered(PURGE_SECONDS)
        self._purge_at = time.monotonic() + pause_seconds


class Relay(_Relaying):
    """Publishes the outbox of a `Nebis`; any number may run at once. Its publishers live on a loop of its own."""

    def __init__(
        self, nebis: Nebis, publishers: Publishers, *, policy: RelayPolicy | None = None, told: Told = tell
    ) -> None:
        """Name the store by its `Nebis`, whose worker will run this relay too."""
        super().__init__(publishers, policy, told)
        self.nebis = nebis
        self._loop: PrivateLoop | None = None
        nebis.relays.append(self)

    def run_once(self) -> Relayed:
        """Publish one batch of what is due, purge what is old, and say what was done."""
        world, _ = self.nebis.opened()
        outbox, sessions = outbox_of(world.backend.store), world.backend.sessions
        loop = self._loop = self._loop or PrivateLoop("nebis-relay")

        def perform(ask: Ask[Any]) -> Any:
            match ask:
                case TakeMessages():
                    return sessions.run(outbox.take(self._name, limit=ask.limit, lease_us=ask.lease_us))
                case PublishMessages():
                    return loop.call(self._routes.publish(ask.messages))
                case ResetPublishers():
                    return loop.call(self._routes.reset(ask.topics))
                case MarkMessages():
                    return sessions.run(outbox.mark(self._name, ask.marks))
                case Elapsed():
                    return time.monotonic()
                case _:
                    raise AssertionError(f"a relay does not ask for {type(ask).__name__}")

        relayed = drive(relay_once(self._policy), perform)
        if self._is_purge_due():
            self._purged(sessions.run(outbox.purge(keep_us=self._keeps_us, limit=PURGE_LIMIT)))
        self.told(relayed)
        return relayed

    def run(self, stop: threading.Event) -> None:
        """Go on until told to stop; the batch that is under way is finished first."""
        try:
            while not stop.is_set():
                try:
                    is_idle = self.run_once().taken == 0
                except (NotYet, StoreFailure) as error:
                    log.warning("a round did not finish (%s: %s); trying again", type(error).__name__, error)
                    is_idle = True
                if is_idle:
                    stop.wait(jittered(self._policy.idle.total_seconds()))
        finally:
            self.close()

    def close(self) -> None:
        """Close the publishers; the store belongs to the `Nebis`."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call(self._routes.aclose())
            loop.close()


class AsyncRelay(_Relaying):
    """The asyncio twin of `Relay`; its publishers live on the loop that runs it."""

    def __init__(
        self, nebis: AsyncNebis, publishers: Publishers, *, policy: RelayPolicy | None = None, told: Told = tell
    ) -> None:
        """Name the store by its `AsyncNebis`, whose worker will run this relay too."""
        super().__init__(publishers, policy, told)
        self.nebis = nebis
        nebis.relays.append(self)

    async def run_once(self) -> Relayed:
        """Publish one batch of what is due, purge what is old, and say what was done."""
        world, _ = await self.nebis.opened()
        outbox, sessions = outbox_of(world.backend.store), world.backend.sessions

        async def perform(ask: Ask[Any]) -> Any:
            match ask:
                case TakeMessages():
                    return await sessions.run(outbox.take(self._name, limit=ask.limit, lease_us=ask.lease_us))
                case PublishMessages():
                    return await self._routes.publish(ask.messages)
                case ResetPublishers():
                    return await self._routes.reset(ask.topics)
                case MarkMessages():
                    return await sessions.run(outbox.mark(self._name, ask.marks))
                case Elapsed():
                    return time.monotonic()
                case _:
                    raise AssertionError(f"a relay does not ask for {type(ask).__name__}")

        relayed = await drive_async(relay_once(self._policy), perform)
        if self._is_purge_due():
            self._purged(await sessions.run(outbox.purge(keep_us=self._keeps_us, limit=PURGE_LIMIT)))
        self.told(relayed)
        return relayed

    async def run(self, stop: asyncio.Event) -> None:
        """Go on until told to stop; the batch that is under way is finished first."""
        try:
            while not stop.is_set():
                try:
                    is_idle = (await self.run_once()).taken == 0
                except (NotYet, StoreFailure) as error:
                    log.warning("a round did not finish (%s: %s); trying again", type(error).__name__, error)
                    is_idle = True
                if is_idle:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), jittered(self._policy.idle.total_seconds()))
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the publishers; the store belongs to the `AsyncNebis`."""
        await self._routes.aclose()
