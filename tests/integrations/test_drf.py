"""Django REST framework under waitress."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpResponse
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, AuthenticationFailed, PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from nebis import Nebis
from nebis.integrations.drf import idempotency_tokens, idempotent, operation_status
from nebis.testing.http_conformance import BRIEFLY, ROUTES, Denied, Disguised, Route, Scenarios, Service
from nebis.testing.http_conformance.suite import *  # noqa: F403 - the suite is what this module runs.
from tests.integrations.django_project import response, wsgi_serving


class Refused(APIException):  # type: ignore[misc]  # It ships no types.
    def __init__(self, status: int) -> None:
        self.status_code = status
        super().__init__("refused")


class AsCsv(JSONRenderer):  # type: ignore[misc]
    """Whoever accepts CSV is content with what the endpoint has rendered already."""

    media_type, format = "text/csv", "csv"


def urls(nebis: Nebis, scenarios: Scenarios) -> list[Any]:
    class Bearer(BaseAuthentication):  # type: ignore[misc]
        def authenticate(self, request: Request) -> tuple[str, str] | None:
            try:
                tenant = scenarios.tenant(request.headers.get("Authorization"))
            except Denied as denied:
                if denied.status == 403:
                    raise PermissionDenied from denied
                raise AuthenticationFailed from denied
            return tenant, tenant

        def authenticate_header(self, request: Request) -> str:
            return "Bearer"

    class Known(BasePermission):  # type: ignore[misc]
        def has_permission(self, request: Request, view: APIView) -> bool:
            return request.user is not None

    def view(route: Route) -> Any:
        class Act(APIView):  # type: ignore[misc]
            authentication_classes = [] if route.is_public else [Bearer]
            permission_classes = [] if route.is_public else [Known]
            renderer_classes = (JSONRenderer, AsCsv)

            @idempotent(
                nebis,
                route.name,
                effects=route.effects,
                tenant=route.tenant or (lambda request: request.user),
                **route.choices(scenarios),
            )
            def post(self, request: Request) -> HttpResponse:
                try:
                    return response(scenarios.act(request.data))
                except Disguised as disguised:
                    raise Refused(disguised.status) from disguised

        return Act.as_view()

    status = operation_status(nebis, tenant=lambda request: request.user)
    tokens = idempotency_tokens(nebis, tenant=lambda request: request.user)
    brief = idempotency_tokens(nebis, tenant=lambda request: request.user, lifetime=BRIEFLY)
    for each in (status, tokens, brief):
        each.cls.authentication_classes = [Bearer]  # type: ignore[attr-defined]
    mounted = [
        path("operations/<str:id>", status),
        path("idempotency-tokens", tokens),
        path("brief-tokens", brief),
    ]
    return [*(path(route.path[1:], view(route)) for route in ROUTES), *mounted]


@pytest.fixture(scope="module")
def service(store_url: str) -> Iterator[Service]:
    scenarios, nebis = Scenarios(), Nebis(store_url)
    with wsgi_serving(urls(nebis, scenarios), nebis, REST_FRAMEWORK={"UNAUTHENTICATED_USER": None}) as address:
        yield Service(address=address, scenarios=scenarios)
