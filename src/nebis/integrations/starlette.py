"""Starlette: a decorator on the endpoint, and a middleware around all routes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, Unpack, cast

from nebis.aio import AsyncNebis, AsyncOperation
from nebis.core.record import EffectsMode
from nebis.errors import ResultUnstorable
from nebis.extras import needed
from nebis.http.exchange import Exchange
from nebis.http.headers import decoded
from nebis.http.wire import Wire
from nebis.integrations.asgi import App, Passage, Receive, Scope, Send, guard, lifespan
from nebis.integrations.asgi_request import (
    claimed,
    executed,
    given_tenant,
    incoming,
    issue_token,
    passage_of,
    read_status,
    telling,
)
from nebis.integrations.bound import BoundOptions, bound
from nebis.integrations.callee import Callee, outcome_of, require_innermost
from nebis.integrations.contract import ContractPage
from nebis.integrations.protection import SAFE_METHODS, THE_BODY, Admission, Tenant
from nebis.integrations.routes import RouteOptions, protection
from nebis.integrations.tokens import checked_lifetime
from nebis.sync import Nebis, Operation

with needed("starlette"):
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response

__all__ = [
    "NebisMiddleware",
    "bind",
    "idempotency_contract",
    "idempotency_tokens",
    "idempotent",
    "lifespan",
    "operation_status",
]

F = TypeVar("F", bound=Callable[..., Any])


class NebisMiddleware:
    """The part that goes around the routes. It must be the innermost middleware: add it before all others."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the route in a task of our own; a request that cannot change anything passes by."""
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self.app(scope, receive, send)
        else:
            await guard(self.app, scope, receive, send)


def idempotent(
    nebis: AsyncNebis | Nebis,
    name: str,
    *,
    effects: EffectsMode | None = None,
    tenant: Tenant | None = None,
    authorize: Callable[[Request], Any] | None = None,
    command: Callable[[Request], Any] | None = None,
    **options: Unpack[RouteOptions],
) -> Callable[[F], F]:
    """Let an endpoint run once per key, and answer with what it answered first.

    `tenant` and `authorize` get the request on every call, before anything is looked up, and raise an `HTTPException`
    for callers who may not. `command` validates the request and returns what is asked for: what it refuses leaves the
    key unused. Without it the body counts. An endpoint that has a parameter `attempt` gets its attempt.
    """
    protected = protection(nebis, name, effects=effects, tenant=tenant, options=options)

    def decorate(function: F) -> F:
        require_innermost(function, name, authorize)
        callee = Callee(function, nebis, in_thread=run_in_threadpool)

        @functools.wraps(function)
        async def endpoint(*arguments: Any, **named: Any) -> Any:
            request = _request(arguments)
            if request.method in SAFE_METHODS:
                return await callee(None, *arguments, **named)
            passage = passage_of(request.scope, protected)
            attempt = None
            with telling(passage):
                owner = await _tenant(protected, request)
                if authorize is not None:
                    await outcome_of(authorize, request)
                asked = THE_BODY if command is None else await outcome_of(command, request)
                arrived = await incoming(request.scope, passage, command=asked)
                attempt = await claimed(passage, nebis, arrived, owner, rendered)
            if passage.answer is not None:
                return Response()
            try:
                return _Own(passage, as_response(await callee(attempt, *arguments, **named)))
            except Exception as error:
                passage.error = error
                raise

        endpoint.__nebis__ = protected  # type: ignore[attr-defined]  # For whoever lists protected routes.
        return cast("F", endpoint)

    return decorate


def bind(
    operation: AsyncOperation[Any, Any] | Operation[Any, Any],
    *,
    tenant: Tenant | None = None,
    authorize: Callable[[Request], Any] | None = None,
    **options: Unpack[BoundOptions],
) -> Callable[[F], F]:
    """Let a route call an operation: the endpoint below returns its command, the answer is made of its result."""
    route = bound(operation.declaration, tenant=tenant, **options)

    def decorate(function: F) -> F:
        @functools.wraps(function)
        async def endpoint(*arguments: Any, **named: Any) -> Any:
            request = _request(arguments)
            passage = passage_of(request.scope, route)
            with telling(passage):
                owner = await _tenant(route, request)
                if authorize is not None:
                    await outcome_of(authorize, request)
                command = await outcome_of(function, *arguments, **named)
                arrived = await incoming(request.scope, passage, command=command)
                passage.answer = await executed(route, operation, arrived, owner)
            return Response()

        endpoint.__nebis__ = route  # type: ignore[attr-defined]  # For whoever lists protected routes.
        return cast("F", endpoint)

    return decorate


def operation_status(
    nebis: AsyncNebis | Nebis, *, tenant: Callable[[Request], Any], wire: Wire | None = None
) -> Callable[[Request], Any]:
    """Make the endpoint of `GET /operations/{id}`: the status of an operation, for its own tenant only."""

    async def endpoint(request: Request) -> Response:
        owner = await outcome_of(tenant, request)
        return response_of(await read_status(nebis, request.path_params["id"], owner, wire))

    return endpoint


def idempotency_tokens(
    nebis: AsyncNebis | Nebis,
    *,
    tenant: Callable[[Request], Any],
    lifetime: timedelta | None = None,
    wire: Wire | None = None,
) -> Callable[[Request], Any]:
    """Make the endpoint of `POST /idempotency-tokens`: a key for an operation with `issued_keys=True`."""
    lifetime = checked_lifetime(lifetime)

    async def endpoint(request: Request) -> Response:
        owner, headers = await outcome_of(tenant, request), decoded(request.headers.raw)
        body = await request.body()
        return response_of(await issue_token(nebis, body, headers, owner, lifetime=lifetime, wire=wire))

    return endpoint


def idempotency_contract() -> Callable[[Request], Any]:
    """Make the endpoint of `GET /idempotency`: what this application promises about its routes, for anybody."""
    contract = ContractPage()

    async def endpoint(request: Request) -> Response:
        return response_of(contract.answer(request.app, request.headers.get("accept")))

    return endpoint


def rendered(value: Any) -> Exchange:
    """Make a stored answer of what an endpoint gives to `tx.finish`: a response, or plain data."""
    response = value if isinstance(value, Response) else JSONResponse(value)
    body = getattr(response, "body", None)
    if not isinstance(body, bytes):
        raise ResultUnstorable("a response that is streamed has no bytes yet; finish with one that has")
    return Exchange(status=response.status_code, headers=decoded(response.raw_headers), body=body)


class _Own:
    """An endpoint's own response: whatever is sent in its place was made by something that failed after it."""

    def __init__(self, passage: Passage, response: Any) -> None:
        self._passage = passage
        self._response = response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._passage.is_own = True
        await self._response(scope, receive, send)


def _request(arguments: tuple[Any, ...]) -> Request:
    """Find the request: the only argument of a function, the second of a method."""
    return next(argument for argument in arguments if isinstance(argument, Request))


async def _tenant(admission: Admission, request: Request) -> Any:
    given = given_tenant(request.scope, admission)
    return given if given is not None else await outcome_of(cast("Callable[..., Any]", admission.tenant), request)


def as_response(value: Any) -> Any:
    """Return what an endpoint returned; an answer that it has from `attempt.original` as a response."""
    return response_of(value) if isinstance(value, Exchange) else value


def response_of(exchange: Exchange) -> Response:
    """Make a response that is sent exactly as the answer says."""
    response = Response(content=exchange.body, status_code=exchange.status)
    response.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in exchange.framed()]
    return response
