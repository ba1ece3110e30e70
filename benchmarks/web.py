"""The endpoint that is protected over HTTP, and the ways to reach it."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from benchmarks.contender import App, AsyncCall, Places
from benchmarks.work import COMMAND, Work

PATH = "/payments"
KEY_HEADER = "idempotency-key"
REQUEST_BODY = json.dumps(COMMAND).encode()
Opens = Callable[[Places, Work], AbstractAsyncContextManager[App]]


class Refused(Exception):
    """An answer that is no success."""


def endpoint(work: Work, *middleware: Middleware) -> Starlette:
    """Return an application that reads a JSON body and answers with 300 bytes."""

    async def create_payment(request: Request) -> JSONResponse:
        await request.json()
        return JSONResponse(await work.run())

    return Starlette(routes=[Route(PATH, create_payment, methods=["POST"])], middleware=middleware)


@asynccontextmanager
async def bare(_places: Places, work: Work) -> AsyncIterator[App]:
    yield endpoint(work)


class Idle(BaseHTTPMiddleware):
    """A middleware that does nothing: what its base class alone costs."""

    async def dispatch(self, request: Request, call_next: Callable[[Request], Any]) -> Response:
        response: Response = await call_next(request)
        return response


@asynccontextmanager
async def idle_middleware(_places: Places, work: Work) -> AsyncIterator[App]:
    yield endpoint(work, Middleware(Idle))


def around_call(opens: Callable[[Places, Work], AbstractAsyncContextManager[Any]]) -> Opens:
    """Return an application whose endpoint makes the call itself, for systems that are functions."""

    @asynccontextmanager
    async def opened(places: Places, work: Work) -> AsyncIterator[App]:
        async with opens(places, work) as call:

            async def create_payment(request: Request) -> JSONResponse:
                await request.json()
                return JSONResponse(await call(request.headers[KEY_HEADER]))

            yield Starlette(routes=[Route(PATH, create_payment, methods=["POST"])])

    return opened


def in_process(opens: Opens) -> Callable[[Places, Work], AbstractAsyncContextManager[AsyncCall]]:
    """Return a function that hands a request to an application without any network."""

    @asynccontextmanager
    async def opened(places: Places, work: Work) -> AsyncIterator[AsyncCall]:
        async with opens(places, work) as app:
            yield functools.partial(_request, app)

    return opened


async def _request(app: App, key: str) -> bytes:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"bench"), (b"content-type", b"application/json"), (KEY_HEADER.encode(), key.encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "state": {},
    }
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": REQUEST_BODY, "more_body": False}]
    status, body = 0, b""

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop()
        # The client stays until it is answered.
        never: dict[str, Any] = await asyncio.get_running_loop().create_future()
        return never

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body += message.get("body", b"")

    await app(scope, receive, send)
    if status != 200:
        raise Refused(f"{status} {body[:80]!r}")
    return body
