"""The service over HTTP: the real admission, verdicts and stored exchanges, around the real flows."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from nebis.answering import answered
from nebis.catalogue import Catalogue
from nebis.core.record import Record
from nebis.errors import NebisError, Rejected
from nebis.flow import Flow
from nebis.flows.execute import begin, concluded, execute
from nebis.flows.request import Ending, Request
from nebis.flows.single import execute_single
from nebis.http.exchange import Exchange
from nebis.http.headers import HeaderPairs
from nebis.http.wire import Wire
from nebis.integrations.bound import Bound, bound
from nebis.integrations.protection import Incoming, Protection
from nebis.integrations.routes import RouteOptions, protection
from nebis.ports.asks import Raised, Returned, RunHandler, Settled
from nebis.testing.simulate.cast import Turn
from nebis.testing.simulate.trades import (
    SECRETS,
    Terms,
    Trade,
    declaration,
    effects_of,
    fingerprints_of,
    options_of,
    request_of,
)

ENDPOINT_TRADES = (
    Trade.STICKY,
    Trade.SUCCESS_ONLY,
    Trade.FENCED,
    Trade.UNRECOVERABLE,
    Trade.OPAQUE,
    Trade.GUARDED,
)
"""What a protected endpoint can do by itself; whatever undoes or is asked about needs an operation."""
_WIRE = Wire(status_path="/operations/")
_JSON = ("Content-Type", "application/json")


@dataclass(frozen=True, slots=True)
class Reply:
    """What went over the wire, and what the flows behind it came to."""

    exchange: Exchange
    end: Ending | Exception
    is_endpoint: bool


def tell_apart(request: object) -> str:
    """Stand for verified authentication: the simulated clients are known."""
    raise AssertionError(f"the simulation hands the tenant in, it does not read {type(request).__name__}")


@lru_cache(maxsize=512)
def route_of(trade: Trade, terms: Terms) -> Bound:
    """Bind an operation to a route."""
    return bound(declaration(trade, terms), tenant=tell_apart, wire=_WIRE, status=200)


@lru_cache(maxsize=512)
def endpoint_of(trade: Trade, terms: Terms) -> Protection:
    """Protect an endpoint that does what the operation would."""
    chosen = cast("RouteOptions", options_of(terms))
    chosen["fingerprint"], chosen["wire"] = fingerprints_of(terms), _WIRE
    return protection(
        Catalogue[Any]("memory:"), trade.value, effects=effects_of(trade), tenant=tell_apart, options=chosen
    )


def spelt(key: str, command: str, chance: random.Random) -> Incoming:
    """Spell a request in one of the ways that mean the same."""
    header = key if chance.random() < 0.5 else f'"{key}"'
    name = "Idempotency-Key" if chance.random() < 0.5 else "idempotency-key"
    body = json.dumps(command) if chance.random() < 0.5 else f' "{command.replace(" ", chr(92) + "u0020")}"\n'
    return _incoming(((name, header), _JSON), body.encode())


def misspelt(key: str, command: str, chance: random.Random) -> Incoming:
    """Spell a request in one of the ways that nobody may take for a request."""
    right: tuple[str, str] = ("Idempotency-Key", key)
    headers: HeaderPairs = chance.choice(
        (
            (_JSON,),
            (right, _JSON, right),
            (_JSON, ("Idempotency-Key", f"{key},{key}")),
            (_JSON, ("Idempotency-Key", f'"{key}')),
            (right, _JSON, _JSON),
        )
    )
    return _incoming(headers, json.dumps(command).encode())


def _incoming(headers: HeaderPairs, body: bytes) -> Incoming:
    return Incoming(method="POST", headers=headers, body=body)


def received(
    trade: Trade, terms: Terms, tenant: str, incoming: Incoming, *, is_endpoint: bool
) -> tuple[Flow[Reply], Turn] | Exchange:
    """Return what answers a request, with the turn of its handler; or the refusal of one that is none."""
    return (_at_endpoint if is_endpoint else _at_route)(trade, terms, tenant, incoming)


def _at_route(trade: Trade, terms: Terms, tenant: str, incoming: Incoming) -> tuple[Flow[Reply], Turn] | Exchange:
    asked = _called(trade, terms, tenant, incoming.headers, incoming.body)
    if isinstance(asked, Exchange):
        return asked
    command, request = asked
    flow = execute_single(request) if trade is Trade.SINGLE else execute(request)
    return _through_route(route_of(trade, terms), flow), Turn(trade, request, command, terms)


@lru_cache(maxsize=4096)
def _called(
    trade: Trade, terms: Terms, tenant: str, headers: HeaderPairs, body: bytes
) -> tuple[str, Request] | Exchange:
    """Read what a request asks of a route; a value, so that every run may use the same one."""
    route = route_of(trade, terms)
    try:
        call = route.call(_incoming(headers, body), tenant)
        return str(call.command), request_of(trade, terms, call.tenant, call.key, call.command)
    except NebisError as error:
        return route.refused(error)


def _through_route(route: Bound, flow: Flow[Ending]) -> Flow[Reply]:
    end: Ending | Exception
    try:
        end = yield from flow
    except NebisError as error:
        return Reply(route.refused(error), error, is_endpoint=False)
    try:
        exchange = _answer_of(route, end)
    except Exception:  # noqa: BLE001 - the handler's own, or a mistake of it: a server makes a page of that.
        exchange = _crashed()
    return Reply(exchange, end, is_endpoint=False)


def _answer_of(route: Bound, end: Ending) -> Exchange:
    try:
        return route.answer(answered(route.declaration, end))
    except NebisError as error:
        return route.refused(error)


def _at_endpoint(trade: Trade, terms: Terms, tenant: str, incoming: Incoming) -> tuple[Flow[Reply], Turn] | Exchange:
    request = _prepared(trade, terms, tenant, incoming.headers, incoming.body)
    if isinstance(request, Exchange):
        return request
    guard, command = endpoint_of(trade, terms), str(json.loads(incoming.body))
    return _through_endpoint(guard, request, tenant), Turn(trade, request, command, terms, guard)


@lru_cache(maxsize=4096)
def _prepared(trade: Trade, terms: Terms, tenant: str, headers: HeaderPairs, body: bytes) -> Request | Exchange:
    """Read what a request asks of an endpoint; a value, so that every run may use the same one."""
    guard = endpoint_of(trade, terms)
    try:
        request = guard.prepare(SECRETS, _incoming(headers, body), tenant, render=page)
    except NebisError as error:
        return guard.refused(error)
    assert request is not None, "a key is required there"
    return request


def _through_endpoint(guard: Protection, request: Request, tenant: str) -> Flow[Reply]:
    """Claim, run and settle, as the integrations do."""
    live: Exchange | None = None
    try:
        begun = yield from begin(request)
        if isinstance(begun, Record):
            end = yield from RunHandler(begun)
            live = _rendered(end)
            ending = yield from concluded(request, begun, end)
        else:
            ending = begun
    except NebisError as error:
        return Reply(guard.refused(error), error, is_endpoint=True)
    try:
        exchange = guard.answer(ending, tenant=tenant, live=live)
    except Exception:  # noqa: BLE001 - the endpoint's own: a server makes a page of it.
        exchange = _crashed()
    assert isinstance(exchange, Exchange), "nothing is rebuilt here"
    return Reply(exchange, ending, is_endpoint=True)


def _rendered(end: Returned[object] | Raised | Settled) -> Exchange | None:
    """Return what the framework had rendered when the endpoint ended."""
    found = end.value if isinstance(end, Returned) else getattr(getattr(end, "error", None), "exchange", None)
    return found if isinstance(found, Exchange) else None


def page(receipt: Any) -> Exchange:
    """Render a receipt as an endpoint does: some headers are for everybody, some for the first caller alone."""
    _, _, life, run = str(receipt).split("|")
    headers = (_JSON, ("Location", f"/charges/{life}"), ("X-Request-Id", run), ("Set-Cookie", f"session={run}"))
    return Exchange(status=201, headers=headers, body=json.dumps({"receipt": receipt}).encode())


def answering(guard: Protection, handler: Flow[object], chance: random.Random) -> Flow[object]:
    """Run an endpoint, whose framework renders what it returns, and often what it raises."""
    renders, is_own = chance.random() < 0.5, chance.random() < 0.5
    try:
        value = yield from handler
    except AssertionError:
        raise
    except Exception as error:
        if not renders:
            raise
        end = _of_error(guard, error, is_own=is_own)
        assert isinstance(end, Raised), "no error is a success"
        raise end.error from error
    if isinstance(value, Settled):
        return value
    end = guard.ended(page(value))
    assert isinstance(end, Returned), "a success is no error"
    return end.value


def _of_error(guard: Protection, error: Exception, *, is_own: bool) -> Returned[Any] | Raised:
    if isinstance(error, Rejected):
        refusal = Exchange(status=402, headers=(_JSON,), body=b'{"error":"declined"}')
        # Either the endpoint says no by itself, or a handler of the framework does for the exception.
        return guard.ended(refusal, error=None if is_own else error)
    return guard.ended(_crashed(), error=error)


def _crashed() -> Exchange:
    return Exchange(status=500, headers=(("Content-Type", "text/plain"),), body=b"Internal Server Error")
