"""Other libraries, each as its own documentation shows it, on a store that outlives the process.

They are imported by name: each is there only in the environment of the benchmarks.
"""

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.contender import App, AsyncCall, BlockingCall, Places
from benchmarks.web import PATH, endpoint
from benchmarks.work import COMMAND, Work


def _redis(places: Places) -> Any:
    # As many connections as there are callers: redis-py raises when its pool is empty.
    return import_module("redis.asyncio").Redis.from_url(places.redis_url, max_connections=1024)


def _asyncpg_url(places: Places, scheme: str) -> str:
    return places.postgres_url.replace("postgresql://", scheme, 1)


@asynccontextmanager
async def fastapi_idempotency_key_redis(places: Places, work: Work) -> AsyncIterator[App]:
    package = import_module("fastapi_idempotency_key")
    backend = import_module("fastapi_idempotency_key.backends.redis").RedisBackend(redis=_redis(places))
    yield endpoint(work, Middleware(package.IdempotencyMiddleware, backend=backend))
    await backend.close()


@asynccontextmanager
async def fastapi_idempotency_key_sqlite(places: Places, work: Work) -> AsyncIterator[App]:
    package = import_module("fastapi_idempotency_key")
    backends = import_module("fastapi_idempotency_key.backends.sqlite")
    backend = backends.SQLiteBackend(places.directory / "peer.db")
    yield endpoint(work, Middleware(package.IdempotencyMiddleware, backend=backend))
    await backend.close()


@asynccontextmanager
async def asgi_idempotency_header(places: Places, work: Work) -> AsyncIterator[App]:
    package = import_module("idempotency_header_middleware")
    backend = import_module("idempotency_header_middleware.backends.redis").RedisBackend(redis=_redis(places))
    yield endpoint(work, Middleware(package.IdempotencyHeaderMiddleware, backend=backend))
    await backend.redis.aclose()


@asynccontextmanager
async def fastapi_idempotency(places: Places, work: Work) -> AsyncIterator[App]:
    package, tortoise = import_module("fastapi_idempotency"), import_module("tortoise")
    store = import_module("fastapi_idempotency.stores.tortoise").TortoiseStore()
    await tortoise.Tortoise.init(
        db_url=_asyncpg_url(places, "asyncpg://") + "?maxsize=20",
        modules={"models": ["fastapi_idempotency.stores.tortoise"]},
        # Requests run in tasks that do not inherit the context in which this was opened.
        _enable_global_fallback=True,
    )
    await tortoise.Tortoise.generate_schemas()
    yield endpoint(work, Middleware(package.IdempotencyMiddleware, store=store))
    await tortoise.Tortoise.close_connections()


@asynccontextmanager
async def fastidempotent_postgres(places: Places, work: Work) -> AsyncIterator[App]:
    package = import_module("fastidempotent")
    backends = import_module("fastidempotent.backends.postgres")
    backend = backends.PostgresBackend(url=_asyncpg_url(places, "postgresql+asyncpg://"), pool_size=20)
    await backend.init()
    yield endpoint(work, Middleware(package.IdempotencyMiddleware, backend=backend))
    await backend.close()


@asynccontextmanager
async def fastidempotent_sqlite(places: Places, work: Work) -> AsyncIterator[App]:
    package = import_module("fastidempotent")
    backends = import_module("fastidempotent.backends.sqlite")
    backend = backends.SQLiteBackend(url=f"sqlite+aiosqlite:///{places.directory / 'peer.db'}")
    await backend.init()
    yield endpoint(work, Middleware(package.IdempotencyMiddleware, backend=backend))
    await backend.close()


@asynccontextmanager
async def pyidempotent(places: Places, work: Work) -> AsyncIterator[AsyncCall]:
    package = import_module("pyidempotent")
    backend = import_module("pyidempotent.backends.redis").RedisBackend(_redis(places))

    async def create_payment(key: str, command: dict[str, Any]) -> dict[str, Any]:
        return await work.run()

    once = package.idempotent(backend=backend, key_extractor=lambda key, _command, **_: key)(create_payment)

    async def call(key: str) -> object:
        return await once(key, COMMAND)

    yield call


@asynccontextmanager
async def pyidempotent_app(places: Places, work: Work) -> AsyncIterator[App]:
    package = import_module("pyidempotent")
    backend = import_module("pyidempotent.backends.redis").RedisBackend(_redis(places))

    async def run(request: Request) -> dict[str, Any]:
        await request.json()
        return await work.run()

    once = package.idempotent(backend=backend)(run)

    async def create_payment(request: Request) -> JSONResponse:
        return JSONResponse(await once(request))

    yield Starlette(routes=[Route(PATH, create_payment, methods=["POST"])])


@asynccontextmanager
async def powertools(places: Places, work: Work) -> AsyncIterator[BlockingCall]:
    package = import_module("aws_lambda_powertools.utilities.idempotency")
    layer = import_module("aws_lambda_powertools.utilities.idempotency.persistence.redis")
    client = import_module("redis").Redis.from_url(places.redis_url, decode_responses=True, max_connections=1024)
    # Outside of Lambda it warns at every call that it does not know how much time is left.
    warnings.simplefilter("ignore")

    def create_payment(*, command: dict[str, Any]) -> dict[str, Any]:
        return work.run_blocking()

    once = package.idempotent_function(
        create_payment,
        data_keyword_argument="command",
        persistence_store=layer.RedisCachePersistenceLayer(client=client),
        config=package.IdempotencyConfig(event_key_jmespath="key"),
    )
    yield lambda key: once(command={**COMMAND, "key": key})


@asynccontextmanager
async def idemkey(places: Places, work: Work) -> AsyncIterator[BlockingCall]:
    package = import_module("idemkey")
    store = import_module("idemkey.store").DedupStore(str(places.directory / "peer.db"))

    def create_payment(command: dict[str, Any]) -> dict[str, Any]:
        return work.run_blocking()

    guarded = package.guard(create_payment, store=store)
    yield lambda key: guarded(COMMAND, idemkey=key)


@asynccontextmanager
async def dbos(places: Places, work: Work) -> AsyncIterator[AsyncCall]:
    package = import_module("dbos")
    package.DBOS(
        config={
            "name": "bench",
            "system_database_url": _asyncpg_url(places, "postgresql+psycopg://"),
            "log_level": "ERROR",
            "sys_db_pool_size": 20,
        }
    )

    async def charge() -> dict[str, Any]:
        return await work.run()

    step = package.DBOS.step()(charge)

    async def create_payment(command: dict[str, Any]) -> Any:
        return await step()

    workflow = package.DBOS.workflow()(create_payment)

    async def call(key: str) -> object:
        with package.SetWorkflowID(key):
            return await workflow(COMMAND)

    package.DBOS.launch()
    yield call
    await asyncio.to_thread(package.DBOS.destroy)
