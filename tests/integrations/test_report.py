"""What an application says about its routes: at start-up in its log, and to whoever asks."""

import logging
from typing import Any

import pytest
from fastapi import FastAPI
from flask import Flask
from flask.views import MethodView
from litestar import Controller, Litestar, asgi
from litestar import post as litestar_post
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nebis import AsyncNebis, ConfigError, Declared, Local, Nebis, Opaque
from nebis.core.record import EffectsMode
from nebis.integrations import asgi_rules, fastapi, flask, litestar, starlette, wsgi
from nebis.integrations.asgi import Receive, Scope, Send
from nebis.integrations.protection import Protection
from nebis.integrations.report import Report, Resumer, promise, unprotected
from nebis.integrations.routes import protection
from nebis.integrations.routetable import report_of
from tests.integrations.servers import uvicorn_serving

AROUND = [Middleware(starlette.NebisMiddleware)]


def owner(*_: Any) -> str:
    return "acct-1"


def endpoint(nebis: AsyncNebis, name: str) -> Any:
    @starlette.idempotent(nebis, name, effects=Local, tenant=owner)
    async def protected(_request: Request) -> Response:
        return Response()

    return protected


async def open_to_all(_request: Request) -> Response:
    return Response()


async def search(_request: Request) -> Response:
    return Response()


async def without_routes(_scope: Scope, _receive: Receive, _send: Send) -> None: ...


def rules(nebis: Any, *patterns: str) -> list[Any]:
    make = wsgi.rule if isinstance(nebis, Nebis) else asgi_rules.rule
    return [
        make(nebis, pattern, f"rule-{number}", effects=Local, tenant=owner) for number, pattern in enumerate(patterns)
    ]


def protected_of(report: Report) -> list[str]:
    return [f"{one.shown} {what.name}" for one, what in report.protected]


def unprotected_of(report: Report) -> list[str]:
    return [one.shown for one in report.unprotected]


def test_starlette_routes_are_found_in_classes_and_mounts_and_behind_middleware() -> None:
    nebis = AsyncNebis("memory://")

    class Orders(HTTPEndpoint):
        patch = endpoint(nebis, "change")

        async def get(self, _request: Request) -> Response:
            return Response()

        async def post(self, _request: Request) -> Response:
            return Response()

    app = Starlette(
        routes=[
            Route("/payments/{id:int}", endpoint(nebis, "pay"), methods=["POST", "GET"]),
            Route("/orders", Orders),
            Route("/search", unprotected("it only reads")(search), methods=["POST"]),
            Route("/carts", lambda _: Response(), methods=["PUT", "DELETE"]),
            Mount("/static", StaticFiles(directory=".")),
            Mount("/old", asgi_rules.Protected(without_routes, rules=[])),
            Mount(
                "/v2", CORSMiddleware(Starlette(routes=[Route("/gifts", endpoint(nebis, "give"), methods=["POST"])]))
            ),
        ],
        middleware=AROUND,
    )

    report = report_of(CORSMiddleware(app))

    assert protected_of(report) == ["POST /payments/{id} pay", "PATCH /orders change", "POST /v2/gifts give"]
    assert unprotected_of(report) == ["POST /orders"]
    assert [(one.shown, reason) for one, reason in report.allowed] == [("POST /search", "it only reads")]
    assert report.unseen == ("what is mounted at /old has no table of routes; check it by itself",)
    assert not report.faults


def test_fastapi_routes_of_included_routers_and_mounts_are_found_under_their_whole_path() -> None:
    nebis = AsyncNebis("memory://")
    inner, outer = fastapi_router("/things", nebis, "make"), fastapi_router("/others", nebis, None)
    outer.include_router(inner, prefix="/inner")
    app, below = FastAPI(), FastAPI()
    app.include_router(outer, prefix="/outer")
    below.include_router(inner)
    app.mount("/below", below)

    report = report_of(app)

    assert protected_of(report) == ["POST /outer/inner/things make", "POST /below/things make"]
    assert unprotected_of(report) == ["POST /outer/others"]
    assert not report.faults


def fastapi_router(path: str, nebis: AsyncNebis, name: str | None) -> Any:
    from fastapi import APIRouter

    router = APIRouter(route_class=fastapi.NebisRoute)

    async def make() -> None: ...

    protected = make if name is None else fastapi.idempotent(nebis, name, effects=Local, tenant=owner)(make)
    router.post(path)(protected)
    return router


