"""Flask: a decorator on the view, below whatever authenticates and validates."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from nebis.core.record import EffectsMode
from nebis.errors import ConfigError, NebisError, ResultUnstorable
from nebis.extras import needed
from nebis.http.body import json_of
from nebis.http.exchange import Exchange
from nebis.http.query import query_pairs
from nebis.http.wire import Wire
from nebis.integrations.blocking import Held, Live, claim, executed, issue_token, read_status, require_blocking
from nebis.integrations.bound import BoundOptions, bound
from nebis.integrations.callee import ATTEMPT, refuse_generators, require_innermost
from nebis.integrations.contract import ContractPage
from nebis.integrations.protection import SAFE_METHODS, THE_BODY, Admission, Incoming, Protection, Tenant, make_incoming
from nebis.integrations.routes import RouteOptions, protection
from nebis.integrations.routetable import announce_inside, is_told
from nebis.integrations.rules import ATTEMPT as HELD
from nebis.integrations.tokens import checked_lifetime
from nebis.integrations.wsgi_request import headers_of, peer_of, take_body
from nebis.sync import Nebis, Operation

with needed("flask"):
    from flask import Blueprint, Flask, Response, current_app, got_request_exception, request
    from werkzeug.datastructures import FileStorage, Headers
    from werkzeug.exceptions import HTTPException

__all__ = ["bind", "idempotency_contract", "idempotency_tokens", "idempotent", "operation_status"]


F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
_BODY_IS_GONE = (
    "something read request.stream before the view, so that it is not known what was asked; "
    "use request.get_data() or request.get_json() there, which keep the body"
)


def idempotent(
    nebis: Nebis,
    name: str,
    *,
    effects: EffectsMode | None = None,
    tenant: Tenant | None = None,
    authorize: Callable[[], Any] | None = None,
    command: Callable[[], Any] | None = None,
    **options: Unpack[RouteOptions],
) -> Callable[[F], F]:
    """Let a view run once per key, and answer with what it answered first.

    `tenant` and `authorize` run on every request, before anything is looked up, and abort for callers who may not.
    `command` validates the request and returns what is asked for: what it refuses leaves the key unused. Without it the
    body counts. None of them has parameters: they use `request` and `g`. A view that has a parameter `attempt` gets
    its attempt. Any of them may be a coroutine function where the application can run one.
    """
    require_blocking(nebis, Nebis, name)
    protected = protection(nebis, name, effects=effects, tenant=tenant, options=options)

    def decorate(function: F) -> F:
        refuse_generators(function)
        takes_attempt = ATTEMPT in inspect.signature(function).parameters
        require_innermost(function, name, authorize)

        @functools.wraps(function)
        def view(*arguments: Any, **named: Any) -> Any:
            def call(held: Held | None) -> Any:
                given = {**named, ATTEMPT: held and held.attempt} if takes_attempt else named
                return current_app.ensure_sync(function)(*arguments, **given)

            if request.method in SAFE_METHODS:
                return call(None)
            try:
                _refuse_twice(protected)
                owner = _owner(protected, authorize)
                held = claim(protected, nebis, _incoming(protected, command), owner, _rendered)
            except NebisError as error:
                return response_of(protected.refused(error))
            if held is None:
                return call(None)
            return response_of(held) if isinstance(held, Exchange) else _ran(protected, held, call)

        view.__nebis__ = protected  # type: ignore[attr-defined]  # For whoever lists protected routes.
        return cast("F", view)

    return decorate


def bind(
    operation: Operation[Any, Any],
    *,
    tenant: Tenant | None = None,
    authorize: Callable[[], Any] | None = None,
    **options: Unpack[BoundOptions],
) -> Callable[[Callable[P, Any]], Callable[P, Response]]:
    """Let a route call an operation: the view below returns its command, the answer is made of its result."""
    require_blocking(operation, Operation, operation.name)
    route = bound(operation.declaration, tenant=tenant, **options)

    def decorate(function: Callable[P, Any]) -> Callable[P, Response]:
        @functools.wraps(function)
        def view(*arguments: P.args, **named: P.kwargs) -> Response:
            def command() -> Any:
                return current_app.ensure_sync(function)(*arguments, **named)

            try:
                owner = _owner(route, authorize)
                answer = executed(route, operation, _incoming(route, command), owner)
            except NebisError as error:
                answer = route.refused(error)
            return response_of(answer)

        view.__nebis__ = route  # type: ignore[attr-defined]  # For whoever lists protected routes.
        return view

    return decorate


def operation_status(
    nebis: Nebis, *, tenant: Callable[[], Any], wire: Wire | None = None, url_prefix: str = "/operations"
) -> Blueprint:
    """Make the blueprint of `GET /operations/<id>`: the status of an operation, for its own tenant only."""
    blueprint = Blueprint("nebis_operations", __name__, url_prefix=url_prefix)

    @blueprint.get("/<id>")
    def status(id: str) -> Response:  # noqa: A002 - the word in the path.
        return response_of(read_status(nebis, id, current_app.ensure_sync(tenant)(), wire))

    return blueprint


def idempotency_tokens(
    nebis: Nebis,
    *,
    tenant: Callable[[], Any],
    lifetime: timedelta | None = None,
    wire: Wire | None = None,
    url_prefix: str = "/idempotency-tokens",
) -> Blueprint:
    """Make the blueprint of `POST /idempotency-tokens`: a key for an operation with `issued_keys=True`."""
    lifetime = checked_lifetime(lifetime)
    blueprint = Blueprint("nebis_tokens", __name__, url_prefix=url_prefix)

    @blueprint.post("")
    def tokens() -> Response:
        owner, headers = current_app.ensure_sync(tenant)(), headers_of(request.environ)
        body = request.get_data()
        return response_of(issue_token(nebis, body, headers, owner, lifetime=lifetime, wire=wire))

    return blueprint


def idempotency_contract() -> Callable[[], Response]:
    """Make the view of `GET /idempotency`: what this application promises about its routes, for anybody."""
    page = ContractPage()

    def idempotency() -> Response:
        app = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 - Flask's documented way.
        return response_of(page.answer(app, request.headers.get("Accept")))

    return idempotency


def response_of(exchange: Exchange) -> Response:
    """Make a response that is sent exactly as the answer says."""
    response = current_app.response_class(exchange.body, exchange.status)
    response.headers = Headers(list(exchange.framed()))
    return response


def _ran(protected: Protection, held: Held, call: Callable[[Held], Any]) -> Response:
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 - Flask's documented way to the application itself, which signals are sent for.
    limit_bytes = protected.storage.limit_bytes

    def endpoint() -> Live:
        try:
            answer = call(held)
            response = response_of(answer) if isinstance(answer, Exchange) else app.make_response(answer)
            return _gathered(response, limit_bytes, closing), None
        except Exception as error:  # noqa: BLE001 - what Flask does not know either it raises again.
            exchange = _gathered(app.make_response(app.handle_user_exception(error)), limit_bytes, closing)
            # abort(redirect(...)) is an answer and no failure.
            is_answer = isinstance(error, HTTPException) and exchange.status < 400
            return exchange, None if is_answer else error

    def unseen(error: Exception) -> None:
        """Do what Flask does for an exception that nobody handled, except that the answer is ours."""
        got_request_exception.send(app, _async_wrapper=app.ensure_sync, exception=error)
        app.log_exception(sys.exc_info())

    # What the application wants done once its response is sent is done once ours is.
    with ExitStack() as closing:
        request.environ[HELD] = held.attempt
        try:
            response = response_of(held.run(endpoint, unseen=unseen))
        finally:
            del request.environ[HELD]
        response.call_on_close(closing.pop_all().close)
        return response


def _gathered(response: Response, limit_bytes: int, closing: ExitStack) -> Exchange:
    """Take the bytes of a response, also of a file or a stream; of one above the cap as much as shows that it is."""
    closing.callback(response.close)
    response.direct_passthrough = False
    body = bytearray()
    for chunk in response.iter_encoded():
        body += chunk[: limit_bytes + 1 - len(body)]
    headers = response.get_wsgi_headers(request.environ)
    return Exchange(status=response.status_code, headers=tuple(headers), body=bytes(body))


def _rendered(value: Any) -> Exchange:
    """Make a stored answer of what a view gives to `tx.finish`, or `rebuild` returns."""
    if inspect.iscoroutine(value):
        value = current_app.ensure_sync(_awaited)(value)
    response = current_app.make_response(value)
    if not response.is_sequence:
        raise ResultUnstorable("a response that is streamed has no bytes yet; finish with one that has")
    headers = response.get_wsgi_headers(request.environ)
    return Exchange(status=response.status_code, headers=tuple(headers), body=response.get_data())


async def _awaited(value: Any) -> Any:
    return await value


def _refuse_twice(protected: Protection) -> None:
    if request.environ.get(HELD) is not None:
        raise ConfigError([f"endpoint {protected.name!r} is protected twice; protect it by a rule or a decorator"])


def _owner(admission: Admission, authorize: Callable[[], Any] | None) -> Any:
    """Find out whose request this is and whether they may; raises what the application raises for those who may not."""
    _announce()
    owner: Any = admission.given_tenant(peer_of(request.environ), headers_of(request.environ))
    if owner is None:
        owner = current_app.ensure_sync(cast("Callable[[], Any]", admission.tenant))()
    if authorize is not None:
        current_app.ensure_sync(authorize)()
    return owner


def _announce() -> None:
    """Log what is protected and what is not, at the first request that is for us: only now are all routes known."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 - Flask's documented way.
    if not is_told(app):
        announce_inside(app, request.environ)


