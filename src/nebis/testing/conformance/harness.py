"""What the suite needs of the store under test: the only thing that its author has to write."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from nebis.core.answers import Answer, Locked
from nebis.core.record import Record
from nebis.core.verbs import Verb
from nebis.flow import Flow
from nebis.ports.store import AsyncBackend, AsyncSessions, BlockingBackend, BlockingSessions, Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Blocking access to the store under test, used by one thread at a time."""

    store: Store
    sessions: BlockingSessions

    def run(self, flow: Flow[T]) -> T:
        """Perform a store flow."""
        return self.sessions.run(flow)

    def apply(self, *verbs: Verb, now: int) -> list[Answer | Locked]:
        """Apply a batch at that instant of the store's clock."""
        return self.run(self.store.apply(verbs, now=now))

    def ask(self, verb: Verb, *, now: int) -> Answer | Locked:
        """Apply a batch of one."""
        (answer,) = self.apply(verb, now=now)
        return answer

    def find(self, identity: bytes) -> Record | None:
        """Read one record."""
        return self.run(self.store.find(identity))

    def close(self) -> None:
        """Close what this connection opened."""
        self.sessions.close()


class Harness(ABC):
    """A store under test: how to get an empty one, and a second connection to it.

    One harness serves a whole test run. The suite moves the clock by passing `now`, so it needs no clock from here.
    """

    locks_single_records: bool = False
    """Whether somebody's open transaction holds one record (then `hold` is needed) rather than the whole store."""

    @abstractmethod
    def fresh(self) -> Connection:
        """Connect to an empty store with its schema in place; the suite closes the connection."""

    @abstractmethod
    def connect(self) -> Connection:
        """Connect once more to what `fresh` returned last; the suite uses each connection in a thread of its own."""

    def blank(self) -> Connection:
        """Connect to a store that was never migrated; override it where there is a schema."""
        return self.fresh()

    def hold(self, identity: bytes) -> AbstractContextManager[None]:
        """Hold one record locked by an open transaction on a connection of its own, until the block ends."""
        raise NotImplementedError("Override `hold`, since this harness says that it locks single records.")

    def close(self) -> None:
        """Remove whatever the harness made."""


def connection_of(backend: BlockingBackend) -> Connection:
    """Make a connection of a blocking backend."""
    return Connection(store=backend.store, sessions=backend.sessions)


def connection_on_private_loop(opening: Callable[[], Awaitable[AsyncBackend]]) -> Connection:
    """Open an asyncio backend on an event loop of its own and make a blocking connection of it."""
    runner = asyncio.Runner()

    async def opened() -> AsyncBackend:
        return await opening()

    try:
        backend = runner.run(opened())
    except BaseException:
        runner.close()
        raise
    return Connection(store=backend.store, sessions=_LoopSessions(runner, backend.sessions))


@dataclass(frozen=True, slots=True)
class _LoopSessions:
    runner: asyncio.Runner
    sessions: AsyncSessions

    def run(self, flow: Flow[T]) -> T:
        return self.runner.run(self._perform(flow))

    async def _perform(self, flow: Flow[T]) -> T:
        return await self.sessions.run(flow)

    def close(self) -> None:
        self.runner.run(self.sessions.close())
        self.runner.close()
