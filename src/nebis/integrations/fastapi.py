"""FastAPI: a decorator on the endpoint, and a class for its routes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Annotated, Any, TypeVar, Unpack, cast

from nebis.aio import AsyncNebis, AsyncOperation
from nebis.core.codec import annotations_of
from nebis.core.record import EffectsMode
from nebis.extras import needed
from nebis.http.exchange import Exchange
from nebis.http.wire import Wire
from nebis.integrations.asgi import PASSAGE, Passage, Receive, Scope, Send, guard, lifespan
from nebis.integrations.asgi_request import (
    claimed,
    counted,
    executed,
    headers_of,
    incoming,
    issue_token,
    passage_of,
    read_status,
    telling,
)
from nebis.integrations.bound import Bound, BoundOptions, bound
from nebis.integrations.callee import ATTEMPT, Callee, require_innermost
from nebis.integrations.openapi import described, description
from nebis.integrations.protection import SAFE_METHODS, THE_BODY, Admission, Incoming, Tenant
from nebis.integrations.routes import RouteOptions, protection
from nebis.integrations.tokens import checked_lifetime
from nebis.sync import Nebis, Operation

with needed("fastapi"):
    from fastapi import Depends, Request, Response, routing
    from fastapi.dependencies.models import Dependant
    from fastapi.encoders import jsonable_encoder
    from fastapi.routing import APIRoute
    from pydantic import TypeAdapter
    from starlette.concurrency import run_in_threadpool

    from nebis.integrations.starlette import as_response, idempotency_contract, rendered, response_of

__all__ = [
    "NebisRoute",
    "bind",
    "idempotency_contract",
    "idempotency_tokens",
    "idempotent",
    "late_exits",
    "lifespan",
    "operation_status",
]

F = TypeVar("F", bound=Callable[..., Any])
_HIDDEN = "nebis_hidden"
_AUTHORIZE = "nebis_authorize"
_BODY_NAMES = "nebis.body_names"
"""Where a route notes which parameters of its endpoint are the whole body, if they are."""


def idempotent(
    nebis: AsyncNebis | Nebis,
    name: str,
    *,
    effects: EffectsMode | None = None,
    tenant: Tenant | None = None,
    authorize: Callable[..., Any] | None = None,
    **options: Unpack[RouteOptions],
) -> Callable[[F], F]:
    """Let an endpoint run once per key, and answer with what it answered first.

    `tenant` and `authorize` are dependencies like any other: they run on every call, before anything is looked up, and
    raise an `HTTPException` for callers who may not. The command is what the endpoint's own parameters say, once they
    are validated. An endpoint that has a parameter `attempt` gets its attempt.
    """
    protected = protection(nebis, name, effects=effects, tenant=tenant, options=options)

    def decorate(function: F) -> F:
        require_innermost(function, name, authorize)
        callee = Callee(function, nebis, in_thread=run_in_threadpool)

        async def endpoint(**named: Any) -> Any:
            request, owner = _taken(named)
            if request.method in SAFE_METHODS:
                return await callee(None, **named)
            passage = passage_of(request.scope, protected)
            attempt = None
            with telling(passage):
                arrived = await incoming(request.scope, passage, command=await _command(request, named))
                render = functools.partial(_rendered, request.scope["route"])
                attempt = await claimed(passage, nebis, arrived, _owner(protected, owner, arrived), render)
            if passage.answer is not None:
                return Response()
            try:
                return as_response(await callee(attempt, **named))
            except Exception as error:
                # Raised on: dependencies have to roll back what the endpoint left.
                passage.error = error
                raise

        return _shown(endpoint, function, protected, authorize)

    return decorate


def bind(
    operation: AsyncOperation[Any, Any] | Operation[Any, Any],
    *,
    tenant: Tenant | None = None,
    authorize: Callable[..., Any] | None = None,
    **options: Unpack[BoundOptions],
) -> Callable[[F], F]:
    """Let a route call an operation: the endpoint below returns its command, the answer is made of its result."""
    route = bound(operation.declaration, tenant=tenant, **options)

    def decorate(function: F) -> F:
        async def endpoint(**named: Any) -> Any:
            request, owner = _taken(named)
            passage = passage_of(request.scope, route)
            command = await (
                function(**named) if inspect.iscoroutinefunction(function) else run_in_threadpool(function, **named)
            )
            with telling(passage):
                arrived = await incoming(request.scope, passage, command=command)
                passage.answer = await executed(route, operation, arrived, _owner(route, owner, arrived))
            return Response()

        shown = _shown(endpoint, function, route, authorize)
        signature = inspect.signature(shown).replace(return_annotation=_documented(operation))
        shown.__signature__ = signature  # type: ignore[attr-defined]  # What FastAPI reads.
        return shown

    return decorate


def _documented(operation: AsyncOperation[Any, Any] | Operation[Any, Any]) -> Any:
    """Return the type that an operation answers with, if FastAPI can describe it: the endpoint's own is the command."""
    answer: Any = annotations_of(operation.handler)["return"]
    try:
        TypeAdapter(answer).json_schema()
    except Exception:  # noqa: BLE001 - whatever a foreign type does to a schema, the route has to work.
        return inspect.Signature.empty
    return answer


