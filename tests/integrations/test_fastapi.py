"""FastAPI under uvicorn."""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Body, FastAPI, HTTPException, Request, Response

from nebis import AsyncNebis
from nebis.integrations.fastapi import NebisRoute, idempotency_tokens, idempotent, lifespan, operation_status
from nebis.testing.http_conformance import BRIEFLY, ROUTES, Denied, Disguised, Route, Scenarios, Service
from nebis.testing.http_conformance.suite import *  # noqa: F403 - the suite is what this module runs.
from tests.integrations.servers import uvicorn_serving
from tests.integrations.test_starlette import response


def application(nebis: AsyncNebis, scenarios: Scenarios) -> FastAPI:
    router = APIRouter(route_class=NebisRoute)

    def tenant(request: Request) -> str:
        try:
            return scenarios.tenant(request.headers.get("authorization"))
        except Denied as denied:
            raise HTTPException(denied.status) from denied

    def add(route: Route) -> None:
        @router.post(route.path)
        @idempotent(nebis, route.name, effects=route.effects, tenant=route.tenant or tenant, **route.choices(scenarios))
        async def act(command: Annotated[Any, Body()]) -> Response:
            try:
                return response(await asyncio.to_thread(scenarios.act, command))
            except Disguised as disguised:
                raise HTTPException(disguised.status) from disguised

    for route in ROUTES:
        add(route)
    router.get("/operations/{id}")(operation_status(nebis, tenant=tenant))
    router.post("/idempotency-tokens")(idempotency_tokens(nebis, tenant=tenant))
    router.post("/brief-tokens")(idempotency_tokens(nebis, tenant=tenant, lifetime=BRIEFLY))
    app = FastAPI(lifespan=lifespan(nebis))
    app.include_router(router)
    return app


@pytest.fixture(scope="module")
def service(store_url: str) -> Iterator[Service]:
    scenarios = Scenarios()
    with uvicorn_serving(application(AsyncNebis(store_url), scenarios), http="httptools") as address:
        yield Service(address=address, scenarios=scenarios)
