"""Litestar: a decorator on the handler, and a plugin for the application."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, TypeVar, Unpack, cast

from nebis.aio import AsyncNebis, AsyncOperation
from nebis.core.codec import annotations_of
from nebis.core.record import EffectsMode
from nebis.core.strictjson import parse
from nebis.extras import needed
from nebis.http.exchange import Exchange
from nebis.http.wire import Wire
from nebis.integrations.asgi import PASSAGE, Passage, guard, lifespan
from nebis.integrations.asgi_request import (
    claimed,
    counted,
    executed,
    given_tenant,
    headers_of,
    incoming,
    issue_token,
    passage_of,
    read_status,
    telling,
)
from nebis.integrations.bound import Bound, BoundOptions, bound
from nebis.integrations.callee import ATTEMPT, Callee, outcome_of, require_innermost
from nebis.integrations.contract import ContractPage
from nebis.integrations.openapi import description, parameter, replayed, responses
from nebis.integrations.protection import SAFE_METHODS, THE_BODY, Admission, Tenant
from nebis.integrations.routes import RouteOptions, protection
from nebis.integrations.tokens import checked_lifetime
from nebis.sync import Nebis, Operation

with needed("litestar"):
    from litestar import Request, Response, params
    from litestar.config.app import AppConfig
    from litestar.enums import RequestEncodingType, ScopeType
    from litestar.handlers import HTTPRouteHandler
    from litestar.middleware import ASGIMiddleware
    from litestar.openapi.spec import Operation as OpenAPIOperation
    from litestar.plugins import InitPlugin, ReceiveRoutePlugin
    from litestar.routes import BaseRoute, HTTPRoute
    from litestar.serialization import encode_json

__all__ = ["NebisPlugin", "bind", "idempotency_contract", "idempotency_tokens", "idempotent", "operation_status"]

F = TypeVar("F", bound=Callable[..., Any])
_HIDDEN = "nebis_key"
_REQUEST = "request"


class NebisPlugin(InitPlugin, ReceiveRoutePlugin):
    """The part that goes around the routes, and keeps the store open while the application runs."""

    def __init__(self, nebis: AsyncNebis | Nebis) -> None:
        self._nebis = nebis

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Install the middleware, innermost among the application's own, and the lifespan."""
        app_config.middleware = [*app_config.middleware, _Around()]
        app_config.after_exception = [*app_config.after_exception, _failed_after]
        app_config.lifespan = [*app_config.lifespan, lifespan(self._nebis)]
        return app_config

    def receive_route(self, route: BaseRoute) -> None:
        """Document what a protected handler may answer."""
        for handler in route.route_handlers if isinstance(route, HTTPRoute) else ():
            admission = _admission(handler)
            if admission is not None:
                handler.operation_class = _documenting(handler.operation_class, admission)


def _documenting(kind: type[OpenAPIOperation], admission: Admission) -> type[OpenAPIOperation]:
    """Make the class of one documented operation, which adds to itself what Litestar does not know."""

    @dataclass
    class Documented(kind):  # type: ignore[valid-type, misc]  # Whatever class the handler was given.
        def __post_init__(self) -> None:
            if hasattr(kind, "__post_init__"):
                kind.__post_init__(self)
            _document(self, admission)

    return Documented


def _document(operation: Any, admission: Admission) -> None:
    """Add what is known of a route. Litestar renders plain dictionaries as they are, beside its own values."""
    operation.description = description(admission, operation.description)
    header = parameter(admission)
    if header is not None:
        given = [one for one in operation.parameters or () if one.name != header["name"]]
        operation.parameters = [*given, header]
    known = {}
    for status, response in (operation.responses or {}).items():
        if status.startswith("2"):
            response.headers = {**replayed(admission), **(response.headers or {})}
            status = str(admission.status) if isinstance(admission, Bound) else status  # noqa: PLW2901
        known[status] = response
    for status, problem in responses(admission).items():
        if status in known:
            known[status].content = {**problem["content"], **(known[status].content or {})}
        else:
            known[status] = problem
    operation.responses = known


class _Around(ASGIMiddleware):
    """Runs a protected route in a task of our own."""

    scopes = (ScopeType.HTTP,)

    async def handle(self, scope: Any, receive: Any, send: Any, next_app: Any) -> None:
        admission = _admission(scope["route_handler"])
        if admission is None or scope["method"] in SAFE_METHODS:
            await next_app(scope, receive, send)
            return
        # The built-in compression sits inside of us: we would store what one caller's client can unpack (F088).
        scope["headers"] = [pair for pair in scope["headers"] if pair[0].lower() != b"accept-encoding"]
        await guard(next_app, scope, receive, send, admission)


