"""Django: a decorator directly on the view, below whatever authenticates and validates."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, Unpack, cast

from nebis.aio import AsyncNebis, AsyncOperation
from nebis.core.record import EffectsMode
from nebis.errors import ConfigError, NebisError
from nebis.extras import needed
from nebis.http.wire import Wire
from nebis.integrations import asgi_request, blocking
from nebis.integrations.blocking import Held, Live
from nebis.integrations.bound import Bound, BoundOptions, bound
from nebis.integrations.callee import ATTEMPT, refuse_generators
from nebis.integrations.contract import ContractPage
from nebis.integrations.protection import SAFE_METHODS, Admission, Incoming, Protection, Tenant
from nebis.integrations.routes import RouteOptions, protection
from nebis.integrations.tokens import checked_lifetime
from nebis.sync import Nebis, Operation

with needed("django"):
    from asgiref.sync import iscoroutinefunction, sync_to_async
    from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
    from django.core.handlers.exception import response_for_exception
    from django.core.signals import got_request_exception
    from django.http import Http404
    from django.http.multipartparser import MultiPartParserError
    from django.utils.decorators import method_decorator
    from django.views.decorators.csrf import csrf_exempt
    from django.views.decorators.http import require_POST, require_safe

    from nebis.integrations.django import awaiting
    from nebis.integrations.django.announcing import announce_project, stand_in
    from nebis.integrations.django.awaiting import AsyncHeld, called, outliving, require_loop
    from nebis.integrations.django.placement import OwnTransactions, require_alone, require_place
    from nebis.integrations.django.requests import headers_of, incoming, request_of
    from nebis.integrations.django.responses import (
        as_response,
        exchange_of,
        exchange_of_async,
        rendered,
        response_of,
    )

__all__ = ["bind", "idempotency_contract", "idempotency_tokens", "idempotent", "operation_status"]

log = logging.getLogger("nebis")

F = TypeVar("F", bound=Callable[..., Any])
# What Django itself turns into a 4xx; whatever else a view raises says that it failed.
_REFUSALS = (Http404, PermissionDenied, BadRequest, SuspiciousOperation, MultiPartParserError)


def idempotent(
    nebis: AsyncNebis | Nebis,
    name: str,
    *,
    effects: EffectsMode | None = None,
    tenant: Tenant | None = None,
    authorize: Callable[[Any], Any] | None = None,
    command: Callable[[Any], Any] | None = None,
    **options: Unpack[RouteOptions],
) -> Callable[[F], F]:
    """Let a view run once per key, and answer with what it answered first.

    It stands directly on a function or a method such as `post`; a plain one is protected by `Nebis`, a coroutine
    function by `AsyncNebis`. `tenant` and `authorize` get the request on every call, before anything is looked up, and
    raise `PermissionDenied` for callers who may not; a tenant of None is answered with 401. `command` validates the
    request and returns what is asked for: what it refuses leaves the key unused. Without it the body counts. A view
    that has a parameter `attempt` gets its attempt.
    """
    protected = protection(nebis, name, effects=effects, tenant=tenant, options=options)
    asking = Asking(protected, authorize, command)

    def decorate(function: F) -> F:
        refuse_generators(function)
        require_place(function, name)
        if function.__module__ == method_decorator.__module__:
            # A stand-in, from which `method_decorator` takes the marks; the method itself comes with each call.
            return shown(function, function, protected)
        if iscoroutinefunction(function):
            if not isinstance(nebis, AsyncNebis):
                raise ConfigError([f"endpoint {name!r} is an async view; protect it with AsyncNebis"])
            return shown(_awaited(function, nebis, asking), function, protected)
        if not isinstance(nebis, Nebis):
            raise ConfigError([f"endpoint {name!r} is a plain view; protect it with Nebis in place of AsyncNebis"])
        transactions = OwnTransactions(getattr(function, "_non_atomic_requests", ()))
        return transactions.mark(shown(_blocking(function, nebis, asking, transactions), function, protected))

    return decorate


def bind(
    operation: AsyncOperation[Any, Any] | Operation[Any, Any],
    *,
    tenant: Tenant | None = None,
    authorize: Callable[[Any], Any] | None = None,
    **options: Unpack[BoundOptions],
) -> Callable[[F], F]:
    """Let a view call an operation: the function below returns its command, the answer is made of its result."""
    route = bound(operation.declaration, tenant=tenant, **options)
    asking = Asking(route, authorize, None)

    def decorate(function: F) -> F:
        require_place(function, route.name)
        if iscoroutinefunction(function) != isinstance(operation, AsyncOperation):
            raise ConfigError([f"route of {route.name!r}: an operation and the view that calls it are of one kind"])
        if isinstance(operation, AsyncOperation):
            return shown(_awaited_call(function, operation, asking, route), function, route)
        # The operation has transactions of its own; one around it would be committed too late.
        return OwnTransactions().mark(shown(_blocking_call(function, operation, asking, route), function, route))

    return decorate


def operation_status(
    nebis: AsyncNebis | Nebis, *, tenant: Callable[[Any], Any], wire: Wire | None = None
) -> Callable[..., Any]:
    """Make the view of `GET /operations/<id>`: the status of an operation, for its own tenant only."""

    async def awaited(request: Any, id: str) -> Any:  # noqa: A002 - the word in the path.
        return response_of(await asgi_request.read_status(nebis, id, await called(tenant, request), wire))

    def blocked(request: Any, id: str) -> Any:  # noqa: A002
        assert isinstance(nebis, Nebis)
        return response_of(blocking.read_status(nebis, id, tenant(request), wire))

    view: Callable[..., Any] = require_safe(awaited if isinstance(nebis, AsyncNebis) else blocked)
    return view


def idempotency_tokens(
    nebis: AsyncNebis | Nebis,
    *,
    tenant: Callable[[Any], Any],
    lifetime: timedelta | None = None,
    wire: Wire | None = None,
) -> Callable[..., Any]:
    """Make the view of `POST /idempotency-tokens`: a key for an operation with `issued_keys=True`.

    Whoever may ask is up to `tenant`, not to a token against forged forms: an answer is of no use to other sites.
    """
    lifetime = checked_lifetime(lifetime)
    chosen: Any = {"lifetime": lifetime, "wire": wire}

    async def awaited(request: Any) -> Any:
        owner, headers = await called(tenant, request), headers_of(request)
        return response_of(await asgi_request.issue_token(nebis, request.body, headers, owner, **chosen))

    def blocked(request: Any) -> Any:
        assert isinstance(nebis, Nebis)
        owner, headers = tenant(request), headers_of(request)
        return response_of(blocking.issue_token(nebis, request.body, headers, owner, **chosen))

    view: Callable[..., Any] = csrf_exempt(require_POST(awaited if isinstance(nebis, AsyncNebis) else blocked))
    return view


def idempotency_contract() -> Callable[..., Any]:
    """Make the view of `GET /idempotency`: what this project promises about its routes, for anybody."""
    page = ContractPage()
    project = stand_in()

    def idempotency(request: Any) -> Any:
        return response_of(page.answer(project, request.headers.get("Accept")))

    view: Callable[..., Any] = require_safe(idempotency)
    return view


class Asking:
    """Who asks, and for what: found on every request, before anything is looked up."""

    def __init__(
        self, admission: Admission, authorize: Callable[[Any], Any] | None, command: Callable[[Any], Any] | None
    ) -> None:
        self.admission = admission
        self._authorize = authorize
        self._command = command

    def blocking(self, request: Any) -> tuple[object, Incoming]:
        """Return the tenant and the request; raise a `NebisError`, or whatever the application refuses with."""
        announce_project(request)
        require_alone(self.admission.name)
        tenant = self._given(request)
        tenant = cast("Callable[..., Any]", self.admission.tenant)(request) if tenant is None else tenant
        if self._authorize is not None:
            self._authorize(request)
        arrived = incoming(request, self.admission)
        return tenant, arrived if self._command is None else replace(arrived, command=self._command(request))

    async def awaited(self, request: Any) -> tuple[object, Incoming]:
        """Do so on a loop; functions that are not coroutine functions run where the ORM may block."""
        announce_project(request)
        tenant = self._given(request)
        tenant = await called(cast("Callable[..., Any]", self.admission.tenant), request) if tenant is None else tenant
        if self._authorize is not None:
            await called(self._authorize, request)
        arrived = incoming(request, self.admission)
        if self._command is not None:
            arrived = replace(arrived, command=await called(self._command, request))
        return tenant, arrived

    def _given(self, request: Any) -> str | None:
        return self.admission.given_tenant(request.META.get("REMOTE_ADDR"), headers_of(request))


def _blocking(
    function: Callable[..., Any], nebis: Nebis, asking: Asking, transactions: OwnTransactions
) -> Callable[..., Any]:
    protected = cast("Protection", asking.admission)
    takes_attempt = _takes_attempt(function)

    def view(*arguments: Any, **named: Any) -> Any:
        request = request_of(arguments)

        def call(held: Held | None) -> Any:
            given = named | {ATTEMPT: held and held.attempt} if takes_attempt else named
            return function(*arguments, **given)

        held: Any = None
        if request.method not in SAFE_METHODS:
            try:
                tenant, arrived = asking.blocking(request)
                held = blocking.claim(protected, nebis, arrived, tenant, rendered)
            except NebisError as error:
                return response_of(protected.refused(error))
        if held is None:
            with transactions.opened(request):
                return call(None)
        return answered(request, protected, held, call, transactions)

    return view


def answered(
    request: Any, protected: Protection, held: Any, call: Callable[[Held], Any], transactions: OwnTransactions
) -> Any:
    """Run a view that holds its key, if it does, and return the response that says what was stored."""
    if not isinstance(held, Held):
        return response_of(held)
    replaced = None

    def endpoint() -> Live:
        nonlocal replaced
        limit_bytes = protected.storage.limit_bytes
        try:
            with transactions.opened(request):
                replaced = as_response(call(held))
                return exchange_of(replaced, limit_bytes), None
        except _REFUSALS as refusal:
            return exchange_of(response_for_exception(request, refusal), limit_bytes), refusal

    exchange = held.run(endpoint, unseen=functools.partial(report, request, protected))
    return response_of(exchange, replaced)


def _awaited(function: Callable[..., Any], nebis: AsyncNebis, asking: Asking) -> Callable[..., Any]:
    protected = cast("Protection", asking.admission)
    takes_attempt = _takes_attempt(function)

    async def view(*arguments: Any, **named: Any) -> Any:
        request = request_of(arguments)

        async def call(held: AsyncHeld | None) -> Any:
            given = named | {ATTEMPT: held and held.attempt} if takes_attempt else named
            return await function(*arguments, **given)

        async def claimed() -> Any:
            try:
                tenant, arrived = await asking.awaited(request)
                held = await awaiting.claim(protected, nebis, arrived, tenant, rendered)
            except NebisError as error:
                return response_of(protected.refused(error))
            return await call(None) if held is None else await answered_async(request, protected, held, call)

        if request.method in SAFE_METHODS:
            return await call(None)
        require_loop(request, protected.name)
        return await outliving(nebis, claimed())

    return view


async def answered_async(request: Any, protected: Protection, held: Any, call: Callable[[AsyncHeld], Any]) -> Any:
    """Do as `answered` does, on a loop."""
    if not isinstance(held, AsyncHeld):
        return response_of(held)
    replaced = None

    async def endpoint() -> Live:
        nonlocal replaced
        limit_bytes = protected.storage.limit_bytes
        try:
            replaced = as_response(await call(held))
            return await exchange_of_async(replaced, limit_bytes), None
        except _REFUSALS as refusal:
            response = await sync_to_async(response_for_exception)(request, refusal)
            return await exchange_of_async(response, limit_bytes), refusal

    exchange = await held.run(endpoint, unseen=functools.partial(report, request, protected))
    return response_of(exchange, replaced)


def _blocking_call(
    function: Callable[..., Any], operation: Operation[Any, Any], asking: Asking, route: Bound
) -> Callable[..., Any]:
    def view(*arguments: Any, **named: Any) -> Any:
        request = request_of(arguments)
        try:
            tenant, arrived = asking.blocking(request)
            arrived = replace(arrived, command=function(*arguments, **named))
            return response_of(blocking.executed(route, operation, arrived, tenant))
        except NebisError as error:
            return response_of(route.refused(error))

    return view


def _awaited_call(
    function: Callable[..., Any], operation: AsyncOperation[Any, Any], asking: Asking, route: Bound
) -> Callable[..., Any]:
    async def view(*arguments: Any, **named: Any) -> Any:
        request = request_of(arguments)

        async def executed() -> Any:
            try:
                tenant, arrived = await asking.awaited(request)
                arrived = replace(arrived, command=await function(*arguments, **named))
                return response_of(await asgi_request.executed(route, operation, arrived, tenant))
            except NebisError as error:
                return response_of(route.refused(error))

        require_loop(request, route.name)
        return await outliving(None, executed())

    return view


def shown(view: Callable[..., Any], function: F, admission: Admission) -> F:
    """Show Django the function's own names and marks, and whoever lists protected routes how it is protected."""
    if view is not function:
        functools.update_wrapper(view, function)
    view.__nebis__ = admission  # type: ignore[attr-defined]
    return cast("F", view)


def report(request: Any, protected: Protection, error: Exception) -> None:
    """Tell whoever watches for errors of one in whose place a problem is told."""
    log.error("%s raised %s", protected.name, type(error).__name__, exc_info=error, extra={"request": request})
    got_request_exception.send(sender=None, request=request)


def _takes_attempt(function: Callable[..., Any]) -> bool:
    return ATTEMPT in inspect.signature(function).parameters