class NebisRoute(APIRoute):
    """A route that stores what it answers before anything is sent; a route without `idempotent` is a plain one."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        protected = getattr(endpoint, "__nebis__", None)
        if not isinstance(protected, Admission):
            super().__init__(path, endpoint, **options)
            return
        if isinstance(protected, Bound) and options.get("status_code") is None:
            options["status_code"] = protected.status
        options["responses"], options["openapi_extra"] = described(
            protected,
            options.get("responses"),
            options.get("openapi_extra"),
            status=options.get("status_code") or 200,
        )
        super().__init__(path, endpoint, **options)
        self.description = description(protected, self.description)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Mark what the endpoint itself answers, as against what a failure after it was turned into."""
        handler = super().get_route_handler()
        body_names = _body_names(_effective(self).dependant)

        async def marked(request: Request) -> Response:
            passage = request.scope.get(PASSAGE)
            if not isinstance(passage, Passage):
                return await handler(request)
            request.scope[_BODY_NAMES] = body_names
            response = await handler(request)

            async def own(scope: Scope, receive: Receive, send: Send) -> None:
                passage.is_own = True
                await response(scope, receive, send)

            return cast("Response", own)

        return marked

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the whole route, dependencies included, in a task of our own."""
        protected = getattr(self.endpoint, "__nebis__", None)
        if not isinstance(protected, Admission) or scope["method"] in SAFE_METHODS:
            await super().handle(scope, receive, send)
        else:
            await guard(super().handle, scope, receive, send, protected)


def late_exits(route: APIRoute) -> list[str]:
    """List the dependencies of a route that end after its answer was sent: a commit there comes too late."""
    return [
        getattr(dependant.call, "__qualname__", repr(dependant.call))
        for dependant in _below(route.dependant)
        if (inspect.isgeneratorfunction(dependant.call) or inspect.isasyncgenfunction(dependant.call))
        and getattr(dependant, "scope", None) != "function"
    ]


def operation_status(
    nebis: AsyncNebis | Nebis, *, tenant: Callable[..., Any], wire: Wire | None = None
) -> Callable[..., Coroutine[Any, Any, Response]]:
    """Make the endpoint of `GET /operations/{id}`: the status of an operation, for its own tenant only."""

    async def endpoint(id: str, owner: Any) -> Response:  # noqa: A002 - the word in the path.
        return response_of(await read_status(nebis, id, owner, wire))

    signature = inspect.signature(endpoint)
    owner = signature.parameters["owner"].replace(annotation=Annotated[Any, Depends(tenant)])
    number = signature.parameters["id"].replace(annotation=str)
    endpoint.__signature__ = signature.replace(  # type: ignore[attr-defined]  # What FastAPI reads.
        parameters=[number, owner], return_annotation=inspect.Signature.empty
    )
    return endpoint


def idempotency_tokens(
    nebis: AsyncNebis | Nebis,
    *,
    tenant: Callable[..., Any],
    lifetime: timedelta | None = None,
    wire: Wire | None = None,
) -> Callable[..., Coroutine[Any, Any, Response]]:
    """Make the endpoint of `POST /idempotency-tokens`: a key for an operation with `issued_keys=True`."""
    lifetime = checked_lifetime(lifetime)

    async def endpoint(request: Request, owner: Any) -> Response:
        body, headers = await request.body(), headers_of(request.scope)
        return response_of(await issue_token(nebis, body, headers, owner, lifetime=lifetime, wire=wire))

    signature = inspect.signature(endpoint)
    arrived = signature.parameters["request"].replace(annotation=Request)
    owner = signature.parameters["owner"].replace(annotation=Annotated[Any, Depends(tenant)])
    endpoint.__signature__ = signature.replace(  # type: ignore[attr-defined]  # What FastAPI reads.
        parameters=[arrived, owner], return_annotation=inspect.Signature.empty
    )
    return endpoint


def _shown(endpoint: Callable[..., Any], function: F, admission: Admission, authorize: Callable[..., Any] | None) -> F:
    """Show FastAPI the function's own parameters, and a hidden one that brings the request and the tenant.

    Annotations stay as they are written: evaluating them here would fail for models of a local scope.
    """
    tenant = admission.tenant if callable(admission.tenant) else _told_by_request

    async def hidden(request: Request, owner: Any = Depends(tenant)) -> tuple[Request, Any]:  # noqa: B008 - FastAPI's way.
        return request, owner

    signature = inspect.signature(function)
    kept = [parameter for name, parameter in signature.parameters.items() if name != ATTEMPT]
    extra = [inspect.Parameter(_HIDDEN, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Any, Depends(hidden)])]
    if authorize is not None:
        extra.append(
            inspect.Parameter(_AUTHORIZE, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Any, Depends(authorize)])
        )
    at = next(
        (place for place, parameter in enumerate(kept) if parameter.kind is inspect.Parameter.VAR_KEYWORD), len(kept)
    )
    functools.update_wrapper(endpoint, function)
    endpoint.__signature__ = signature.replace(  # type: ignore[attr-defined]  # What FastAPI reads.
        parameters=[*kept[:at], *extra, *kept[at:]]
    )
    endpoint.__nebis__ = admission  # type: ignore[attr-defined]  # What the route class looks for.
    return cast("F", endpoint)


def _told_by_request() -> None:
    """Stand for a tenant that no dependency has to find."""


def _owner(admission: Admission, found: Any, arrived: Incoming) -> Any:
    return found if found is not None else admission.given_tenant(arrived.peer, arrived.headers)


def _taken(named: dict[str, Any]) -> tuple[Request, Any]:
    """Take what is not the endpoint's own out of its arguments."""
    named.pop(_AUTHORIZE, None)
    request, owner = named.pop(_HIDDEN)
    return request, owner


