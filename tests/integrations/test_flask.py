"""Flask under waitress and gunicorn."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask, Response, abort, request
from werkzeug.exceptions import HTTPException

from nebis import Nebis
from nebis.integrations.flask import idempotency_tokens, idempotent, operation_status
from nebis.testing.http_conformance import BRIEFLY, ROUTES, Denied, Disguised, Route, Scenarios, Service
from nebis.testing.http_conformance.suite import *  # noqa: F403 - the suite is what this module runs.
from tests.integrations.wsgi_servers import gunicorn_serving, waitress_serving


class PaymentRequired(HTTPException):
    """A status that Werkzeug has no name for."""

    code = 402
    description = "Declined."


def application(nebis: Nebis, scenarios: Scenarios) -> Flask:
    app = Flask(__name__)

    def tenant() -> str:
        try:
            return scenarios.tenant(request.headers.get("Authorization"))
        except Denied as denied:
            abort(denied.status)

    def view(route: Route) -> Callable[[], Any]:
        @idempotent(nebis, route.name, effects=route.effects, tenant=route.tenant or tenant, **route.choices(scenarios))
        def act() -> Response:
            command = request.get_json() if request.mimetype == "application/json" else None
            try:
                exchange = scenarios.act(command)
            except Disguised as disguised:
                if disguised.status == 402:
                    raise PaymentRequired from disguised
                abort(disguised.status)
            response = Response(exchange.body, exchange.status)
            response.headers.clear()
            response.headers.extend(exchange.headers)
            return response

        return act

    for route in ROUTES:
        app.post(route.path, endpoint=route.name)(view(route))
    app.register_blueprint(operation_status(nebis, tenant=tenant))
    app.register_blueprint(idempotency_tokens(nebis, tenant=tenant))
    brief = idempotency_tokens(nebis, tenant=tenant, lifetime=BRIEFLY, url_prefix="/brief-tokens")
    app.register_blueprint(brief, name="brief_tokens")
    return app


@pytest.fixture(scope="module")
def service(store: str, store_url: str) -> Iterator[Service]:
    scenarios = Scenarios()
    with Nebis(store_url) as nebis:
        app = application(nebis, scenarios)
        with gunicorn_serving(app, is_sync=False) if store == "sqlite" else waitress_serving(app) as address:
            yield Service(address=address, scenarios=scenarios)
