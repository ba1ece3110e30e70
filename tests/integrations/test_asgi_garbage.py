"""No request leaves a circle of objects behind, however it ends: only the garbage collector would find them."""

import asyncio
import gc
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from nebis import AsyncNebis, Local, Rejected
from nebis.http import public
from nebis.integrations.asgi import App, Message
from nebis.integrations.asgi_rules import Protected, rule
from nebis.integrations.starlette import NebisMiddleware, idempotent

REQUESTS = 20
_numbers = itertools.count()


async def pay(request: Request) -> Response:
    return JSONResponse(await request.json())


async def decline(_: Request) -> Response:
    return PlainTextResponse("declined", status_code=409)


async def reject(_: Request) -> Response:
    raise Rejected("declined")


async def fail(_: Request) -> Response:
    raise LookupError("no such account")


ENDPOINTS = (pay, decline, reject, fail)


def by_rules(nebis: AsyncNebis) -> App:
    """Protect an application from outside."""
    app = Starlette(routes=[Route(f"/{each.__name__}", each, methods=["POST"]) for each in ENDPOINTS])
    names = [each.__name__ for each in ENDPOINTS]
    return Protected(app, rules=[rule(nebis, f"POST /{name}", name, effects=Local, tenant=public()) for name in names])


def by_decorator(nebis: AsyncNebis) -> App:
    """Protect each endpoint by itself."""
    routes = [
        Route(
            f"/{each.__name__}",
            idempotent(nebis, each.__name__, effects=Local, tenant=public())(each),
            methods=["POST"],
        )
        for each in ENDPOINTS
    ]
    return Starlette(routes=routes, middleware=[Middleware(NebisMiddleware)])


def fresh() -> str:
    return f"0190cf0e-8d4c-7c3e-9a53-{next(_numbers):012d}"


async def ask(app: App, path: str, key: str, body: bytes = b'{"amount": 1}') -> object:
    """Send a request as a server does; return its status, or what was raised."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"idempotency-key", key.encode())]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    try:
        await app(scope, receive, send)
    except LookupError as error:
        return type(error)
    return sent[0]["status"]


async def first(app: App) -> object:
    return await ask(app, "/pay", fresh())


async def again(app: App) -> object:
    key = fresh()
    await ask(app, "/pay", key)
    return await ask(app, "/pay", key)


async def another_body(app: App) -> object:
    key = fresh()
    await ask(app, "/pay", key)
    return await ask(app, "/pay", key, b'{"amount": 2}')


async def malformed_key(app: App) -> object:
    return await ask(app, "/pay", "not a key")


async def ambiguous_body(app: App) -> object:
    return await ask(app, "/pay", fresh(), b'{"amount": 1, "amount": 2}')


async def declined(app: App) -> object:
    return await ask(app, "/decline", fresh())


async def rejected(app: App) -> object:
    return await ask(app, "/reject", fresh())


async def failing(app: App) -> object:
    return await ask(app, "/fail", fresh())


Way: TypeAlias = Callable[[App], Awaitable[object]]

WAYS: dict[Way, set[object]] = {
    first: {200},
    again: {200},
    another_body: {422},
    malformed_key: {400},
    ambiguous_body: {400},
    declined: {409},
    rejected: {422, 500},  # From outside it is an answer of Starlette's, who does not know our signals.
    failing: {LookupError},
}


@pytest.mark.parametrize("protect", [by_rules, by_decorator])
@pytest.mark.parametrize("way", WAYS)
def test_no_request_leaves_anything_for_the_garbage_collector(protect: Callable[[AsyncNebis], App], way: Way) -> None:
    async def main() -> int:
        async with AsyncNebis("memory://") as nebis:
            app = protect(nebis)
            assert await way(app) in WAYS[way]
            await asyncio.sleep(0)
            gc.collect()
            gc.disable()
            try:
                for _ in range(REQUESTS):
                    await way(app)
                await asyncio.sleep(0)
                return gc.collect()
            finally:
                gc.enable()

    assert asyncio.run(main()) < REQUESTS  # Not even one for each; the interpreter's own are few.
