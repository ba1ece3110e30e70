"""What the suite needs of the store under test: the only thing that its author has to write."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from nebis.core.answers import Answer, Locked
from nebis.core.record import Record
from nebis.core.verbs import Verb
from nebis.flow import Flow
from nebis.ports.store import (
    AsyncBackend,
    AsyncSessions,
    AsyncTransaction,
    BlockingBackend,
    BlockingSessions,
    BlockingTransaction,
    Store,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Blocking access to the store under test, used by one thread at a time."""

    store: Store
    sessions: BlockingSessions
    open_transaction: Callable[[], BlockingTransaction] | None = None

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

    @contextmanager
    def transaction(self) -> Iterator[BlockingTransaction]:
        """Begin a transaction on a connection of the store's own; undo it unless the block commits."""
        assert self.open_transaction is not None, "The store says that it joins transactions, and opens none."
        opened = self.open_transaction()
        opened.begin()
        try:
            yield opened
        finally:
            opened.rollback()

    def close(self) -> None:
        """Close what this connection opened."""
        self.sessions.close()


class Harness(ABC):
    """A store under test: how to get an empty one, and a second connection to it.

    One harness serves a whole test run. The suite moves the clock by passing `now`, so it needs no clock from here.
    """

    locks_single_records: bool = True
    """Whether an open transaction holds single records rather than the whole store; asked only if there are any."""

    @abstractmethod
    def fresh(self) -> Connection:
        """Connect to an empty store with its schema in place; the suite closes the connection."""

    @abstractmethod
    def connect(self) -> Connection:
        """Connect once more to what `fresh` returned last; the suite uses each connection in a thread of its own."""

    def blank(self) -> Connection:
        """Connect to a store that was never migrated; override it where there is a schema."""
        return self.fresh()

    def close(self) -> None:  # noqa: B027 - most harnesses have nothing left to remove.
        """Remove whatever the harness made."""


def connection_of(backend: BlockingBackend) -> Connection:
    """Make a connection of a blocking backend."""
    opening = backend.transaction
    return Connection(
        store=backend.store,
        sessions=backend.sessions,
        open_transaction=None if opening is None else lambda: opening(None),
    )


def connection_on_private_loop(opening: Callable[[], Awaitable[AsyncBackend]]) -> Connection:
    """Open an asyncio backend on an event loop of its own and make a blocking connection of it."""
    runner = asyncio.Runner()

    try:
        backend = runner.run(_opened(opening))
    except BaseException:
        runner.close()
        raise
    begin = backend.transaction
    return Connection(
        store=backend.store,
        sessions=_LoopSessions(runner, backend.sessions),
        open_transaction=None if begin is None else lambda: _LoopTransaction(runner, begin(None)),
    )


@dataclass(frozen=True, slots=True)
class _LoopSessions:
    runner: asyncio.Runner
    sessions: AsyncSessions

    def run(self, flow: Flow[T]) -> T:
        return self.runner.run(_awaited(self.sessions.run(flow)))

    def close(self) -> None:
        self.runner.run(_awaited(self.sessions.close()))
        self.runner.close()


@dataclass(frozen=True, slots=True)
class _LoopTransaction:
    runner: asyncio.Runner
    transaction: AsyncTransaction

    @property
    def connection(self) -> Any:
        return self.transaction.connection

    def begin(self) -> None:
        self.runner.run(_awaited(self.transaction.begin()))

    def run(self, flow: Flow[T]) -> T:
        return self.runner.run(_awaited(self.transaction.run(flow)))

    def settle(self, flow: Flow[T]) -> T | None:
        return self.runner.run(_awaited(self.transaction.settle(flow)))

    def is_same(self) -> bool:
        return self.runner.run(_awaited(self.transaction.is_same()))

    def commit(self) -> None:
        self.runner.run(_awaited(self.transaction.commit()))

    def rollback(self) -> None:
        self.runner.run(_awaited(self.transaction.rollback()))


async def _opened(opening: Callable[[], Awaitable[AsyncBackend]]) -> AsyncBackend:
    # Called on the loop already, since some drivers take the running loop when they are made.
    return await opening()


async def _awaited(something: Awaitable[T]) -> T:
    # A runner takes coroutines only, while the port promises no more than something to await.
    return await something