async def _failed_after(_error: Exception, scope: Any) -> None:
    """Notice what fails after a handler returned: the answer to that is not the handler's own."""
    passage = scope.get(PASSAGE)
    if isinstance(passage, Passage):
        passage.is_own = False


def idempotent(
    nebis: AsyncNebis | Nebis,
    name: str,
    *,
    effects: EffectsMode | None = None,
    tenant: Tenant | None = None,
    authorize: Callable[[Request[Any, Any, Any]], Any] | None = None,
    **options: Unpack[RouteOptions],
) -> Callable[[F], F]:
    """Let a handler run once per key, and answer with what it answered first.

    Guards, dependencies and validation have run before. `tenant` and `authorize` get the request on every call, before
    anything is looked up, and raise an `HTTPException` for callers who may not. The command is the handler's `data`. A
    handler that has a parameter `attempt` gets its attempt.
    """
    protected = protection(nebis, name, effects=effects, tenant=tenant, options=options)

    def decorate(function: F) -> F:
        require_innermost(function, name, authorize)
        callee = Callee(function, nebis, in_thread=asyncio.to_thread)
        takes_request = _REQUEST in inspect.signature(function).parameters

        async def handler(*arguments: Any, **named: Any) -> Any:
            request = _taken(named, takes_request=takes_request)
            if request.method in SAFE_METHODS:
                return await callee(None, *arguments, **named)
            passage = passage_of(cast("Any", request.scope), protected)
            attempt = None
            with telling(passage):
                owner = await _tenant(protected, request)
                if authorize is not None:
                    await outcome_of(authorize, request)
                command = await counted(named["data"]) if "data" in named else THE_BODY
                arrived = await incoming(cast("Any", request.scope), passage, command=command)
                if _is_read_as_json(request.scope["route_handler"]):
                    parse(arrived.body, limit_bytes=protected.body_limit_bytes)
                render = functools.partial(_rendered, cast("HTTPRouteHandler", request.scope["route_handler"]))
                attempt = await claimed(passage, nebis, arrived, owner, render)
            if passage.answer is not None:
                return Response(content=None)
            try:
                answer = await callee(attempt, *arguments, **named)
            except Exception as error:
                passage.error = error
                raise
            passage.is_own = True
            return response_of(answer) if isinstance(answer, Exchange) else answer

        return _shown(handler, function, protected, takes_request=takes_request)

    return decorate


def bind(
    operation: AsyncOperation[Any, Any] | Operation[Any, Any],
    *,
    tenant: Tenant | None = None,
    authorize: Callable[[Request[Any, Any, Any]], Any] | None = None,
    **options: Unpack[BoundOptions],
) -> Callable[[F], F]:
    """Let a route call an operation: the handler below returns its command, the answer is made of its result."""
    route = bound(operation.declaration, tenant=tenant, **options)

    def decorate(function: F) -> F:
        takes_request = _REQUEST in inspect.signature(function).parameters

        async def handler(*arguments: Any, **named: Any) -> Any:
            request = _taken(named, takes_request=takes_request)
            passage = passage_of(cast("Any", request.scope), route)
            with telling(passage):
                owner = await _tenant(route, request)
                if authorize is not None:
                    await outcome_of(authorize, request)
                command = await outcome_of(function, *arguments, **named)
                arrived = await incoming(cast("Any", request.scope), passage, command=command)
                passage.answer = await executed(route, operation, arrived, owner)
            return Response(content=None)

        shown = _shown(handler, function, route, takes_request=takes_request)
        # The handler's own result is the command; what is answered, and documented, is the operation's.
        answer = annotations_of(operation.handler)["return"]
        shown.__annotations__["return"] = answer
        shown.__signature__ = inspect.signature(shown).replace(return_annotation=answer)  # type: ignore[attr-defined]
        return shown

    return decorate


def operation_status(
    nebis: AsyncNebis | Nebis, *, tenant: Callable[[Request[Any, Any, Any]], Any], wire: Wire | None = None
) -> Callable[..., Coroutine[Any, Any, Response[bytes]]]:
    """Make the handler of `GET /operations/{id:str}`: the status of an operation, for its own tenant only."""

    async def handler(request: Request[Any, Any, Any]) -> Response[bytes]:
        exchange = await read_status(nebis, str(request.path_params["id"]), await outcome_of(tenant, request), wire)
        return response_of(exchange)

    return handler


