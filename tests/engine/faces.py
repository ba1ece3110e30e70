"""One way to use both façades on every store, so that each behaviour is written once.

Handlers are plain functions that may block: under asyncio they run on a thread, so that the loop stays free.
"""

import asyncio
import functools
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import psycopg

from nebis import AsyncAttempt, AsyncNebis, Attempt, Execution, Local, Nebis
from nebis.core.record import EffectsMode, Record, RecordId
from nebis.flow import Flow
from nebis.ports.observer import Event
from nebis.ports.store import Store
from nebis.stores.memory import MemoryStore

T = TypeVar("T")
View = Attempt | AsyncAttempt
_numbers = count(1)


class Called(Protocol):
    """A protected operation, called as either façade is."""

    def __call__(self, *, key: str, command: Any, tenant: str = ...) -> Any: ...
    def execute(self, *, key: str, command: Any, tenant: str = ..., **given: Any) -> Execution[Any]: ...


class Face:
    """A façade on a store, and a look behind it."""

    url: str

    def __init__(self) -> None:
        self.told: list[Event] = []

    def operation(
        self,
        handler: Callable[..., Any],
        *,
        name: str | None = None,
        effects: EffectsMode = Local,
        resource: tuple[str, str] | None = None,
        **options: Any,
    ) -> Called:
        """Protect a function of (attempt, command), under a name that no other test has unless one is given.

        A `resource` is attached before the handler has its turn.
        """
        raise NotImplementedError

    def run(self, flow: Callable[[Store], Flow[T]]) -> T:
        """Ask the store behind the façade."""
        raise NotImplementedError

    def open(self) -> None:
        """Open the store now."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def record(self, operation_id: str) -> Record:
        found = self.run(lambda store: store.find_by_id(RecordId(UUID(operation_id))))
        assert found is not None
        return found

    def damage(self, record: Record) -> None:
        """Flip a bit of the stored outcome, as a failing disk would."""
        assert record.outcome is not None
        damaged = record.outcome[:-1] + bytes([record.outcome[-1] ^ 1])
        scheme = urlsplit(self.url).scheme
        if scheme == "sqlite":
            with sqlite3.connect(self.url.removeprefix("sqlite:///")) as connection:
                connection.execute("UPDATE nebis_record SET outcome = ? WHERE identity = ?", (damaged, record.identity))
            connection.close()
        elif scheme == "memory":
            self.run(lambda store: _damage_memory(store, record, damaged))
        else:
            with psycopg.connect(self.url.replace("+asyncpg", "")) as server:
                server.execute("UPDATE nebis_record SET outcome = %s WHERE identity = %s", (damaged, record.identity))


def _damage_memory(store: Store, record: Record, damaged: bytes) -> Flow[None]:
    assert isinstance(store, MemoryStore)
    store._records[record.identity] = replace(record, outcome=damaged)
    yield from store.clock()


def new_name() -> str:
    """Return a name that no other operation of this run has."""
    return f"operation-{next(_numbers)}"


@dataclass
class BlockingOperation:
    inner: Any

    def __call__(self, *, key: str, command: Any, tenant: str = "acct_1") -> Any:
        return self.inner(key=key, tenant=tenant, command=command)

    def execute(self, *, key: str, command: Any, tenant: str = "acct_1", **given: Any) -> Execution[Any]:
        return self.inner.execute(key=key, tenant=tenant, command=command, **given)  # type: ignore[no-any-return]  # Untyped here.


class BlockingFace(Face):
    """`Nebis`."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__()
        self.url = url
        self.nebis = Nebis(url, observers=[self.told.append], **options)

    def operation(
        self,
        handler: Callable[..., Any],
        *,
        name: str | None = None,
        effects: EffectsMode = Local,
        resource: tuple[str, str] | None = None,
        **options: Any,
    ) -> Called:
        @functools.wraps(handler)
        def handle(attempt: Attempt, command: Any) -> Any:
            if resource is not None:
                attempt.resource(*resource)
            return handler(attempt, command)

        return BlockingOperation(self.nebis.operation(name or new_name(), effects=effects, **options)(handle))

    def run(self, flow: Callable[[Store], Flow[T]]) -> T:
        backend = self.nebis.opened()[0].backend
        return backend.sessions.run(flow(backend.store))

    def open(self) -> None:
        self.nebis.open()

    def close(self) -> None:
        self.nebis.close()


class Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop-of-a-test")
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass
class LoopOperation:
    inner: Any
    loop: Loop

    def __call__(self, *, key: str, command: Any, tenant: str = "acct_1") -> Any:
        return self.loop.run(self.inner(key=key, tenant=tenant, command=command))

    def execute(self, *, key: str, command: Any, tenant: str = "acct_1", **given: Any) -> Execution[Any]:
        return self.loop.run(self.inner.execute(key=key, tenant=tenant, command=command, **given))


class AsyncFace(Face):
    """`AsyncNebis`, on a loop of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__()
        self.url = url
        self._loop = Loop()
        self.nebis = AsyncNebis(url, observers=[self.told.append], **options)

    def operation(
        self,
        handler: Callable[..., Any],
        *,
        name: str | None = None,
        effects: EffectsMode = Local,
        resource: tuple[str, str] | None = None,
        **options: Any,
    ) -> Called:
        @functools.wraps(handler)
        async def handle(attempt: AsyncAttempt, command: Any) -> Any:
            if resource is not None:
                await attempt.resource(*resource)
            return await asyncio.to_thread(handler, attempt, command)

        declared = self.nebis.operation(name or new_name(), effects=effects, **options)(handle)
        return LoopOperation(declared, self._loop)

    def run(self, flow: Callable[[Store], Flow[T]]) -> T:
        async def performed() -> T:
            backend = (await self.nebis.opened())[0].backend
            return await backend.sessions.run(flow(backend.store))

        return self._loop.run(performed())

    def open(self) -> None:
        self._loop.run(self.nebis.open())

    def close(self) -> None:
        try:
            self._loop.run(self.nebis.close())
        finally:
            self._loop.close()
