"""Django REST framework: a decorator on the handler method, an action or a function of `@api_view`.

Authentication, permissions and throttles have run where it stands. Validation runs inside, after the claim: validators
that look at what exists would refuse an honest replay (R1), and what they refuse is withdrawn.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, Unpack, cast

from nebis.core.record import EffectsMode
from nebis.errors import ConfigError, NebisError
from nebis.extras import needed
from nebis.http.exchange import Exchange
from nebis.http.wire import Wire
from nebis.integrations.blocking import Held, Live, claim, executed, issue_token, read_status, require_blocking
from nebis.integrations.bound import BoundOptions, bound
from nebis.integrations.callee import ATTEMPT, refuse_generators
from nebis.integrations.protection import SAFE_METHODS, Admission, Incoming, Protection, Tenant
from nebis.integrations.routes import RouteOptions, protection
from nebis.integrations.tokens import checked_lifetime
from nebis.sync import Nebis, Operation

with needed("drf"):
    from django.core.files.uploadedfile import UploadedFile
    from django.http import QueryDict
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request, is_form_media_type
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from nebis.integrations.django.announcing import announce_project
    from nebis.integrations.django.placement import require_alone, require_place
    from nebis.integrations.django.requests import file_of, headers_of, incoming
    from nebis.integrations.django.responses import exchange_of, response_of
    from nebis.integrations.django.views import idempotency_contract, report, shown

__all__ = ["bind", "idempotency_contract", "idempotency_tokens", "idempotent", "operation_status"]

F = TypeVar("F", bound=Callable[..., Any])


def idempotent(
    nebis: Nebis,
    name: str,
    *,
    effects: EffectsMode | None = None,
    tenant: Tenant | None = None,
    authorize: Callable[[Any], Any] | None = None,
    command: Callable[[Any], Any] | None = None,
    **options: Unpack[RouteOptions],
) -> Callable[[F], F]:
    """Let a handler run once per key, and answer with what it answered first.

    `tenant` and `authorize` get the request on every call, after authentication and permissions and before anything is
    looked up, and raise an `APIException` for callers who may not. `command` returns what is asked for, where that is
    not the whole body; it must not look at what exists. A handler that has a parameter `attempt` gets its attempt.
    """
    require_blocking(nebis, Nebis, name)
    protected = protection(nebis, name, effects=effects, tenant=tenant, options=options)

    def decorate(function: F) -> F:
        _require_plain(function, name)
        takes_attempt = ATTEMPT in inspect.signature(function).parameters

        def handler(*arguments: Any, **named: Any) -> Any:
            request = _request(arguments)

            def call(held: Held | None) -> Any:
                given = named | {ATTEMPT: held and held.attempt} if takes_attempt else named
                return function(*arguments, **given)

            if request.method in SAFE_METHODS:
                return call(None)
            try:
                owner, arrived = _asked(request, protected, authorize, command)
                held = claim(protected, nebis, arrived, owner, partial(_rendered, request))
            except NebisError as error:
                return response_of(protected.refused(error))
            if held is None:
                return call(None)
            return response_of(held) if isinstance(held, Exchange) else _answered(request, protected, held, call)

        return shown(handler, function, protected)

    return decorate


def bind(
    operation: Operation[Any, Any],
    *,
    tenant: Tenant | None = None,
    authorize: Callable[[Any], Any] | None = None,
    **options: Unpack[BoundOptions],
) -> Callable[[F], F]:
    """Let a handler call an operation: the function below returns its command, the answer is made of its result."""
    require_blocking(operation, Operation, operation.name)
    route = bound(operation.declaration, tenant=tenant, **options)

    def decorate(function: F) -> F:
        _require_plain(function, route.name)

        def handler(*arguments: Any, **named: Any) -> Any:
            request = _request(arguments)
            try:
                owner, arrived = _asked(request, route, authorize, None)
                arrived = replace(arrived, command=function(*arguments, **named))
                return response_of(executed(route, operation, arrived, owner))
            except NebisError as error:
                return response_of(route.refused(error))

        return shown(handler, function, route)

    return decorate


def operation_status(nebis: Nebis, *, tenant: Callable[[Any], Any], wire: Wire | None = None) -> Callable[..., Any]:
    """Make the view of `GET /operations/<id>`: the status of an operation, for its own tenant only.

    It authenticates and permits as the settings of REST framework say.
    """

    class OperationStatus(APIView):  # type: ignore[misc]  # It ships no types.
        """The status of an operation."""

        def get(self, request: Any, id: str) -> Any:  # noqa: A002 - the word in the path.
            """Tell the status."""
            return response_of(read_status(nebis, id, tenant(request), wire))

    view: Callable[..., Any] = OperationStatus.as_view()
    return view


def idempotency_tokens(
    nebis: Nebis, *, tenant: Callable[[Any], Any], lifetime: timedelta | None = None, wire: Wire | None = None
) -> Callable[..., Any]:
    """Make the view of `POST /idempotency-tokens`: a key for an operation with `issued_keys=True`.

    It authenticates and permits as the settings of REST framework say.
    """
    lifetime = checked_lifetime(lifetime)

    class IdempotencyTokens(APIView):  # type: ignore[misc]  # It ships no types.
        """Keys that this service issues."""

        def post(self, request: Any) -> Any:
            """Issue one."""
            body, headers = request.body, headers_of(request)
            return response_of(issue_token(nebis, body, headers, tenant(request), lifetime=lifetime, wire=wire))

    view: Callable[..., Any] = IdempotencyTokens.as_view()
    return view


def _require_plain(function: Callable[..., Any], name: str) -> None:
    refuse_generators(function)
    require_place(function, name)
    if inspect.iscoroutinefunction(function):
        raise ConfigError([f"endpoint {name!r} is a coroutine function, which REST framework cannot call"])


def _request(arguments: tuple[Any, ...]) -> Any:
    return next(argument for argument in arguments if isinstance(argument, Request))


def _asked(
    request: Any,
    admission: Admission,
    authorize: Callable[[Any], Any] | None,
    command: Callable[[Any], Any] | None,
) -> tuple[object, Incoming]:
    plain = request._request  # noqa: SLF001 - Django's own, for which there is no public name.
    announce_project(plain)
    require_alone(admission.name)
    owner: Any = admission.given_tenant(plain.META.get("REMOTE_ADDR"), headers_of(plain))
    if owner is None:
        owner = cast("Callable[..., Any]", admission.tenant)(request)
    if authorize is not None:
        authorize(request)
    has_form = is_form_media_type(request.content_type)
    arrived = incoming(plain, admission, parsed=lambda: _counted(request.data), has_form=has_form)
    return owner, arrived if command is None else replace(arrived, command=command(request))


def _counted(data: Any) -> Any:
    """Return what of parsed data counts: a file does by its name, type and content."""
    if isinstance(data, QueryDict):
        return {name: [_counted(value) for value in values] for name, values in data.lists()}
    return file_of(data) if isinstance(data, UploadedFile) else data


def _answered(request: Any, protected: Protection, held: Held, call: Callable[[Held], Any]) -> Any:
    limit_bytes = protected.storage.limit_bytes
    replaced = None

    def endpoint() -> Live:
        nonlocal replaced
        try:
            answer = call(held)
            # An answer that the handler has from `attempt.original` is rendered already.
            replaced = response_of(answer) if isinstance(answer, Exchange) else _finalized(request, answer)
            return exchange_of(replaced, limit_bytes), None
        except Exception as error:  # noqa: BLE001 - what the view's own handler does not know, it raises again.
            response = _view(request).handle_exception(error)
            return exchange_of(_finalized(request, response), limit_bytes), error

    exchange = held.run(endpoint, unseen=partial(report, request._request, protected))  # noqa: SLF001
    return response_of(exchange, replaced)


def _view(request: Any) -> Any:
    return request.parser_context["view"]


def _finalized(request: Any, response: Any) -> Any:
    """Prepare a response as the view would, so that it can be rendered here."""
    view = _view(request)
    headers = dict(view.headers)
    try:
        return view.finalize_response(request, response, *view.args, **view.kwargs)
    finally:
        view.headers = headers  # It takes the first Vary out of them, and is called again for what we return.


def _rendered(request: Any, value: Any) -> Exchange:
    """Make a stored answer of what a handler gives to `tx.finish`: a response, or plain data."""
    response = value if isinstance(value, HttpResponseBase) else Response(value)
    return exchange_of(_finalized(request, response), sys.maxsize)
