"""One way to write a consumer for both façades on every store: an office that books payments and tells people."""

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from nebis import AsyncAttempt, AsyncNebis, Attempt, Declared, Delivery, Incoming, Nebis, Sticky, days
from nebis.declaration import PolicyOptions
from nebis.delivery import Verdict
from nebis.flow import Flow
from nebis.ports.history import Signed
from nebis.ports.inbox import ParkDecision, ParkedLetter
from nebis.ports.observer import Event
from nebis.ports.store import Store
from nebis.worker import AsyncWorker, Worker
from tests.engine.faces import Loop

T = TypeVar("T")

STICKY = Sticky(days(1))
QUICK = PolicyOptions(backoff_first=timedelta(milliseconds=1), backoff_longest=timedelta(milliseconds=4))
"""A failure comes back soon."""

SCHEMA = "CREATE TABLE ledger (payment text PRIMARY KEY, cents integer NOT NULL)"
BOOK = "INSERT INTO ledger VALUES ('{payment}', {cents})"
_numbers = count(1)


@dataclass(frozen=True)
class PaymentCreated:
    """What the messages are about."""

    payment: str
    cents: int


@dataclass
class Downstream:
    """Somebody else, who remembers keys; a test may have it fail before or after it acted."""

    acts: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    fails: list[str] = field(default_factory=list)
    """"before", "after" or "", for each call to come."""

    def do(self, what: str, *, idempotency_key: str) -> str:
        how = self.fails.pop(0) if self.fails else ""
        if how == "before":
            raise ConnectionError("refused")
        if idempotency_key not in self.keys:
            self.acts.append(what)
        self.keys.setdefault(idempotency_key, what)
        if how == "after":
            raise ConnectionError("the answer was lost")
        return what


def delivery(message_id: str | None, *, payment: str = "p-1", cents: int = 1200, **changes: Any) -> Delivery:
    """Return a delivery as a broker's reader hands it in."""
    body = f'{{"payment": "{payment}", "cents": {cents}}}'.encode()
    return Delivery(**{"payload": body, "topic": "payments", "id": message_id, **changes})


def _decide(parked_id: UUID, signed: Signed, store: Store) -> Flow[bool]:
    return store.decide_parked(parked_id, ParkDecision.RETRY, signed)


class Office:
    """An application with one consumer on a store."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.name = f"ledger-{next(_numbers)}"
        self.told: list[Event] = []
        self.runs: list[Incoming[PaymentCreated]] = []
        self.mail, self.provider = Downstream(), Downstream()
        self.hook: Callable[[Incoming[PaymentCreated]], object] = lambda _: None
        """Runs at the end of the handler, before its transaction."""
        self.books = not url.startswith("memory")
        """Has rows of its own, in the store's database."""
        self.options: dict[str, Any] = {"effects": Declared, **QUICK, **options}

    def handle(self, given: Delivery) -> Verdict:
        raise NotImplementedError

    def run(self, flow: Callable[[Store], Flow[T]]) -> T:
        raise NotImplementedError

    def work(self) -> Any:
        """Make one pass of a worker."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def parked(self) -> list[ParkedLetter]:
        return self.run(lambda store: store.list_parked(consumer=self.name))

    def retry(self) -> None:
        """Say what `nebis inbox retry` says of every parked message."""
        signed = Signed(who="a test", what="inbox retry", reason="cured")
        for parked in self.parked():
            self.run(partial(_decide, parked.letter.parked_id, signed))

    def ledger(self) -> list[tuple[str, int]]:
        """Read the rows that the handler wrote."""
        return [(payment, int(cents)) for payment, cents in self.sql("SELECT payment, cents FROM ledger ORDER BY 1")]

    def sql(self, text: str) -> list[Any]:
        """Run one statement beside the code under test."""
        if self.url.startswith("sqlite"):
            with sqlite3.connect(self.url.removeprefix("sqlite:///")) as connection:
                rows = connection.execute(text).fetchall()
            connection.close()
            return rows
        with psycopg.connect(self.url, autocommit=True) as server:
            cursor = server.execute(text.encode())
            return cursor.fetchall() if cursor.description else []


class BlockingOffice(Office):
    """`Nebis`."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.nebis = Nebis(url, observers=[self.told.append], housekeeping=False)
        self.nebis.open()
        self.consumer = self.nebis.consumer(self.name, **self.options)(self._handle)

    def _handle(self, attempt: Attempt, message: Incoming[PaymentCreated]) -> None:
        self.runs.append(message)
        payment = message.payload
        if self.options["effects"] is Declared:
            attempt.effect("mail", self.mail.do, payment.payment, recall=STICKY)
            attempt.effect("provider", self.provider.do, payment.payment, recall=STICKY)
        self.hook(message)
        if self.books:
            with attempt.transaction() as tx:
                tx.connection.execute(BOOK.format(payment=payment.payment, cents=payment.cents))
                tx.finish(None)

    def handle(self, given: Delivery) -> Verdict:
        return self.consumer.handle(given)

    def run(self, flow: Callable[[Store], Flow[T]]) -> T:
        backend = self.nebis.opened()[0].backend
        return backend.sessions.run(flow(backend.store))

    def work(self) -> Any:
        return Worker(self.nebis).run_once()

    def close(self) -> None:
        self.nebis.close()


class AsyncOffice(Office):
    """`AsyncNebis`, on a loop of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._loop = Loop()
        self.nebis = AsyncNebis(url, observers=[self.told.append], housekeeping=False)
        self._loop.run(self.nebis.open())
        self.consumer = self.nebis.consumer(self.name, **self.options)(self._handle)

    async def _handle(self, attempt: AsyncAttempt, message: Incoming[PaymentCreated]) -> None:
        self.runs.append(message)
        payment = message.payload
        if self.options["effects"] is Declared:
            await attempt.effect("mail", self.mail.do, payment.payment, recall=STICKY)
            await attempt.effect("provider", self.provider.do, payment.payment, recall=STICKY)
        await asyncio.to_thread(self.hook, message)
        if self.books:
            async with attempt.transaction() as tx:
                await tx.execute(BOOK.format(payment=payment.payment, cents=payment.cents))
                tx.finish(None)

    def handle(self, given: Delivery) -> Verdict:
        return self._loop.run(self.consumer.handle(given))

    def run(self, flow: Callable[[Store], Flow[T]]) -> T:
        async def performed() -> T:
            backend = (await self.nebis.opened())[0].backend
            return await backend.sessions.run(flow(backend.store))

        return self._loop.run(performed())

    def work(self) -> Any:
        return self._loop.run(AsyncWorker(self.nebis).run_once())

    def close(self) -> None:
        try:
            self._loop.run(self.nebis.close())
        finally:
            self._loop.close()
