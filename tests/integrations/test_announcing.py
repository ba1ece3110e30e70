"""Frameworks that have no start of their own say at the first request what is protected: once, and at no risk."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from flask import Flask
from rest_framework.request import Request
from rest_framework.views import APIView
from werkzeug.middleware.proxy_fix import ProxyFix

from nebis import AsyncNebis, Local, Nebis
from nebis.integrations import drf, flask, wsgi
from nebis.integrations.django import views
from nebis.integrations.django.middleware import rule as django_rule
from nebis.integrations.routetable import announce
from nebis.testing.http_conformance.client import Client, new_key
from tests.integrations.django_project import COMMON, project, serving
from tests.integrations.flask_shop import serving as serving_flask

AFTER = "effects local, key required, kept for 1 day; after a crash rolled back, then run again; resumed by its client"
OPEN = "not protected, so that a retry runs again what it does: "


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Returns the first line, the routes and the warnings that the log has got so far."""
    caplog.set_level(logging.INFO, logger="nebis")

    def lines() -> list[str]:
        records = [record for record in caplog.records if record.name == "nebis"]
        told = [line.strip() for record in records for line in record.getMessage().splitlines()]
        return [line.partition(AFTER)[0].partition(". Protect")[0] for line in told]

    return lines


def owner(*_: Any) -> str:
    return "acct-1"


def pay_thrice(client: Client, where: str = "/payments") -> None:
    for _ in range(3):
        assert client.post(where, {}, key=new_key()).status == 200


def flask_shop(nebis: Nebis) -> Flask:
    app = Flask("shop")
    protect = flask.idempotent(nebis, "pay", effects=Local, tenant=owner)
    app.post("/payments", endpoint="pay")(protect(lambda: "paid"))
    app.post("/login", endpoint="login")(lambda: "in")
    return app


def test_flask_says_it_at_the_first_protected_request(said: Callable[[], list[str]]) -> None:
    with Nebis("memory://") as nebis, serving_flask(flask_shop(nebis)) as client:
        client.post("/login")
        before = said()
        pay_thrice(client)

    assert before == []
    assert said() == ["nebis protects 1 route", "POST /payments: pay, ", f"{OPEN}POST /login"]


def test_each_application_of_a_process_says_it_once_whoever_asks_first(said: Callable[[], list[str]]) -> None:
    with Nebis("memory://") as nebis:
        first, second = flask_shop(nebis), flask_shop(Nebis("memory://"))
        announce(first)
        with serving_flask(first) as client, ThreadPoolExecutor(8) as threads:
            list(threads.map(pay_thrice, [client] * 8))
        once = said()
        announce(second)

    assert len(once) == 3
    assert len(said()) == 6


def test_wsgi_rules_say_it_at_the_first_request_for_all_that_is_inside(said: Callable[[], list[str]]) -> None:
    """The framework inside says nothing of its own, also where nobody sees that it is there."""
    with Nebis("memory://") as nebis:
        app = flask_shop(nebis)
        app.post("/refunds/<id>", endpoint="refund")(lambda id: id)  # noqa: A006 - the word in the path.
        rules = [wsgi.rule(nebis, "POST /refunds/*", "refund", effects=Local, tenant=owner)]
        app.wsgi_app = ProxyFix(wsgi.Protected(app.wsgi_app, rules=rules))  # type: ignore[method-assign]
        with serving_flask(app) as client, ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: client.get("/nowhere"), range(8)))
            pay_thrice(client)
            pay_thrice(client, "/refunds/1")
        seen = said()

        hidden = flask_shop(Nebis("memory://"))

        def concealing(*given: Any) -> Any:
            return hidden(*given)

        opaque = wsgi.Protected(concealing, rules=rules)
        with serving_flask(opaque) as client:
            pay_thrice(client)

    assert seen == [
        "nebis protects 2 routes",
        "POST /payments: pay, ",
        "POST /refunds/{id}: refund, ",
        f"{OPEN}POST /login",
    ]
    assert said()[4:] == ["nebis protects 1 route", "POST /refunds/*: refund, "]


