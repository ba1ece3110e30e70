"""Django's async views under uvicorn."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from nebis import AsyncNebis
from nebis.integrations.django.views import idempotency_tokens, idempotent, operation_status
from nebis.testing.http_conformance import BRIEFLY, ROUTES, Denied, Disguised, Route, Scenarios, Service
from nebis.testing.http_conformance.suite import *  # noqa: F403 - the suite is what this module runs.
from tests.integrations.django_project import asgi_serving, response


def urls(nebis: AsyncNebis, scenarios: Scenarios) -> list[Any]:
    async def tenant(request: HttpRequest) -> str | None:
        try:
            return scenarios.tenant(request.headers.get("Authorization"))
        except Denied as denied:
            if denied.status == 403:
                raise PermissionDenied from denied
            return None

    def view(route: Route) -> Any:
        @csrf_exempt  # type: ignore[untyped-decorator]  # Django ships no types.
        @idempotent(nebis, route.name, effects=route.effects, tenant=route.tenant or tenant, **route.choices(scenarios))
        async def act(request: HttpRequest) -> HttpResponse:
            command = json.loads(request.body) if request.content_type == "application/json" else None
            try:
                return response(await asyncio.to_thread(scenarios.act, command))
            except Disguised as disguised:
                if disguised.status == 403:
                    raise PermissionDenied from disguised
                return HttpResponse(status=disguised.status)

        return act

    status, tokens = operation_status(nebis, tenant=tenant), idempotency_tokens(nebis, tenant=tenant)
    brief = idempotency_tokens(nebis, tenant=tenant, lifetime=BRIEFLY)
    mounted = [
        path("operations/<str:id>", status),
        path("idempotency-tokens", tokens),
        path("brief-tokens", brief),
    ]
    return [*(path(route.path[1:], view(route)) for route in ROUTES), *mounted]


@pytest.fixture(scope="module")
def service(store_url: str) -> Iterator[Service]:
    scenarios, nebis = Scenarios(), AsyncNebis(store_url)
    with asgi_serving(urls(nebis, scenarios), nebis) as address:
        yield Service(address=address, scenarios=scenarios)
