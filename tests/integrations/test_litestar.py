"""Litestar under uvicorn."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import ResponseHeader
from litestar.exceptions import HTTPException
from litestar.params import JSONBody

from nebis import AsyncNebis
from nebis.http import Exchange
from nebis.integrations.litestar import NebisPlugin, idempotency_tokens, idempotent, operation_status
from nebis.testing.http_conformance import BRIEFLY, ROUTES, Denied, Disguised, Route, Scenarios, Service
from nebis.testing.http_conformance.suite import *  # noqa: F403 - the suite is what this module runs.
from tests.integrations.servers import uvicorn_serving

AnyRequest = Request[Any, Any, Any]


def application(nebis: AsyncNebis, scenarios: Scenarios) -> Litestar:
    def tenant(request: AnyRequest) -> str:
        try:
            return scenarios.tenant(request.headers.get("authorization"))
        except Denied as denied:
            raise HTTPException(status_code=denied.status) from denied

    def handler(route: Route) -> Any:
        @post(route.path)
        @idempotent(nebis, route.name, effects=route.effects, tenant=route.tenant or tenant, **route.choices(scenarios))
        async def act(data: JSONBody[Any]) -> Response[bytes]:
            try:
                return response(await asyncio.to_thread(scenarios.act, data))
            except Disguised as disguised:
                raise HTTPException(status_code=disguised.status) from disguised

        return act

    status = get("/operations/{id:str}")(operation_status(nebis, tenant=tenant))
    tokens = post("/idempotency-tokens")(idempotency_tokens(nebis, tenant=tenant))
    brief = post("/brief-tokens")(idempotency_tokens(nebis, tenant=tenant, lifetime=BRIEFLY))
    return Litestar([*(handler(route) for route in ROUTES), status, tokens, brief], plugins=[NebisPlugin(nebis)])


def response(exchange: Exchange) -> Response[bytes]:
    headers = [
        ResponseHeader(name=name, value=value) for name, value in exchange.headers if name.lower() != "content-type"
    ]
    media_type = next((value for name, value in exchange.headers if name.lower() == "content-type"), None)
    return Response(exchange.body, status_code=exchange.status, headers=headers, media_type=media_type)


@pytest.fixture(scope="module")
def service(store_url: str) -> Iterator[Service]:
    scenarios = Scenarios()
    with uvicorn_serving(application(AsyncNebis(store_url), scenarios)) as address:
        yield Service(address=address, scenarios=scenarios)