def _incoming(admission: Admission, command: Callable[[], Any] | None) -> Incoming:
    """Read a request whole and strictly; only then may a function of the application parse it (F100)."""
    limit_bytes = admission.body_limit_bytes
    headers = headers_of(request.environ)
    body = _body(limit_bytes)
    tree = json_of(body, headers, limit_bytes=limit_bytes)
    if command is not None:
        asked = current_app.ensure_sync(command)()
    else:
        asked = _form() if request.mimetype in _FORMS else THE_BODY
    return make_incoming(
        method=request.method,
        headers=headers,
        query=query_pairs(request.environ.get("QUERY_STRING", "")),
        path=request.view_args or {},
        body=body,
        tree=tree,
        peer=peer_of(request.environ),
        command=asked,
    )


def _body(limit_bytes: int) -> bytes:
    """Read the body under its cap; where a hook has read it already, take what Flask kept of it."""
    if "stream" not in request.__dict__:
        return take_body(request.environ, limit_bytes=limit_bytes)
    if "form" in request.__dict__ and request.mimetype in _FORMS:
        return b""
    body = request.get_data()
    if request.content_length is not None and request.content_length != len(body):
        raise ConfigError([_BODY_IS_GONE])
    return body


def _form() -> dict[str, Any]:
    """Return what of a form counts. A file does by its name, type and content: the boundary around it changes."""
    files = {name: [_file(one) for one in found] for name, found in request.files.lists()}
    return {"form": request.form.to_dict(flat=False), "files": files}


def _file(file: FileStorage) -> list[Any]:
    digest = hashlib.sha256(file.stream.read()).digest()
    file.stream.seek(0)
    return [file.filename, file.content_type, digest]
