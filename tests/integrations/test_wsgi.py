"""A plain WSGI application, protected by rules from outside, with all that the suite asks in full on SQLite."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest

from nebis import Nebis
from nebis.http import Exchange
from nebis.integrations.wsgi import Protected, idempotency_tokens, operation_status, rule
from nebis.integrations.wsgi_request import send
from nebis.testing.http_conformance import BRIEFLY, FULL, ROUTES, TENTH, Denied, Disguised, Scenarios, Service
from nebis.testing.http_conformance.suite import *  # noqa: F403 - the suite is what this module runs.
from tests.integrations.wsgi_servers import gunicorn_serving, waitress_serving

# Ten thousand requests take their time, and more on a machine that does other things as well.
pytestmark = pytest.mark.timeout(600)

SERVERS: dict[str, Callable[[Any], AbstractContextManager[tuple[str, int]]]] = {
    "waitress": waitress_serving,
    "gthread": partial(gunicorn_serving, is_sync=False),
    "sync": partial(gunicorn_serving, is_sync=True),
}


def application(nebis: Nebis, scenarios: Scenarios) -> Any:
    rules = [
        rule(
            nebis,
            f"POST {route.path}",
            route.name,
            effects=route.effects,
            tenant=route.tenant or (lambda environ: environ["tenant"]),
            **route.choices(scenarios),
        )
        for route in ROUTES
    ]
    inner = Protected(acting(scenarios), rules=rules)
    mounted = {
        "operations": operation_status(nebis, tenant=lambda environ: environ["tenant"]),
        "idempotency-tokens": idempotency_tokens(nebis, tenant=lambda environ: environ["tenant"]),
        "brief-tokens": idempotency_tokens(nebis, tenant=lambda environ: environ["tenant"], lifetime=BRIEFLY),
    }
    unguarded = {route.path for route in ROUTES if route.is_public}

    def authenticated(environ: Any, start_response: Any) -> Iterable[bytes]:
        try:
            if environ["PATH_INFO"] not in unguarded:
                environ["tenant"] = scenarios.tenant(environ.get("HTTP_AUTHORIZATION"))
        except Denied as denied:
            return send(Exchange(status=denied.status), start_response)
        return mounted.get(environ["PATH_INFO"].split("/")[1], inner)(environ, start_response)

    return authenticated


def acting(scenarios: Scenarios) -> Any:
    def act(environ: Any, start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        is_json = environ.get("CONTENT_TYPE") == "application/json"
        try:
            return send(scenarios.act(json.loads(body) if is_json else None), start_response)
        except Disguised as disguised:
            return send(Exchange(status=disguised.status), start_response)

    return act


@pytest.fixture(
    scope="module", params=[("waitress", "sqlite"), ("gthread", "postgres"), ("sync", "sqlite")], ids="-".join
)
def combination(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Which server on which store."""
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture(scope="module")
def store(combination: tuple[str, str]) -> str:
    return combination[1]


@pytest.fixture(scope="module")
def service(combination: tuple[str, str], store_url: str) -> Iterator[Service]:
    server, _ = combination
    scenarios = Scenarios()
    with Nebis(store_url) as nebis, SERVERS[server](application(nebis, scenarios)) as address:
        yield Service(address=address, scenarios=scenarios, sizes=FULL if server == "waitress" else TENTH)