def test_litestar_handlers_are_found_in_controllers() -> None:
    nebis = AsyncNebis("memory://")

    class Things(Controller):
        path = "/things"

        @litestar_post("/{number:int}")
        @litestar.idempotent(nebis, "make", effects=Local, tenant=owner)
        async def make(self) -> None: ...

        @litestar_post("/bare")
        async def bare(self) -> None: ...

        @litestar_post("/search")
        @unprotected("it only reads")
        async def search(self) -> None: ...

    @asgi("/old", copy_scope=True)
    async def old(scope: Any, receive: Any, send: Any) -> None: ...

    report = report_of(Litestar([Things, old], plugins=[litestar.NebisPlugin(nebis)]))

    assert protected_of(report) == ["POST /things/{number} make"]
    assert unprotected_of(report) == ["POST /things/bare"]
    assert [reason for _, reason in report.allowed] == ["it only reads"]
    assert report.unseen == ("what is mounted at /old has no table of routes; check it by itself",)
    assert not report.faults


def test_flask_views_are_found_as_functions_and_in_classes() -> None:
    nebis, app = Nebis("memory://"), Flask("shop")
    protect = flask.idempotent(nebis, "pay", effects=Local, tenant=owner)

    class Orders(MethodView):
        def get(self) -> str:
            return ""

        @flask.idempotent(nebis, "order", effects=Local, tenant=owner)
        def post(self) -> str:
            return ""

        def patch(self) -> str:
            return ""

    app.post("/payments/<int:number>")(protect(lambda number: f"{number}"))
    app.add_url_rule("/orders", view_func=Orders.as_view("orders"))

    report = report_of(app)

    assert protected_of(report) == ["POST /payments/{number} pay", "POST /orders order"]
    assert unprotected_of(report) == ["PATCH /orders"]


def test_a_rule_protects_the_routes_that_it_matches_in_whatever_framework() -> None:
    app, nebis = Flask("shop"), Nebis("memory://")
    app.post("/payments/<int:number>/refunds", endpoint="refund")(lambda number: f"{number}")
    app.post("/login", endpoint="login")(lambda: "")
    app.wsgi_app = wsgi.Protected(app.wsgi_app, rules=rules(nebis, "POST /payments/**"))  # type: ignore[method-assign]
    asynchronous = rules(AsyncNebis("memory://"), "POST /payments/*")
    routes = [Route("/payments/{id}", open_to_all, methods=["POST"]), Route("/login", open_to_all, methods=["POST"])]

    reports = [
        report_of(app),
        report_of(wsgi.Protected(Flask("shop"), rules=rules(Nebis("memory://"), "POST /payments"))),
        report_of(asgi_rules.Protected(Starlette(routes=routes), rules=asynchronous)),
        report_of(Starlette(routes=routes, middleware=[Middleware(asgi_rules.Protected, rules=asynchronous)])),
        report_of(asgi_rules.Protected(without_routes, rules=asynchronous)),
    ]

    assert [protected_of(report) for report in reports] == [
        ["POST /payments/{number}/refunds rule-0"],
        [],
        ["POST /payments/{id} rule-0"],
        ["POST /payments/{id} rule-0"],
        ["POST /payments/* rule-0"],
    ]
    assert [unprotected_of(report) for report in reports] == [["POST /login"], [], ["POST /login"], ["POST /login"], []]
    assert reports[1].warnings == ("the rule POST /payments (rule-0) is for no route; correct its pattern",)
    assert len(reports[4].unseen) == 1


def test_an_endpoint_that_would_refuse_every_request_is_a_fault() -> None:
    """What is missing around it would otherwise be noticed with the first customer."""
    nebis = AsyncNebis("memory://")
    bare = Starlette(routes=[Route("/a", endpoint(nebis, "a"), methods=["POST"])])
    plain = FastAPI()
    plain.post("/b")(fastapi.idempotent(nebis, "b", effects=Local, tenant=owner)(_nothing))
    pluginless = Litestar([litestar_post("/c")(litestar.idempotent(nebis, "c", effects=Local, tenant=owner)(_nothing))])
    twice = asgi_rules.Protected(
        Starlette(routes=[Route("/d", endpoint(nebis, "d"), methods=["POST"])], middleware=AROUND),
        rules=rules(nebis, "POST /d"),
    )

    faults = [fault for app in (bare, plain, pluginless, twice) for fault in report_of(app).faults]

    assert [fault.partition(",")[0] for fault in faults] == [
        "POST /a: NebisMiddleware is not around it",
        "POST /b: its route is no NebisRoute",
        "POST /c: NebisPlugin is not installed",
        "POST /d: is protected by a rule and by a decorator",
    ]


