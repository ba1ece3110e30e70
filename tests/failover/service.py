"""A service on Nebis whose work shows: money taken at an independent bank, and rows beside the record."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from nebis import AsyncAttempt, AsyncNebis, Attempt, Declared, Local, Nebis, hours
from nebis.core.record import Record
from nebis.effects import Sticky
from nebis.ports.store import Scan
from nebis.testing.bank import Bank
from nebis.testing.bank.books import Mode
from tests.engine.faces import Loop

DRIVERS = ("psycopg", "asyncpg")
KINDS = ("bank", "guarded", "single")
"""An effect at the bank; a row in the transaction that completes the record; one that claims it, too."""
TABLE = "CREATE TABLE IF NOT EXISTS payments (key text NOT NULL)"

_POLICY: dict[str, Any] = {
    "lease": timedelta(seconds=1.5),
    "renewal": timedelta(seconds=0.5),
    "effect_timeout": timedelta(seconds=1),
}
"""What the dead primary's callers had begun is taken over soon."""


@dataclass(frozen=True)
class Receipt:
    """An answer that no other run of the handler gives."""

    number: str
    tenant: str
    key: str


def tenant_of(key: str) -> str:
    return f"acct of {key}"


def _receipt(key: str) -> Receipt:
    return Receipt(number=uuid4().hex, tenant=tenant_of(key), key=key)


def open_service(driver: str, url: str, bank: Bank) -> "BlockingService | AsyncService":
    return BlockingService(url, bank) if driver == "psycopg" else AsyncService(url, bank)


class BlockingService:
    """`Nebis` on psycopg."""

    def __init__(self, url: str, bank: Bank) -> None:
        self._nebis = Nebis(url, housekeeping=False)

        def charge(key: str, *, idempotency_key: str) -> int:
            return bank.charge(Mode.STICKY, key, key=idempotency_key).status

        @self._nebis.operation("bank", effects=Declared, **_POLICY)
        def at_the_bank(attempt: Attempt, key: str) -> Receipt:
            assert attempt.effect("charge", charge, key, recall=Sticky(hours(24))) == 201
            return _receipt(key)

        def by_a_row(attempt: Attempt, key: str) -> Receipt:
            with attempt.transaction() as transaction:
                transaction.connection.execute("INSERT INTO payments VALUES (%s)", (key,))
                transaction.finish(receipt := _receipt(key))
            return receipt

        self._operations = {
            "bank": at_the_bank,
            "guarded": self._nebis.operation("guarded", effects=Local, **_POLICY)(by_a_row),
            "single": self._nebis.operation("single", effects=Local, single_transaction=True, **_POLICY)(by_a_row),
        }

    def __enter__(self) -> Self:
        self._nebis.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._nebis.close()

    def call(self, kind: str, key: str) -> Receipt:
        return self._operations[kind](key=key, tenant=tenant_of(key), command=key)

    def records(self, key: str) -> list[Record]:
        backend = self._nebis.opened()[0].backend
        return backend.sessions.run(backend.store.scan(Scan(tenant=tenant_of(key))))


class AsyncService:
    """`AsyncNebis` on asyncpg, called from threads as the blocking one is."""

    def __init__(self, url: str, bank: Bank) -> None:
        self._loop = Loop()
        self._nebis = AsyncNebis(url.replace("postgresql://", "postgresql+asyncpg://"), housekeeping=False)

        async def charge(key: str, *, idempotency_key: str) -> int:
            return (await asyncio.to_thread(bank.charge, Mode.STICKY, key, key=idempotency_key)).status

        @self._nebis.operation("bank", effects=Declared, **_POLICY)
        async def at_the_bank(attempt: AsyncAttempt, key: str) -> Receipt:
            assert await attempt.effect("charge", charge, key, recall=Sticky(hours(24))) == 201
            return _receipt(key)

        async def by_a_row(attempt: AsyncAttempt, key: str) -> Receipt:
            async with attempt.transaction() as transaction:
                await transaction.connection.execute("INSERT INTO payments VALUES ($1)", key)
                transaction.finish(receipt := _receipt(key))
            return receipt

        self._operations = {
            "bank": at_the_bank,
            "guarded": self._nebis.operation("guarded", effects=Local, **_POLICY)(by_a_row),
            "single": self._nebis.operation("single", effects=Local, single_transaction=True, **_POLICY)(by_a_row),
        }

    def __enter__(self) -> Self:
        self._loop.run(self._nebis.open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._loop.run(self._nebis.close())
        finally:
            self._loop.close()

    def call(self, kind: str, key: str) -> Receipt:
        return self._loop.run(self._operations[kind](key=key, tenant=tenant_of(key), command=key))

    def records(self, key: str) -> list[Record]:
        backend = self._loop.run(self._nebis.opened())[0].backend
        return self._loop.run(backend.sessions.run(backend.store.scan(Scan(tenant=tenant_of(key)))))
