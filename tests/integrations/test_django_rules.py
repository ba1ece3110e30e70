"""Rules by method and path for a whole Django project, as middleware."""

from collections import Counter
from typing import Any
from uuid import uuid4

import pytest
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from nebis import AsyncNebis, ConfigError, Local, Nebis, Opaque
from nebis.integrations.django.middleware import ATTEMPT, AsyncNebisMiddleware, NebisMiddleware, rule
from nebis.integrations.django.views import idempotent
from nebis.testing.http_conformance.client import new_key
from tests.integrations.django_project import COMMON, account, project, serving

runs: Counter[str] = Counter()
ours: list[Any] = []
"""The rules of the test that is running; the settings name them."""
MIDDLEWARE = {
    False: [COMMON, "nebis.integrations.django.middleware.NebisMiddleware"],
    True: [COMMON, "nebis.integrations.django.middleware.AsyncNebisMiddleware"],
}


def view(request: HttpRequest, kind: str) -> HttpResponse:
    runs[request.body.decode()] += 1
    if kind == "missing":
        raise Http404
    if kind == "crash":
        raise RuntimeError("a bug")
    has_attempt = request.META.get(ATTEMPT) is not None
    return JsonResponse({"id": str(uuid4()), "attempt": has_attempt}, status=201)


async def view_async(request: HttpRequest, kind: str) -> HttpResponse:
    return view(request, kind)


async def plain_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_the_first_rule_that_matches_protects_a_request(is_async: bool) -> None:
    def declare(nebis: Any) -> list[Any]:
        ours[:] = [
            rule(nebis, "POST /api/crash", "crash", effects=Opaque, tenant=account),
            rule(nebis, "POST /api/*", "api", effects=Local, tenant=account),
        ]
        return [path("api/<str:kind>", view_async if is_async else view), path("other/<str:kind>", view)]

    rules = f"{__name__}.ours"
    with serving(declare, is_async=is_async, middleware=MIDDLEWARE[is_async], NEBIS_RULES=rules) as client:
        keys = [new_key() for _ in range(4)]
        places = ["/api/pay", "/api/missing", "/api/crash", "/other/pay"]
        pay, missing, crash, other = [
            [client.post(place, {"tag": key}, key=key) for _ in range(2)]
            for place, key in zip(places, keys, strict=True)
        ]
        elsewhere = client.post("/api/pay2", {"tag": keys[0]}, key=keys[0])
        nobody = type(client)(client.address, None).post("/api/pay", {"tag": keys[0]}, key=keys[0])
        nameless = client.post("/api/pay", {})

    assert [(reply.status, reply.is_replay) for reply in pay] == [(201, False), (201, True)]
    assert pay[0].body == pay[1].body
    assert pay[0].json()["attempt"] is True
    assert [(reply.status, reply.is_replay) for reply in missing] == [(404, False), (404, True)]
    assert [(reply.status, reply.code) for reply in crash] == [(409, "outcome-unknown")] * 2
    assert [reply.is_replay for reply in other] == [False, False]
    assert (elsewhere.status, elsewhere.code) == (422, "key-reused"), "the whole path counts"
    assert (nobody.status, nobody.code) == (401, "tenant-missing")
    assert (nameless.status, nameless.code) == (400, "key-missing")


def test_a_view_that_is_also_decorated_runs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def declare(nebis: Nebis) -> list[Any]:
        ours[:] = [rule(nebis, "POST /**", "api", effects=Local, tenant=account)]
        return [path("pay/<str:kind>", idempotent(nebis, "pay", effects=Local, tenant=account)(view))]

    with serving(declare, middleware=MIDDLEWARE[False], NEBIS_RULES=ours) as client:
        key = new_key()
        reply = client.post("/pay/x", {"tag": key}, key=key)

    assert reply.status == 500
    assert "protected twice" in caplog.text
    assert runs[f'{{"tag": "{key}"}}'] == 0


def test_rules_of_the_other_kind_and_missing_ones_are_refused_at_start_up() -> None:
    blocking = [rule(Nebis("memory://"), "POST /**", "api", effects=Local, tenant=account)]
    awaited = [rule(AsyncNebis("memory://"), "POST /**", "api", effects=Local, tenant=account)]

    with project([], NEBIS_RULES=awaited), pytest.raises(ConfigError, match="install AsyncNebisMiddleware"):
        NebisMiddleware(HttpResponse)
    with project([], NEBIS_RULES=blocking), pytest.raises(ConfigError, match="install NebisMiddleware"):
        AsyncNebisMiddleware(plain_async)
    with pytest.raises(ConfigError, match="NEBIS_RULES"):
        NebisMiddleware(HttpResponse)
