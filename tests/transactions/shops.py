"""An application on each driver: one operation whose handler does, in its transaction, what a test wants."""

import asyncio
import sqlite3
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]
import psycopg

from nebis import AsyncAttempt, AsyncNebis, Attempt, Execution, Local, Nebis
from tests.engine.faces import Loop
from tests.transactions.scenes import WORK, Books, Scene, Step, perform, perform_async

T = TypeVar("T")

DRIVERS = ("psycopg", "psycopg-async", "asyncpg", "sqlite", "sqlite-async")
POSTGRES = DRIVERS[:3]
MODES = ("guarded", "single")

QUICK = {"lease": timedelta(seconds=0.6), "renewal": timedelta(seconds=0.2), "effect_timeout": timedelta(seconds=0.5)}
"""A dead owner's successor need not wait for long; on a busy machine a living one may lose its lease."""


class Shop:
    """What both façades share."""

    def __init__(self, driver: str, url: str, mode: str, **options: Any) -> None:
        self.driver = driver
        self.books = Books(url)
        self.is_single = mode == "single"
        self.steps: Sequence[Step] = WORK
        self.prelude: Sequence[Step] = ()
        """What the handler does before it opens its transaction."""
        self.url = url.replace("postgresql://", "postgresql+asyncpg://") if driver == "asyncpg" else url
        self.options = options

    def scene(self, key: str, attempt: Any, transaction: Any) -> Scene:
        return Scene(key=key, attempt=attempt, transaction=transaction, driver=self.driver)

    def policy(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"effects": Local, "single_transaction": self.is_single, **options}

    def sell(self, key: str, *steps: Step, connection: object | None = None) -> Execution[str]:
        """Call the operation, whose handler does these steps, on a connection of the application's if one is given."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class BlockingShop(Shop):
    """`Nebis` on psycopg or sqlite3."""

    def __init__(self, driver: str, url: str, mode: str, *, store: dict[str, Any] | None = None, **policy: Any) -> None:
        super().__init__(driver, url, mode)
        self.nebis = Nebis(self.url, **(store or {}))
        self._target: object | None = None

        @self.nebis.operation("sell", **self.policy(policy))
        def sell(attempt: Attempt, key: str) -> str:
            perform(self.prelude, self.scene(key, attempt, None))
            with attempt.transaction(self._target) as transaction:
                perform(self.steps, self.scene(key, attempt, transaction))
            return "unused"

        self.operation = sell
        self.nebis.open()

    def sell(self, key: str, *steps: Step, connection: object | None = None) -> Execution[str]:
        self.steps = steps or WORK
        self._target = None if self.is_single else connection
        return self.operation.execute(
            key=key, tenant="acct_1", command=key, connection=connection if self.is_single else None
        )

    def close(self) -> None:
        self.nebis.close()


class AsyncShop(Shop):
    """`AsyncNebis` on psycopg, asyncpg or sqlite3, on a loop of its own."""

    def __init__(self, driver: str, url: str, mode: str, *, store: dict[str, Any] | None = None, **policy: Any) -> None:
        super().__init__(driver, url, mode)
        self.loop = Loop()
        self.nebis = AsyncNebis(self.url, **(store or {}))
        self._target: object | None = None

        @self.nebis.operation("sell", **self.policy(policy))
        async def sell(attempt: AsyncAttempt, key: str) -> str:
            await perform_async(self.prelude, self.scene(key, attempt, None))
            async with attempt.transaction(self._target) as transaction:
                await perform_async(self.steps, self.scene(key, attempt, transaction))
            return "unused"

        self.operation = sell
        self.loop.run(self.nebis.open())

    def sell(self, key: str, *steps: Step, connection: object | None = None) -> Execution[str]:
        return self.loop.run(self.selling(key, *steps, connection=connection))

    async def selling(self, key: str, *steps: Step, connection: object | None = None) -> Execution[str]:
        self.steps = steps or WORK
        self._target = None if self.is_single else connection
        return await self.operation.execute(
            key=key, tenant="acct_1", command=key, connection=connection if self.is_single else None
        )

    def close(self) -> None:
        try:
            self.loop.run(self.nebis.close())
        finally:
            self.loop.close()


def open_shop(driver: str, url: str, mode: str, **options: Any) -> BlockingShop | AsyncShop:
    made = AsyncShop if driver.endswith("async") or driver == "asyncpg" else BlockingShop
    return made(driver, url, mode, **options)


class Customer:
    """A connection that the application already has, used from wherever its driver wants to be used."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.raw: Any = self.run(self._open())

    async def _open(self) -> Any:
        plain = self._shop.books.url
        match self._shop.driver:
            case "psycopg":
                return psycopg.connect(plain)
            case "psycopg-async":
                return await psycopg.AsyncConnection.connect(plain)
            case "asyncpg":
                return await asyncpg.connect(plain)
            case _:
                return sqlite3.connect(plain.removeprefix("sqlite:///"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._shop.loop.run(work) if isinstance(self._shop, AsyncShop) else asyncio.run(work)

    def do(self, method: str, *arguments: Any) -> Any:
        """Call a method of the connection and return what comes of it."""

        async def done() -> Any:
            result = getattr(self.raw, method)(*arguments)
            return await result if asyncio.iscoroutine(result) else result

        return self.run(done())

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Run a query, whatever the connection makes of its rows."""

        async def asked() -> list[tuple[Any, ...]]:
            if self._shop.driver == "asyncpg":
                return [tuple(row) for row in await self.raw.fetch(text)]
            if self._shop.driver == "psycopg-async":
                return [tuple(row) for row in await (await self.raw.execute(text)).fetchall()]
            return [tuple(row) for row in self.raw.execute(text).fetchall()]

        return self.run(asked())

    def close(self) -> None:
        self.do("close")
