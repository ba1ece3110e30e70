"""A plain ASGI application, protected by rules from outside, under uvicorn."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from nebis import AsyncNebis, ConfigError, Local
from nebis.http import Exchange
from nebis.http.headers import encoded
from nebis.integrations.asgi import App, Receive, Scope, Send, lifespan
from nebis.integrations.asgi_request import headers_of, issue_token, read_status
from nebis.integrations.asgi_rules import Protected, rule
from nebis.testing.http_conformance import BRIEFLY, ROUTES, Denied, Disguised, Scenarios, Service
from nebis.testing.http_conformance.suite import *  # noqa: F403 - the suite is what this module runs.
from tests.integrations.servers import uvicorn_serving


def application(nebis: AsyncNebis, scenarios: Scenarios) -> App:
    rules = [
        rule(
            nebis,
            f"POST {route.path}",
            route.name,
            effects=route.effects,
            tenant=route.tenant or (lambda scope: scope["tenant"]),
            **route.choices(scenarios),
        )
        for route in ROUTES
    ]
    inner = Protected(acting(scenarios), rules=rules)
    unguarded = {route.path for route in ROUTES if route.is_public}

    async def authenticated(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await living(nebis, receive, send)
            return
        authorization = dict(headers_of(scope)).get("authorization")
        try:
            scope["tenant"] = None if scope["path"] in unguarded else scenarios.tenant(authorization)
        except Denied as denied:
            await answer(send, Exchange(status=denied.status))
            return
        if scope["path"].startswith("/operations/"):
            await answer(send, await read_status(nebis, scope["path"].rpartition("/")[2], scope["tenant"]))
            return
        if scope["path"] in ("/idempotency-tokens", "/brief-tokens"):
            body = (await receive())["body"]
            lifetime = BRIEFLY if scope["path"] == "/brief-tokens" else None
            await answer(send, await issue_token(nebis, body, headers_of(scope), scope["tenant"], lifetime=lifetime))
            return
        await inner(scope, receive, send)

    return authenticated


def acting(scenarios: Scenarios) -> App:
    async def act(scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        is_json = dict(headers_of(scope)).get("content-type") == "application/json"
        try:
            await answer(send, await asyncio.to_thread(scenarios.act, json.loads(body) if is_json else None))
        except Disguised as disguised:
            await answer(send, Exchange(status=disguised.status))

    return act


async def answer(send: Send, exchange: Exchange) -> None:
    headers = encoded(exchange.framed())
    await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
    await send({"type": "http.response.body", "body": exchange.body})


async def living(nebis: AsyncNebis, receive: Receive, send: Send) -> None:
    await receive()
    async with lifespan(nebis)(None):
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


@pytest.fixture(scope="module")
def service(store_url: str) -> Iterator[Service]:
    scenarios = Scenarios()
    with uvicorn_serving(application(AsyncNebis(store_url), scenarios)) as address:
        yield Service(address=address, scenarios=scenarios)


@pytest.mark.parametrize("pattern", ["", "/payments", "post /payments", "POST payments", "POST /**/payments"])
def test_a_pattern_that_means_nothing_is_refused_at_start_up(pattern: str) -> None:
    with pytest.raises(ConfigError, match="is no pattern"):
        rule(AsyncNebis("memory://"), pattern, "pay", effects=Local, tenant=lambda _: "acct")


def test_an_endpoint_without_effects_or_tenant_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError) as refused:
        rule(AsyncNebis("memory://"), "POST /payments", "pay", vary_on=["Authorization"])

    text = str(refused.value)
    assert "effects=Local" in text
    assert "tenant=" in text
    assert "vary_on" in text


def test_two_endpoints_cannot_share_a_name() -> None:
    nebis = AsyncNebis("memory://")
    options: dict[str, Any] = {"effects": Local, "tenant": lambda _: "acct"}
    rule(nebis, "POST /payments", "pay", **options)

    with pytest.raises(ConfigError, match="declared twice"):
        rule(nebis, "POST /refunds", "pay", **options)