def idempotency_tokens(
    nebis: AsyncNebis | Nebis,
    *,
    tenant: Callable[[Request[Any, Any, Any]], Any],
    lifetime: timedelta | None = None,
    wire: Wire | None = None,
) -> Callable[..., Coroutine[Any, Any, Response[bytes]]]:
    """Make the handler of `POST /idempotency-tokens`: a key for an operation with `issued_keys=True`."""
    lifetime = checked_lifetime(lifetime)

    async def handler(request: Request[Any, Any, Any]) -> Response[bytes]:
        owner, headers = await outcome_of(tenant, request), headers_of(cast("Any", request.scope))
        body = await request.body()
        return response_of(await issue_token(nebis, body, headers, owner, lifetime=lifetime, wire=wire))

    return handler


def idempotency_contract() -> Callable[..., Coroutine[Any, Any, Response[bytes]]]:
    """Make the handler of `GET /idempotency`: what this application promises about its routes, for anybody."""
    contract = ContractPage()

    async def handler(request: Request[Any, Any, Any]) -> Response[bytes]:
        return response_of(contract.answer(request.app, request.headers.get("accept")))

    return handler


def response_of(exchange: Exchange) -> Response[bytes]:
    """Make a response that is sent exactly as the answer says."""
    headers = dict(exchange.headers)
    media_type = headers.pop("content-type", "application/octet-stream")
    if media_type.startswith("text/"):
        media_type = media_type.partition(";")[0]  # Litestar adds the charset itself, which is always UTF-8.
    return Response(content=exchange.body, status_code=exchange.status, headers=headers, media_type=media_type)


def _shown(handler: Callable[..., Any], function: F, admission: Admission, *, takes_request: bool) -> F:
    """Show Litestar the function's own parameters, the request, and the header that carries the key."""
    functools.update_wrapper(handler, function)
    signature = inspect.signature(function)
    kept = [one for name, one in signature.parameters.items() if name != ATTEMPT]
    annotations = {name: value for name, value in function.__annotations__.items() if name != ATTEMPT}
    if not takes_request:
        kept.append(inspect.Parameter(_REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Request))
        annotations[_REQUEST] = Request
    described = parameter(admission)
    if described is not None:
        hint = Annotated[str | None, _header(described["name"], described["description"])]
        kept.append(inspect.Parameter(_HIDDEN, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=None))
        annotations[_HIDDEN] = hint
    handler.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # What Litestar reads.
    handler.__annotations__ = annotations
    handler.__nebis__ = admission  # type: ignore[attr-defined]  # What the plugin looks for.
    return cast("F", handler)


def _is_read_as_json(handler: Any) -> bool:
    """Tell whether Litestar parses the body as JSON whatever type it says it has, which we then have to do as well."""
    field = handler.parsed_data_field
    media_type = None if field is None else getattr(field.kwarg_definition, "media_type", RequestEncodingType.JSON)
    return media_type == RequestEncodingType.JSON


def _header(name: str, description: str) -> Any:
    """Describe a header in the way of the installed release; the older way warns in newer ones."""
    kind = getattr(params, "HeaderParameter", None)
    if kind is not None:
        return kind(name=name, required=False, description=description)
    return params.Parameter(header=name, required=False, description=description)


def _taken(named: dict[str, Any], *, takes_request: bool) -> Request[Any, Any, Any]:
    """Take what is not the handler's own out of its arguments."""
    named.pop(_HIDDEN, None)
    request: Request[Any, Any, Any] = named[_REQUEST] if takes_request else named.pop(_REQUEST)
    return request


def _admission(handler: Any) -> Admission | None:
    if not isinstance(handler, HTTPRouteHandler):
        return None
    function = handler.fn
    while isinstance(function, functools.partial):
        function = function.func
    found = getattr(function, "__nebis__", None)
    return found if isinstance(found, Admission) else None


async def _tenant(admission: Admission, request: Request[Any, Any, Any]) -> Any:
    given = given_tenant(cast("Any", request.scope), admission)
    return given if given is not None else await outcome_of(cast("Callable[..., Any]", admission.tenant), request)


def _rendered(handler: HTTPRouteHandler, value: Any) -> Exchange:
    """Make a stored answer of what a handler gives to `tx.finish`: a response, or what would become one."""
    if not isinstance(value, Response):
        headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
        return Exchange(status=handler.status_code, headers=headers, body=encode_json(value))
    media_type = value.media_type or "application/json"
    body = value.render(value.content, str(media_type))
    headers = (("content-type", str(media_type)), *value.headers.items())
    return Exchange(status=value.status_code or handler.status_code, headers=headers, body=body)