def _effective(route: APIRoute) -> APIRoute:
    """Return the route as it is being included: a router may bring dependencies of its own to it."""
    variable = getattr(routing, "_effective_route_context_var", None)
    context = None if variable is None else variable.get()
    return context if context is not None and context.original_route is route else route


def _below(dependant: Dependant) -> Iterator[Dependant]:
    for dependency in dependant.dependencies:
        yield dependency
        yield from _below(dependency)


def _body_names(dependant: Dependant) -> frozenset[str] | None:
    """Return which parameters of the endpoint hold the body; None if somebody else reads some of it, too."""
    names = frozenset(field.name for field in dependant.body_params)
    return names if names and not any(below.body_params for below in _below(dependant)) else None


async def _command(request: Request, named: dict[str, Any]) -> object:
    """Return what the endpoint is asked for. The raw body counts where its parameters do not hold all of it."""
    names: frozenset[str] | None = request.scope.get(_BODY_NAMES)
    if names is None:
        return THE_BODY
    parts = {name: await counted(named[name]) for name in sorted(names) if name in named}
    # A single parameter is the body itself, as it is for FastAPI.
    return parts if len(names) > 1 else next(iter(parts.values()), THE_BODY)


def _rendered(route: APIRoute, value: Any) -> Exchange:
    """Make a stored answer of what an endpoint gives to `tx.finish`, as the route would."""
    if isinstance(value, Response):
        return rendered(value)
    status = route.status_code or 200
    if route.response_model is None:
        content = rendered(jsonable_encoder(value)).body
    else:
        adapter: TypeAdapter[Any] = TypeAdapter(route.response_model)
        content = adapter.dump_json(
            adapter.validate_python(value, from_attributes=True),
            include=route.response_model_include,
            exclude=route.response_model_exclude,
            by_alias=route.response_model_by_alias,
            exclude_unset=route.response_model_exclude_unset,
            exclude_defaults=route.response_model_exclude_defaults,
            exclude_none=route.response_model_exclude_none,
        )
    return Exchange(status=status, headers=(("content-type", "application/json"),), body=content)