def django_views(nebis: Any) -> list[Any]:
    protect = views.idempotent(nebis, "pay", effects=Local, tenant=owner)

    def pay(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("paid")

    async def pay_async(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("paid")

    login = csrf_exempt(require_POST(lambda _request: HttpResponse("in")))
    paying = protect(pay_async if isinstance(nebis, AsyncNebis) else pay)
    return [path("payments", csrf_exempt(require_POST(paying))), path("login", login)]


@pytest.mark.parametrize("is_async", [False, True])
def test_django_says_it_once_under_wsgi_and_asgi(said: Callable[[], list[str]], is_async: bool) -> None:
    with serving(django_views, is_async=is_async) as client:
        pay_thrice(client)

    assert said() == ["nebis protects 1 route", "POST /payments: pay, ", f"{OPEN}POST /login"]


def test_django_says_it_once_where_nothing_told_it_that_the_server_started(said: Callable[[], list[str]]) -> None:
    nebis = AsyncNebis("memory://")

    async def pay() -> None:
        async with nebis:
            for _ in range(2):
                sent = {"content_type": "application/json", "headers": {"Idempotency-Key": new_key()}}
                assert (await AsyncClient().post("/payments", b"{}", **sent)).status_code == 200

    with project(django_views(nebis)):
        async_to_sync(pay)()

    assert said() == ["nebis protects 1 route", "POST /payments: pay, ", f"{OPEN}POST /login"]


@pytest.mark.parametrize("is_async", [False, True])
def test_django_rules_say_it_at_the_first_request(said: Callable[[], list[str]], is_async: bool) -> None:
    nebis = AsyncNebis("memory://") if is_async else Nebis("memory://")
    kind = "AsyncNebisMiddleware" if is_async else "NebisMiddleware"
    rules = [django_rule(nebis, "POST /refunds/*", "refund", effects=Local, tenant=owner)]

    def declare(_nebis: Any) -> list[Any]:
        refund = csrf_exempt(require_POST(lambda _request, id: HttpResponse(id)))  # noqa: A006 - the word in the path.
        return [path("refunds/<str:id>", refund)]

    middleware = (COMMON, f"nebis.integrations.django.middleware.{kind}")
    with serving(declare, is_async=is_async, middleware=middleware, NEBIS_RULES=rules) as client:
        client.get("/nowhere")
        client.get("/nowhere")

    assert said() == ["nebis protects 1 route", "POST /refunds/{id}: refund, "]


def test_rest_framework_says_it_at_the_first_protected_request(said: Callable[[], list[str]]) -> None:
    def declare(nebis: Nebis) -> list[Any]:
        class Payments(APIView):  # type: ignore[misc]  # It ships no types.
            authentication_classes = ()
            permission_classes = ()

            @drf.idempotent(nebis, "pay", effects=Local, tenant=owner)
            def post(self, _request: Request) -> HttpResponse:
                return HttpResponse("paid")

            def patch(self, _request: Request) -> HttpResponse:
                return HttpResponse("changed")

        return [path("payments", Payments.as_view())]

    with serving(declare, REST_FRAMEWORK={"UNAUTHENTICATED_USER": None}) as client:
        pay_thrice(client)

    assert said() == ["nebis protects 1 route", "POST /payments: pay, ", f"{OPEN}PATCH /payments"]


def test_a_table_that_cannot_be_read_is_a_warning_and_the_request_is_answered(said: Callable[[], list[str]]) -> None:
    with Nebis("memory://") as nebis:
        app = flask_shop(nebis)
        app.url_map.iter_rules = None  # type: ignore[assignment, method-assign]  # Something that no reader expects.
        with serving_flask(app) as client:
            pay_thrice(client)

    def declare(nebis: Nebis) -> list[Any]:
        def broken(_request: HttpRequest) -> HttpResponse:
            return HttpResponse()

        broken.view_class = type("Broken", (), {"post": broken})  # type: ignore[attr-defined]
        return [*django_views(nebis), path("broken", broken)]

    with serving(declare) as client:
        pay_thrice(client)

    unread = "nebis could not list the routes of this application"
    assert said() == [f"{unread} (TypeError)", f"{unread} (AttributeError)"]
