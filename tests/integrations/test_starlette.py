"""Starlette under uvicorn, with all that the suite asks in full on PostgreSQL."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path

from nebis import AsyncNebis
from nebis.http import Exchange
from nebis.integrations.starlette import NebisMiddleware, idempotency_tokens, idempotent, lifespan, operation_status
from nebis.testing.http_conformance import BRIEFLY, FULL, ROUTES, TENTH, Denied, Disguised, Route, Scenarios, Service
from nebis.testing.http_conformance.suite import *  # noqa: F403 - the suite is what this module runs.
from tests.integrations.servers import uvicorn_serving

# Ten thousand requests take a minute, and more on a machine that does other things as well.
pytestmark = pytest.mark.timeout(600)


def application(nebis: AsyncNebis, scenarios: Scenarios) -> Starlette:
    def tenant(request: Request) -> str:
        try:
            return scenarios.tenant(request.headers.get("authorization"))
        except Denied as denied:
            raise HTTPException(denied.status) from denied

    def endpoint(route: Route) -> Any:
        @idempotent(nebis, route.name, effects=route.effects, tenant=route.tenant or tenant, **route.choices(scenarios))
        async def act(request: Request) -> Response:
            command = await request.json() if request.headers.get("content-type") == "application/json" else None
            try:
                return response(await asyncio.to_thread(scenarios.act, command))
            except Disguised as disguised:
                raise HTTPException(disguised.status) from disguised

        return act

    status, tokens = operation_status(nebis, tenant=tenant), idempotency_tokens(nebis, tenant=tenant)
    brief = idempotency_tokens(nebis, tenant=tenant, lifetime=BRIEFLY)
    return Starlette(
        routes=[
            *(Path(route.path, endpoint(route), methods=["POST"]) for route in ROUTES),
            Path("/operations/{id}", status),
            Path("/idempotency-tokens", tokens, methods=["POST"]),
            Path("/brief-tokens", brief, methods=["POST"]),
        ],
        middleware=[Middleware(NebisMiddleware)],
        lifespan=lifespan(nebis),
    )


def response(exchange: Exchange) -> Response:
    made = Response(exchange.body, exchange.status)
    for name, value in exchange.headers:
        made.headers.append(name, value)
    return made


@pytest.fixture(scope="module")
def service(store: str, store_url: str) -> Iterator[Service]:
    scenarios = Scenarios()
    with uvicorn_serving(application(AsyncNebis(store_url), scenarios)) as address:
        yield Service(address=address, scenarios=scenarios, sizes=FULL if store == "postgres" else TENTH)