async def _nothing() -> None: ...


@pytest.mark.parametrize(
    ("effects", "crash", "resumer"),
    [
        (Local, "rolled back, then run again", Resumer.CLIENT),
        (Declared, "resumed after its last effect", Resumer.CLIENT),
        (Opaque, "in doubt, never run again", Resumer.NOBODY),
    ],
)
def test_a_bare_endpoint_can_be_resumed_by_its_client_alone(effects: EffectsMode, crash: str, resumer: Resumer) -> None:
    bare: Protection = protection(AsyncNebis("memory://"), "pay", effects=effects, tenant=owner, options={})

    said = promise(bare)

    assert (said.crash, said.resumer, said.is_bound) == (crash, resumer, False)


@pytest.mark.parametrize(
    ("effects", "is_single", "resumer"),
    [
        (Local, False, Resumer.WORKER),
        (Local, True, Resumer.CLIENT),
        (Declared, False, Resumer.WORKER),
        (Opaque, False, Resumer.NOBODY),
    ],
)
def test_an_operation_can_be_resumed_by_a_worker_if_a_crash_leaves_a_record(
    effects: EffectsMode, is_single: bool, resumer: Resumer
) -> None:
    nebis = AsyncNebis("memory://")

    @nebis.operation("pay", effects=effects, single_transaction=is_single)
    async def pay(command: int) -> int:
        return command

    view = starlette.bind(pay, tenant=owner)(open_to_all)

    said = promise(view.__nebis__)  # type: ignore[attr-defined]

    assert (said.resumer, said.is_bound, said.name) == (resumer, True, "pay")


def test_the_log_says_once_at_start_up_what_is_protected_and_warns_of_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nebis = AsyncNebis("memory://")
    inner = Starlette(
        routes=[
            Route("/payments", endpoint(nebis, "pay"), methods=["POST"]),
            Route("/refunds/{id}", open_to_all, methods=["POST"]),
            Route("/login", open_to_all, methods=["POST"]),
        ],
        middleware=AROUND,
        lifespan=starlette.lifespan(nebis),
    )

    with (
        caplog.at_level(logging.INFO, logger="nebis"),
        uvicorn_serving(asgi_rules.Protected(inner, rules=rules(nebis, "POST /refunds/*"))),
    ):
        pass

    block, warning = [record for record in caplog.records if record.name == "nebis"]
    after = "after a crash rolled back, then run again; resumed by its client's next request"
    assert (block.levelname, block.getMessage().splitlines()) == (
        "INFO",
        [
            "nebis protects 2 routes",
            f"  POST /payments: pay, effects local, key required, kept for 1 day; {after}",
            f"  POST /refunds/{{id}}: rule-0, effects local, key required, kept for 1 day; {after}",
        ],
    )
    assert warning.levelname == "WARNING"
    assert warning.getMessage().startswith("not protected, so that a retry runs again what it does: POST /login. ")


def test_a_table_that_cannot_be_read_does_not_stop_the_application(caplog: pytest.LogCaptureFixture) -> None:
    nebis = AsyncNebis("memory://")
    app = Starlette(routes=[Route("/payments", open_to_all, methods=["POST"])], lifespan=starlette.lifespan(nebis))
    app.routes[0].path = None  # type: ignore[attr-defined]  # Something that no reader expects.

    with caplog.at_level(logging.WARNING, logger="nebis"), uvicorn_serving(app):
        pass

    assert "nebis could not list the routes of this application" in caplog.text


def test_an_unprotected_endpoint_has_a_reason_and_is_not_protected_as_well() -> None:
    protected = endpoint(AsyncNebis("memory://"), "pay")

    with pytest.raises(ConfigError, match="give one"):
        unprotected(" ")
    with pytest.raises(ConfigError, match="protected and unprotected"):
        unprotected("it only reads")(protected)
