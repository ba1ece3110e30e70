"""One small shop in every framework: a thing with versions, and payments that are unique by their reference."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.http import JsonResponse
from django.urls import path
from fastapi import FastAPI
from fastapi import Request as FastAPIRequest
from flask import Flask
from flask import request as flask_request
from litestar import Litestar, get, patch, post
from litestar import Request as LitestarRequest
from litestar.params import JSONBody
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request as DrfRequest
from rest_framework.response import Response as DrfResponse
from rest_framework.views import APIView
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from nebis import Attempt, Nebis, Opaque
from nebis.http import Wire, require_match, strong_etag
from nebis.integrations import drf, fastapi, flask, litestar, starlette
from nebis.integrations.django import views as django
from nebis.testing.http_conformance import Client
from tests.integrations.django_project import wsgi_serving
from tests.integrations.servers import uvicorn_serving
from tests.integrations.wsgi_servers import waitress_serving

WIRE = Wire(problem_base="/idempotency#")


class Shop:
    """What the handlers of every framework do alike."""

    def __init__(self) -> None:
        self.version = 1
        self.payments: dict[str, str] = {}
        self.lock = threading.Lock()

    def change(self, condition: Any) -> dict[str, int]:
        with self.lock:
            require_match(condition, strong_etag(self.version))
            self.version += 1
            return {"version": self.version}

    def pay(self, attempt: Attempt, command: dict[str, Any]) -> Any:
        """Return the original answer where the reference was paid already."""
        with self.lock:
            made_by = self.payments.setdefault(command["reference"], attempt.operation_id)
        if made_by != attempt.operation_id:
            return attempt.original(made_by)
        return {"id": attempt.operation_id, "amount": command["amount"]}


def anybody(*_: Any) -> str:
    return "acct-1"


def nobody_asks() -> str:
    return "acct-1"


@contextmanager
def starlette_serving(shop: Shop) -> Iterator[tuple[str, int]]:
    nebis = Nebis("memory://")

    @starlette.idempotent(nebis, "change", effects=Opaque, tenant=anybody, wire=WIRE)
    def change(request: StarletteRequest) -> JSONResponse:
        return JSONResponse(shop.change(request.headers.getlist("if-match")))

    @starlette.idempotent(nebis, "pay", effects=Opaque, tenant=anybody, wire=WIRE, command=_json_of)
    def pay(request: StarletteRequest, attempt: Attempt) -> Any:
        answer = shop.pay(attempt, request.state.command)
        return JSONResponse(answer, 201) if isinstance(answer, dict) else answer

    routes = [
        Route("/thing", change, methods=["PATCH"]),
        Route("/payments", pay, methods=["POST"]),
        Route("/idempotency", starlette.idempotency_contract()),
    ]
    app = Starlette(
        routes=routes, middleware=[Middleware(starlette.NebisMiddleware)], lifespan=starlette.lifespan(nebis)
    )
    with uvicorn_serving(app) as address:
        yield address


async def _json_of(request: StarletteRequest) -> Any:
    request.state.command = await request.json()
    return request.state.command


@contextmanager
def fastapi_serving(shop: Shop) -> Iterator[tuple[str, int]]:
    nebis = Nebis("memory://")
    app = FastAPI(lifespan=fastapi.lifespan(nebis))
    app.router.route_class = fastapi.NebisRoute

    @app.patch("/thing")
    @fastapi.idempotent(nebis, "change", effects=Opaque, tenant=nobody_asks, wire=WIRE)
    def change(request: FastAPIRequest) -> dict[str, int]:
        return shop.change(request.headers.getlist("if-match"))

    @app.post("/payments", status_code=201)
    @fastapi.idempotent(nebis, "pay", effects=Opaque, tenant=nobody_asks, wire=WIRE)
    def pay(command: dict[str, Any], attempt: Attempt) -> Any:
        return shop.pay(attempt, command)

    app.get("/idempotency", include_in_schema=False)(fastapi.idempotency_contract())
    with uvicorn_serving(app) as address:
        yield address


@contextmanager
def litestar_serving(shop: Shop) -> Iterator[tuple[str, int]]:
    nebis = Nebis("memory://")

    @patch("/thing")
    @litestar.idempotent(nebis, "change", effects=Opaque, tenant=anybody, wire=WIRE)
    def change(request: LitestarRequest[Any, Any, Any]) -> dict[str, int]:
        return shop.change(request.headers.getall("if-match", []))

    @post("/payments")
    @litestar.idempotent(nebis, "pay", effects=Opaque, tenant=anybody, wire=WIRE)
    def pay(data: JSONBody[dict[str, Any]], attempt: Attempt) -> Any:
        return shop.pay(attempt, data)

    page = get("/idempotency")(litestar.idempotency_contract())
    with uvicorn_serving(Litestar([change, pay, page], plugins=[litestar.NebisPlugin(nebis)])) as address:
        yield address


@contextmanager
def flask_serving(shop: Shop) -> Iterator[tuple[str, int]]:
    nebis, app = Nebis("memory://"), Flask(__name__)

    @app.patch("/thing")
    @flask.idempotent(nebis, "change", effects=Opaque, tenant=nobody_asks, wire=WIRE)
    def change() -> dict[str, int]:
        return shop.change(flask_request.headers.get("If-Match"))

    @app.post("/payments")
    @flask.idempotent(nebis, "pay", effects=Opaque, tenant=nobody_asks, wire=WIRE)
    def pay(attempt: Attempt) -> Any:
        answer = shop.pay(attempt, flask_request.get_json())
        return (answer, 201) if isinstance(answer, dict) else answer

    app.get("/idempotency")(flask.idempotency_contract())
    with nebis, waitress_serving(app) as address:
        yield address


def django_serving(shop: Shop) -> AbstractContextManager[tuple[str, int]]:
    nebis = Nebis("memory://")

    @django.idempotent(nebis, "change", effects=Opaque, tenant=anybody, wire=WIRE)
    def change(request: Any) -> Any:
        return JsonResponse(shop.change(request.headers.get("If-Match")))

    @django.idempotent(nebis, "pay", effects=Opaque, tenant=anybody, wire=WIRE)
    def pay(request: Any, attempt: Attempt) -> Any:
        answer = shop.pay(attempt, json.loads(request.body))
        return JsonResponse(answer, status=201) if isinstance(answer, dict) else answer

    urls = [path("thing", change), path("payments", pay), path("idempotency", django.idempotency_contract())]
    return wsgi_serving(urls, nebis)


class Everybody(BaseAuthentication):  # type: ignore[misc]  # It ships no types.
    def authenticate(self, request: DrfRequest) -> tuple[str, None]:
        return "acct-1", None


def drf_serving(shop: Shop) -> AbstractContextManager[tuple[str, int]]:
    nebis = Nebis("memory://")

    class Plain(APIView):  # type: ignore[misc]  # It ships no types.
        authentication_classes = (Everybody,)
        permission_classes = ()

    class Thing(Plain):
        @drf.idempotent(nebis, "change", effects=Opaque, tenant=anybody, wire=WIRE)
        def patch(self, request: DrfRequest) -> DrfResponse:
            return DrfResponse(shop.change(request.headers.get("If-Match")))

    class Payments(Plain):
        @drf.idempotent(nebis, "pay", effects=Opaque, tenant=anybody, wire=WIRE)
        def post(self, request: DrfRequest, attempt: Attempt) -> Any:
            answer = shop.pay(attempt, request.data)
            return DrfResponse(answer, status=201) if isinstance(answer, dict) else answer

    page = path("idempotency", drf.idempotency_contract())
    return wsgi_serving([path("thing", Thing.as_view()), path("payments", Payments.as_view()), page], nebis)


SERVERS: dict[str, Callable[[Shop], AbstractContextManager[tuple[str, int]]]] = {
    "starlette": starlette_serving,
    "fastapi": fastapi_serving,
    "litestar": litestar_serving,
    "flask": flask_serving,
    "django": django_serving,
    "drf": drf_serving,
}


@contextmanager
def serving(framework: str) -> Iterator[Client]:
    """Serve the shop."""
    with SERVERS[framework](Shop()) as address:
        yield Client(address)
