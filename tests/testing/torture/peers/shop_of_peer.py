"""The shop of the kit's own tests behind another library, in that library's environment: it knows nothing of ours.

    python shop_of_peer.py LIBRARY STORE DIRECTORY_OR_URL [cookie]

Prints its port once it can be reached, and ends with its standard input.
"""

import asyncio
import os
import socket
import sys
import threading
from collections import Counter
from importlib import import_module
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

TENANTS = {"Bearer secret-1": "acct_1", "Bearer secret-2": "acct_2"}


class Shop:
    """What the application is, whoever keeps its keys."""

    def __init__(self, *, sets_cookie: bool) -> None:
        self._sets_cookie = sets_cookie
        self._effects: Counter[str] = Counter()
        self._failed: set[str] = set()
        self._payments: dict[str, tuple[str, dict[str, Any]]] = {}

    def app(self, middleware: Middleware) -> Starlette:
        return Starlette(
            routes=[
                Route("/payments", self.pay, methods=["POST"]),
                Route("/refunds", self.pay, methods=["POST"]),
                Route("/payments/{id}", self.show),
                Route("/count", self.count),
            ],
            middleware=[middleware],
        )

    async def pay(self, request: Request) -> JSONResponse:
        tenant, command = _tenant(request), await _command(request)
        order, fails = command["order"], command.get("fails")
        await asyncio.sleep(command.get("delay_ms", 0) / 1000)
        if command["amount"] > 1000:
            raise HTTPException(402, "declined")
        if fails == "once" and order not in self._failed:
            self._failed.add(order)
            raise RuntimeError("before the effect")
        self._effects[order] += 1
        if fails == "late":
            raise RuntimeError("after the effect")
        made = {"id": uuid4().hex, "amount": command["amount"]}
        self._payments[made["id"]] = (tenant, made)
        response = JSONResponse(made, 201)
        if self._sets_cookie:
            response.set_cookie("session", uuid4().hex)
        return response

    async def show(self, request: Request) -> JSONResponse:
        tenant, made = self._payments.get(request.path_params["id"], ("", {}))
        if tenant != _tenant(request):
            raise HTTPException(404)
        return JSONResponse(made)

    async def count(self, request: Request) -> JSONResponse:
        return JSONResponse({"count": self._effects[request.query_params["order"]]})


def _tenant(request: Request) -> str:
    tenant = TENANTS.get(request.headers.get("authorization", ""))
    if tenant is None:
        raise HTTPException(401)
    return tenant


async def _command(request: Request) -> dict[str, Any]:
    body = await request.body()
    if len(body) > 65_536:
        raise HTTPException(413)
    try:
        found = await request.json()
    except (ValueError, RecursionError):
        raise HTTPException(400) from None
    if not isinstance(found, dict) or not isinstance(found.get("order"), str):
        raise HTTPException(422, "an order is needed")
    return found


def _redis(url: str) -> Any:
    # As many connections as there may be requests: redis-py raises when its pool is empty.
    return import_module("redis.asyncio").Redis.from_url(url, max_connections=1024)


async def library(name: str, store: str, place: str) -> Middleware:
    """Return a library's middleware as its own documentation shows it, with keys required where it can be asked to."""
    match name:
        case "asgi-idempotency-header":
            package = import_module("idempotency_header_middleware")
            backends = import_module("idempotency_header_middleware.backends.redis")
            return Middleware(package.IdempotencyHeaderMiddleware, backend=backends.RedisBackend(redis=_redis(place)))
        case "fastapi-idempotency-key":
            package = import_module("fastapi_idempotency_key")
            backends = import_module(f"fastapi_idempotency_key.backends.{store}")
            backend = (
                backends.RedisBackend(redis=_redis(place))
                if store == "redis"
                else backends.SQLiteBackend(f"{place}/peer.db")
            )
            return Middleware(package.IdempotencyMiddleware, backend=backend, required=True)
        case "fastidempotent":
            package = import_module("fastidempotent")
            backends = import_module("fastidempotent.backends.sqlite")
            backend = backends.SQLiteBackend(url=f"sqlite+aiosqlite:///{place}/peer.db")
            await backend.init()
            return Middleware(package.IdempotencyMiddleware, backend=backend)
        case "fastapi-idempotency":
            package = import_module("fastapi_idempotency")
            return Middleware(package.IdempotencyMiddleware, store=package.MemoryStore())
        case _:
            raise ValueError(f"{name} is none of the libraries")


async def main(name: str, store: str, place: str, *options: str) -> None:
    """Serve until standard input is closed."""
    app = Shop(sets_cookie="cookie" in options).app(await library(name, store, place))
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        threading.Thread(target=_end_with_input, daemon=True).start()
        await uvicorn.Server(uvicorn.Config(app, http="h11", log_level="critical")).serve(sockets=[listener])


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
