"""Nebis on each store and façade, as an application uses it: every default is left as it is."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from benchmarks.contender import App, AsyncCall, BlockingCall, Places
from benchmarks.web import endpoint
from benchmarks.work import COMMAND, Work
from nebis import AsyncNebis, Local, Nebis
from nebis.integrations.asgi_rules import Protected, rule

TENANT = "acct_1"

Where: TypeAlias = Callable[[Places], str]


def postgres(places: Places) -> str:
    return places.postgres_url


def postgres_asyncpg(places: Places) -> str:
    return places.postgres_url.replace("postgresql://", "postgresql+asyncpg://", 1)


def sqlite(places: Places) -> str:
    return f"sqlite:///{places.directory / 'nebis.db'}"


def async_facade(
    where: Where, *, single_transaction: bool = False
) -> Callable[[Places, Work], AbstractAsyncContextManager[AsyncCall]]:
    @asynccontextmanager
    async def opened(places: Places, work: Work) -> AsyncIterator[AsyncCall]:
        nebis = AsyncNebis(where(places))

        @nebis.operation("create_payment", effects=Local, single_transaction=single_transaction)
        async def create_payment(command: dict[str, Any]) -> dict[str, Any]:
            return await work.run()

        def call(key: str) -> Coroutine[Any, Any, object]:
            return create_payment(key=key, tenant=TENANT, command=COMMAND)

        await nebis.open()
        try:
            yield call
        finally:
            await nebis.close()

    return opened


def blocking_facade(
    where: Where, *, single_transaction: bool = False
) -> Callable[[Places, Work], AbstractAsyncContextManager[BlockingCall]]:
    @asynccontextmanager
    async def opened(places: Places, work: Work) -> AsyncIterator[BlockingCall]:
        nebis = Nebis(where(places))

        @nebis.operation("create_payment", effects=Local, single_transaction=single_transaction)
        def create_payment(command: dict[str, Any]) -> dict[str, Any]:
            return work.run_blocking()

        def call(key: str) -> object:
            return create_payment(key=key, tenant=TENANT, command=COMMAND)

        nebis.open()
        try:
            yield call
        finally:
            nebis.close()

    return opened


def protected(where: Where) -> Callable[[Places, Work], AbstractAsyncContextManager[App]]:
    """Put the rules around the very application that is measured bare."""

    @asynccontextmanager
    async def opened(places: Places, work: Work) -> AsyncIterator[App]:
        async with AsyncNebis(where(places)) as nebis:
            rules = [rule(nebis, "POST /payments", "create_payment", effects=Local, tenant=lambda _: TENANT)]
            yield Protected(endpoint(work), rules=rules)

    return opened
