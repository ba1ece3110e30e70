"""`nebis check` on applications of every framework: what it says, and how it ends."""

import json
import re
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from nebis.cli import check
from nebis.errors import ConfigError
from nebis.integrations.report import Report
from nebis.integrations.routetable import report_of
from tests.cli import checked_shop
from tests.cli.command import nebis
from tests.cli.scenes import check_snapshot, drawn_in_colour
from tests.tidy.repository import ROOT

SHOP = "tests.cli.checked_shop"
DJANGO = {
    "settings.py": """
        SECRET_KEY = "x"
        ROOT_URLCONF = "shop.urls"
        USE_TZ = True
        INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "rest_framework"]
        DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
        MIDDLEWARE = []
    """,
    "urls.py": """
        from django.http import HttpResponse
        from django.urls import include, path, re_path
        from django.views import View
        from django.views.decorators.http import require_GET, require_POST
        from rest_framework.decorators import api_view
        from rest_framework.routers import DefaultRouter
        from rest_framework.viewsets import ViewSet

        from nebis import Local, Nebis
        from nebis.integrations import drf
        from nebis.integrations.django import views
        from nebis.integrations.report import unprotected

        nebis = Nebis("memory://")
        options = {"effects": Local, "tenant": lambda request: "acct-1"}

        @require_POST
        @views.idempotent(nebis, "pay", **options)
        def pay(request): ...
        class Payment(View):
            @views.idempotent(nebis, "change", **options)
            def patch(self, request): ...
        @api_view(["POST"])
        @drf.idempotent(nebis, "order", **options)
        def order(request): ...
        class Gifts(ViewSet):
            @drf.idempotent(nebis, "give", **options)
            def create(self, request): ...

        def anything(request): ...
        @require_GET
        def reads(request): ...
        @require_POST
        def writes(request, number): ...
        class Order(View):
            def get(self, request, id): ...
            def patch(self, request, id): ...
        @api_view(["GET", "POST"])
        @unprotected("it only counts")
        def count(request): ...
        class Things(ViewSet):
            def list(self, request): ...
            def create(self, request): ...
            def destroy(self, request, pk): ...
        router = DefaultRouter()
        router.register("things", Things, basename="things")
        router.register("gifts", Gifts, basename="gifts")
        urlpatterns = [
            path("pay", pay),
            path("payment", Payment.as_view()),
            path("order", order),
            path("anything", anything),
            path("reads", reads),
            re_path(r"^writes/(?P<number>[0-9]+)/$", writes),
            path("orders/<uuid:id>", Order.as_view()),
            path("api/", include([path("count", count), path("", include(router.urls))])),
        ]
    """,
    "ruled.py": """
        from shop.settings import *

        MIDDLEWARE = ["nebis.integrations.django.middleware.NebisMiddleware"]
        NEBIS_RULES = "shop.rules.RULES"
    """,
    "rules.py": """
        from nebis import Local, Nebis
        from nebis.integrations.django.middleware import rule

        RULES = [rule(Nebis("memory://"), "POST /writes/**", "write", effects=Local, tenant=lambda request: "acct-1")]
    """,
    "wsgi.py": """
        import os

        from django.core.wsgi import get_wsgi_application

        os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
        application = get_wsgi_application()
    """,
}


def project(directory: Path, files: dict[str, str]) -> str:
    """Write a package `shop`; return where it is to be looked for."""
    (directory / "shop").mkdir()
    for name, text in files.items():
        (directory / "shop" / name).write_text(dedent(text))
    return str(directory)


def report(app: object, *allowed: str) -> Report:
    return report_of(app).allowing(allowed)


@pytest.mark.parametrize("name", ["app", "careless"])
def test_each_route_is_shown_plain_and_in_colour(name: str) -> None:
    found = report(getattr(checked_shop, name), *(["POST /hooks/{any}"] if name == "careless" else []))

    check_snapshot(f"check/{name}.txt", "\n".join(check.lines(found)))
    for width in (100, 160):
        check_snapshot(f"check/{name}-{width}.ansi", drawn_in_colour((check.painted(found, width), False), width=width))


def test_an_application_all_of_whose_routes_are_protected_passes_even_with_a_warning() -> None:
    outcome = nebis("check", f"{SHOP}:app")

    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout == "\n".join([*check.lines(report(checked_shop.app)), ""])
    assert "\nwarn  " in outcome.stdout


def test_an_unprotected_route_fails_the_check_and_is_named_for_programs() -> None:
    outcome = nebis("check", f"{SHOP}:careless", "--json", "--allow", "POST /login")

    said = json.loads(outcome.stdout)
    assert (outcome.status, said["passed"]) == (1, False)
    assert said["unprotected"] == [
        {"method": "POST", "path": "/hooks/{name}", "endpoint": "tests.cli.checked_shop.receive_hook"}
    ]
    assert [entry["path"] for entry in said["allowed"]] == ["/search", "/login"]
    assert [fault.partition(":")[0] for fault in said["faults"]] == ["POST /gifts"]
    assert said["protected"][3] == {
        "method": "POST",
        "path": "/refunds",
        "name": "refund",
        "kind": "operation",
        "effects": "declared",
        "key": "required",
        "retention_seconds": 86400.0,
        "after_a_crash": "resumed after its last effect",
        "resumed_by": "worker",
    }


