"""One way to write an operation of several effects for both façades, and a worker for it."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from nebis import AsyncAttempt, AsyncNebis, Attempt, Declared, Nebis, Query, Retryable, Sticky, Undo, days
from nebis.core.answers import Granted
from nebis.core.record import EffectsMode, Nonce, Record, RecordId, State
from nebis.core.verbs import Suspend, TakeOver
from nebis.declaration import PolicyOptions
from nebis.effects import Recall
from nebis.ports.history import LateResult
from nebis.ports.observer import Event
from nebis.ports.store import AsyncBackend, BlockingBackend, Scan
from nebis.worker import AsyncWorker, Report, Worker
from tests.engine.faces import Loop
from tests.worker.bank import Bank

TENANT = "acct_1"
STICKY = Sticky(days(1))
SHORT = PolicyOptions(
    lease=timedelta(milliseconds=300),
    renewal=timedelta(milliseconds=100),
    effect_timeout=timedelta(milliseconds=200),
    backoff_first=timedelta(milliseconds=1),
    backoff_longest=timedelta(milliseconds=2),
)
"""A lease that a test can wait for."""


@dataclass
class Do:
    """One effect of the operation."""

    what: str
    recall: Recall = STICKY
    name: str | None = None
    arguments: tuple[Any, ...] = ()
    timeout: timedelta | None = None


@dataclass
class Plot:
    """What the handler does; a test may change it between two attempts, as a deploy does."""

    steps: Sequence[Do] = (Do("charge"),)
    ends: Callable[[], object] = lambda: None
    runs: int = 0
    swallows: bool = False
    """The handler goes on after an effect that failed."""

    tries: int = 1
    """How often the handler asks for each effect while it says that nothing happened."""

    def tolerance(self) -> AbstractContextManager[None]:
        return suppress(ConnectionError) if self.swallows else nullcontext()


def new_key() -> str:
    return str(uuid4())


@dataclass
class Shop:
    """An application with one operation, on a store."""

    bank: Bank = field(default_factory=Bank)
    plot: Plot = field(default_factory=Plot)
    told: list[Event] = field(default_factory=list)
    is_async: bool = False
    is_slow: bool = False
    """The bank may take its time, so that a loop must not wait for it."""

    async def _without_blocking(self, call: Callable[[], str]) -> str:
        return await asyncio.to_thread(call) if self.is_slow else call()

    def calls(self, what: str) -> Callable[..., Any]:
        """Return the client of the bank."""

        def call(*arguments: Any, idempotency_key: str) -> str:
            return self.bank.do(what, idempotency_key)

        async def call_async(*arguments: Any, idempotency_key: str) -> str:
            return await self._without_blocking(partial(self.bank.do, what, idempotency_key))

        return call_async if self.is_async else call

    def undoes(self, what: str) -> Callable[..., Any]:
        """Return what undoes something, and checks that it gets what it needs for that."""

        def undo(result: str, *, idempotency_key: str, original_key: str) -> str:
            assert result == f"{what} done"
            assert original_key in self.bank.books
            assert original_key != idempotency_key
            return self.bank.do(f"undo {what}", idempotency_key)

        async def undo_async(result: str, *, idempotency_key: str, original_key: str) -> str:
            call = partial(undo, result, idempotency_key=idempotency_key, original_key=original_key)
            return await self._without_blocking(call)

        return undo_async if self.is_async else undo

    def undo_of(self, *names: str) -> dict[str, Undo]:
        return {name: Undo(call=self.undoes(name), recall=STICKY) for name in names}

    def query(self, **ways: Any) -> dict[str, Query]:
        return {"charge": Query(find=self.bank.find, **ways)}

    def open(self, url: str, **options: Any) -> None:
        """Declare the operation and open the store."""
        raise NotImplementedError

    def pay(self, key: str, command: str = "42 EUR") -> str:
        raise NotImplementedError

    def work(self) -> Report:
        """Let a worker make one pass."""
        raise NotImplementedError

    def find(self, operation_id: str) -> Record:
        raise NotImplementedError

    def backend(self) -> BlockingBackend | AsyncBackend:
        """Return the store that the shop works with."""
        raise NotImplementedError

    def thief(self) -> Callable[[], object]:
        """Return what takes the one running record away from its owner, as a successor does."""
        backend = self.backend()

        def steal() -> None:
            sessions = backend.beat()
            [record] = sessions.run(backend.store.scan(Scan(states=(State.IN_PROGRESS,))))
            take_over = TakeOver(
                identity=record.identity,
                record_id=record.record_id,
                fence_seen=record.fence,
                nonce=Nonce(b"thief of a record"[:16]),
                lease_us=1,
                recoveries_limit=9,
            )
            answer: object = None
            while not isinstance(answer, Granted):  # Its owner lives, and may renew in between.
                sessions.run(backend.store.apply([Suspend(ownership=record.ownership)]))
                [answer] = sessions.run(backend.store.apply([take_over]))
            sessions.close()

        return steal

    def late_results(self) -> list[LateResult]:
        """Return what came too late for the one record."""
        backend = self.backend()
        sessions = backend.beat()
        try:
            return sessions.run(backend.store.late_results_of(self.stored().record_id))
        finally:
            sessions.close()

    def close_nebis(self, grace: timedelta) -> None:
        """Close the façade, as a process does that is about to end."""
        raise NotImplementedError

    def close(self) -> None:
        """Close everything."""
        self.close_nebis(timedelta(0))

    def stored(self) -> Record:
        """Return the one record that observers were told about."""
        [operation_id] = {event.operation_id for event in self.told}
        return self.find(operation_id)


class BlockingShop(Shop):
    nebis: Nebis
    name = "pay"

    def open(self, url: str, effects: EffectsMode = Declared, *, housekeeping: bool = False, **options: Any) -> None:
        self.nebis = Nebis(url, observers=[self.told.append], housekeeping=housekeeping)

        @self.nebis.operation(self.name, effects=effects, **{**SHORT, **options})
        def pay(attempt: Attempt, command: str) -> str:
            self.plot.runs += 1
            results: list[str] = []
            for do in self.plot.steps:
                call, arguments = self.calls(do.what), (command, *do.arguments)
                for left in reversed(range(self.plot.tries)):
                    try:
                        with self.plot.tolerance():
                            results.append(
                                attempt.effect(
                                    do.name or do.what,
                                    call,
                                    *arguments,
                                    recall=do.recall,
                                    returns=str,
                                    timeout=do.timeout,
                                )
                            )
                        break
                    except Retryable:
                        if not left:
                            raise
            self.plot.ends()
            return ", ".join(results)

        self._pay = pay
        self._worker = Worker(self.nebis)
        self.nebis.open()

    def pay(self, key: str, command: str = "42 EUR") -> str:
        return self._pay(key=key, tenant=TENANT, command=command)

    def work(self) -> Report:
        return self._worker.run_once()

    def backend(self) -> BlockingBackend:
        return self.nebis.opened()[0].backend

    def find(self, operation_id: str) -> Record:
        found = self.nebis.find(RecordId(UUID(operation_id)))
        assert found is not None
        return found

    def close_nebis(self, grace: timedelta) -> None:
        self.nebis.close(grace)


class AsyncShop(Shop):
    nebis: AsyncNebis
    name = "pay"

    def open(self, url: str, effects: EffectsMode = Declared, *, housekeeping: bool = False, **options: Any) -> None:
        self.loop = Loop()
        self.nebis = AsyncNebis(url, observers=[self.told.append], housekeeping=housekeeping)

        @self.nebis.operation(self.name, effects=effects, **{**SHORT, **options})
        async def pay(attempt: AsyncAttempt, command: str) -> str:
            self.plot.runs += 1
            results: list[str] = []
            for do in self.plot.steps:
                call, arguments = self.calls(do.what), (command, *do.arguments)
                for left in reversed(range(self.plot.tries)):
                    try:
                        with self.plot.tolerance():
                            results.append(
                                await attempt.effect(
                                    do.name or do.what,
                                    call,
                                    *arguments,
                                    recall=do.recall,
                                    returns=str,
                                    timeout=do.timeout,
                                )
                            )
                        break
                    except Retryable:
                        if not left:
                            raise
            ended = self.plot.ends()
            if inspect.isawaitable(ended):
                await ended
            return ", ".join(results)

        self._pay = pay
        self._worker = AsyncWorker(self.nebis)
        self.loop.run(self.nebis.open())

    def pay(self, key: str, command: str = "42 EUR") -> str:
        return self.loop.run(self._pay(key=key, tenant=TENANT, command=command))

    def work(self) -> Report:
        return self.loop.run(self._worker.run_once())

    def backend(self) -> AsyncBackend:
        return self.loop.run(self.nebis.opened())[0].backend

    def find(self, operation_id: str) -> Record:
        found = self.loop.run(self.nebis.find(RecordId(UUID(operation_id))))
        assert found is not None
        return found

    def close_nebis(self, grace: timedelta) -> None:
        self.loop.run(self.nebis.close(grace))

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.loop.close()