def test_a_warning_fails_only_if_that_is_asked_for() -> None:
    stale = nebis("check", f"{SHOP}:app", "--allow", "POST /gone", "--strict")

    assert stale.status == 1
    assert "warn  POST /gone is allowed to be unprotected, and no such route is; take it off the list" in stale.stdout
    assert "session ends after the answer is stored and sent" in stale.stdout


def test_a_function_that_makes_the_application_is_called() -> None:
    outcome = nebis("check", f"{SHOP}:make_flask")

    assert outcome.status == 1
    assert "fail  POST /payments/{number} is not protected, so that a retry runs it again" in outcome.stdout
    assert outcome.stdout.endswith("0 routes protected, 1 not\n")


@pytest.mark.parametrize("target", ["shop.settings", "shop.wsgi"])
def test_a_django_project_is_named_by_its_settings_or_its_application(tmp_path: Path, target: str) -> None:
    outcome = nebis("check", target, "--json", PYTHONPATH=project(tmp_path, DJANGO))

    said = json.loads(outcome.stdout)
    assert (outcome.status, outcome.stderr) == (1, "")
    assert [f"{one['method']} {one['path']} {one['name']}" for one in said["protected"]] == [
        "POST /pay pay",
        "PATCH /payment change",
        "POST /order order",
        "POST /api/gifts/ give",
    ]
    assert [f"{one['method']} {one['path']} {one['endpoint']}" for one in said["unprotected"]] == [
        "ANY /anything shop.urls.anything",
        "POST /writes/{number}/ shop.urls.writes",
        "PATCH /orders/{id} shop.urls.Order.patch",
        "POST /api/things/ shop.urls.Things.create",
    ]
    assert said["allowed"] == [{"method": "POST", "path": "/api/count", "reason": "it only counts"}]


def test_rules_in_the_settings_of_a_django_project_protect_its_routes(tmp_path: Path) -> None:
    allowed = ("--allow", "POST /anything")
    outcome = nebis("check", "shop.ruled", "--json", *allowed, PYTHONPATH=project(tmp_path, DJANGO))

    said = json.loads(outcome.stdout)
    assert [one["path"] for one in said["protected"] if one["name"] == "write"] == ["/writes/{number}/"]
    assert [one["path"] for one in said["unprotected"]] == ["/orders/{id}", "/api/things/"]
    assert said["warnings"] == []


BROKEN = {
    "lacking.py": "import a_library_that_is_not_there",
    "empty.py": "",
    "wrong.py": "from nebis import Nebis\nnebis = Nebis('memory://')\nNebis.operation(nebis, 'x')(lambda: 1)",
    "secret.py": "raise RuntimeError('postgresql://shop:hunter2@db/shop')",
    "plain.py": "from nebis import Nebis\nnebis = Nebis('memory://')\napp = 17\nasync def asgi(scope, receive): ...",
}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (":app", "name the application as package.module:app"),
        ("shop.absent:app", "there is no module 'shop.absent'"),
        (
            "shop.lacking:app",
            "shop.lacking failed at lacking.py:1 with ModuleNotFoundError: No module named 'a_library",
        ),
        ("shop.empty", "shop.empty has neither an app nor an application"),
        ("shop.empty:app", "shop.empty has no 'app'"),
        ("shop.wrong:app", "say what the operation does outside its record"),
        ("shop.secret:app", "shop.secret failed at secret.py:1 with RuntimeError; correct it"),
        ("shop.plain:nebis", "shop.plain:nebis is a Nebis; name the web application that it protects"),
        ("shop.plain:app", "int is no application that nebis knows"),
        ("shop.plain:asgi", "shop.plain.asgi is no application that nebis knows"),
        (f"{SHOP}:make_nothing", "with ValueError; correct it"),
    ],
)
def test_a_target_that_is_no_application_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, said: str
) -> None:
    monkeypatch.setattr(sys, "path", [project(tmp_path, BROKEN), *sys.path])
    monkeypatch.setattr(sys, "modules", sys.modules.copy())

    with pytest.raises(ConfigError) as refused:
        report_of(check.application(target))

    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_failing_application_is_explained_in_one_line(tmp_path: Path) -> None:
    outcome = nebis("check", "shop.secret:app", PYTHONPATH=project(tmp_path, BROKEN))

    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr == "nebis: shop.secret failed at secret.py:1 with RuntimeError; correct it\n"


def test_the_how_to_page_shows_what_is_printed_and_its_snippet_works() -> None:
    page = (ROOT / "docs" / "how-to" / "check.md").read_text()
    [shown] = re.findall(r"^```console\n\$ nebis (.*?)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    [snippet] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    program: dict[str, Any] = {"__name__": "snippet"}

    outcome = nebis(*shown[0].split(), PYTHONPATH=str(ROOT / "examples"))
    exec(snippet, program)

    assert (outcome.status, outcome.stdout) == (0, shown[1])
    assert [(one.shown, why) for one, why in report(program["app"]).allowed] == [("POST /search", "it only reads")]


def test_an_allowance_that_is_no_route_is_refused() -> None:
    outcome = nebis("check", f"{SHOP}:app", "--allow", "/login")

    assert (outcome.status, outcome.stdout) == (2, "")
    assert "'/login' is no pattern; write a method and a path" in outcome.stderr
