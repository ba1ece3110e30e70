"""What is particular to Flask: decorators around the view, classes, bound operations, proxies, start-up."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from flask import (
    Flask,
    abort,
    g,
    request,
)
from flask.views import MethodView
from werkzeug.middleware.proxy_fix import ProxyFix

from nebis import AsyncNebis, Attempt, ConfigError, Declared, Local, Nebis, Opaque, Rejected
from nebis.http import Exchange, OptionalKey, ProxyHeader
from nebis.integrations.flask import bind, idempotent, operation_status
from nebis.integrations.wsgi import Protected, rule
from nebis.testing.http_conformance.client import new_key
from tests.integrations.flask_shop import serving, tenant, twice


@pytest.fixture
def nebis() -> Iterator[Nebis]:
    with Nebis("memory://") as opened:
        yield opened


@pytest.fixture
def app() -> Flask:
    made = Flask(__name__)
    made.secret_key = "secret"
    return made


class Directory:
    """Who may do what, as an application's own decorators look it up."""

    def __init__(self) -> None:
        self.users = {"Bearer acct-1": "admin"}

    def login_required(self, view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def checked(*arguments: Any, **named: Any) -> Any:
            g.role = self.users.get(request.headers.get("Authorization", ""))
            if g.role is None:
                abort(401)
            return view(*arguments, **named)

        return checked

    def admin_required(self, view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def checked(*arguments: Any, **named: Any) -> Any:
            self.authorize()
            return view(*arguments, **named)

        return checked

    def tenant(self) -> str:
        if request.headers.get("Authorization", "") not in self.users:
            abort(401)
        return "acct-1"

    def authorize(self) -> None:
        if self.users.get(request.headers.get("Authorization", "")) != "admin":
            abort(403)


@pytest.mark.parametrize("is_below", [True, False], ids=["below", "above"])
def test_who_lost_a_right_never_sees_a_stored_answer(app: Flask, nebis: Nebis, is_below: bool) -> None:
    """SEC03: with the decorators of the application above ours, and below it, where they do not run for a replay."""
    directory = Directory()

    def make() -> dict[str, str]:
        return {"id": str(uuid4())}

    if is_below:
        ours = idempotent(nebis, "make", effects=Opaque, tenant=lambda: "acct-1")
        view = directory.login_required(directory.admin_required(ours(make)))
    else:
        ours = idempotent(nebis, "make", effects=Opaque, tenant=directory.tenant, authorize=directory.authorize)
        view = ours(directory.login_required(directory.admin_required(make)))
    app.post("/things", endpoint="make")(view)

    with serving(app) as client:
        key = new_key()
        first = client.post("/things", {}, key=key)
        directory.users["Bearer acct-1"] = "reader"
        downgraded = client.post("/things", {}, key=key)
        directory.users.clear()
        revoked = client.post("/things", {}, key=key)
        directory.users["Bearer acct-1"] = "admin"
        again = client.post("/things", {}, key=key)

    assert [first.status, downgraded.status, revoked.status, again.status] == [200, 403, 401, 200]
    assert not any(first.json()["id"].encode() in reply.body for reply in (downgraded, revoked))
    assert (again.body, again.is_replay) == (first.body, True)


def test_decorators_that_a_replay_would_skip_are_refused(nebis: Nebis) -> None:
    """SEC03."""
    guarded = Directory().login_required(lambda: "made")

    with pytest.raises(ConfigError, match="authorize="):
        idempotent(nebis, "refused", effects=Opaque, tenant=tenant)(guarded)

    idempotent(nebis, "told", effects=Opaque, tenant=tenant, authorize=lambda: None)(guarded)


def test_the_path_counts(app: Flask, nebis: Nebis) -> None:
    @app.post("/accounts/<int:account>/payments")
    @idempotent(nebis, "pay", effects=Opaque, tenant=tenant)
    def pay(account: int) -> dict[str, int]:
        return {"account": account}

    with serving(app) as client:
        key = new_key()
        first = client.post("/accounts/17/payments", {}, key=key)
        other = client.post("/accounts/18/payments", {}, key=key)

    assert first.json() == {"account": 17}
    assert (other.status, other.code) == (422, "key-reused")


def test_effects_of_a_declared_view_are_made_once_over_attempts(app: Flask, nebis: Nebis) -> None:
    """E1: the second request resumes after the recorded effect."""
    from nebis.effects import Sticky
    from nebis.policy import hours

    charged: list[str] = []
    breaks = [True]

    def charge(amount: int, *, idempotency_key: str) -> str:
        charged.append(idempotency_key)
        return f"charge of {amount}"

    @app.post("/things")
    @idempotent(nebis, "pay", effects=Declared, tenant=tenant)
    def pay(attempt: Attempt) -> dict[str, str]:
        told = attempt.effect("charge", charge, 5, recall=Sticky(hours(1)))
        if breaks:
            breaks.pop()
            raise RuntimeError("after the charge")
        return {"told": told}

    with serving(app) as client:
        key = new_key()
        failed, resumed, again = [client.post("/things", {}, key=key) for _ in range(3)]

    assert [failed.status, resumed.status, again.status] == [500, 200, 200]
    assert again.body == resumed.body
    assert len(charged) == 1


def test_a_bound_operation_has_its_own_renderer_and_the_status_of_its_route(app: Flask, nebis: Nebis) -> None:
    runs: Counter[int] = Counter()

    @nebis.operation("pay", effects=Local)
    def pay(command: int) -> str:
        runs[command] += 1
        if command > 10:
            raise Rejected("card-declined")
        return "paid"

    @app.post("/payments")
    @bind(
        pay,
        tenant=tenant,
        key=OptionalKey(),
        rejected_status=402,
        render=lambda result: Exchange(status=201, headers=(("content-type", "text/plain"),), body=result.encode()),
    )
    def payments() -> int:
        amount = request.get_json().get("amount")
        if amount is None:
            abort(422)
        return int(amount)

    with serving(app) as client:
        key = new_key()
        invalid = client.post("/payments", {}, key=key)
        paid = [client.post("/payments", {"amount": 5}, key=key) for _ in range(2)]
        declined = [client.post("/payments", {"amount": 50}, key=f"{key}-2") for _ in range(2)]
        other = client.post("/payments", {"amount": 6}, key=key)
        without = [client.post("/payments", {"amount": 7}) for _ in range(2)]

    assert invalid.status == 422
    assert [(reply.status, reply.body, reply.is_replay) for reply in paid] == [
        (201, b"paid", False),
        (201, b"paid", True),
    ]
    assert [(reply.status, reply.code) for reply in declined] == [(402, "rejected")] * 2
    assert (other.status, other.code) == (422, "key-reused")
    assert [reply.status for reply in without] == [201, 201]
    assert runs == Counter({5: 1, 50: 1, 7: 2})


def test_a_method_of_a_class_is_protected_and_a_safe_one_is_not_asked_for_a_key(app: Flask, nebis: Nebis) -> None:
    class Things(MethodView):
        decorators: ClassVar[list[Callable[..., Any]]] = [idempotent(nebis, "things", effects=Opaque, tenant=tenant)]

        def get(self) -> dict[str, str]:
            return {"id": str(uuid4())}

        def post(self) -> dict[str, str]:
            return {"id": str(uuid4())}

    app.add_url_rule("/things", view_func=Things.as_view("things"))
    with serving(app) as client:
        reads = [client.get("/things") for _ in range(2)]
        first, again = twice(client)

    assert [reply.status for reply in reads] == [200, 200]
    assert reads[0].body != reads[1].body
    assert (again.body, again.is_replay) == (first.body, True)


def test_a_tenant_header_is_believed_from_a_proxy_only(nebis: Nebis) -> None:
    """SEC01: whatever address a client writes into X-Forwarded-For."""
    outcomes = []
    for number, network in enumerate(("127.0.0.0/8", "192.0.2.0/24")):
        app = Flask(__name__)

        @app.post("/things")
        @idempotent(nebis, f"make-{number}", effects=Opaque, tenant=ProxyHeader("X-Tenant", (network,)))
        def make() -> dict[str, str]:
            return {}

        headers = [("X-Tenant", "acct-1"), ("X-Forwarded-For", "192.0.2.1")]
        with serving(ProxyFix(app)) as client:
            outcomes.append(client.post("/things", {}, key=new_key(), headers=headers).status)

    assert outcomes == [200, 401]


def test_a_view_that_a_rule_protects_already_runs_nothing(app: Flask, nebis: Nebis) -> None:
    runs: list[int] = []

    @app.post("/things")
    @idempotent(nebis, "inside", effects=Opaque, tenant=tenant)
    def make() -> str:
        runs.append(1)
        return ""

    outside = rule(nebis, "POST /things", "outside", effects=Local, tenant=lambda _environ: "acct-1")
    with serving(Protected(app, rules=[outside])) as client:
        reply = client.post("/things", {}, key=new_key())

    assert reply.status == 500
    assert not runs


def test_the_status_blueprint_may_be_mounted_elsewhere(app: Flask, nebis: Nebis) -> None:
    app.register_blueprint(operation_status(nebis, tenant=tenant, url_prefix="/v1/operations"))

    with serving(app) as client:
        reply = client.get(f"/v1/operations/{new_key()}")

    assert (reply.status, reply.code) == (404, "operation-unknown")


def test_what_cannot_work_is_refused_at_start_up(nebis: Nebis) -> None:
    asynchronous: Any = AsyncNebis("memory://")

    async def pay(command: int) -> None:
        pass

    def pieces() -> Iterator[str]:
        yield ""

    with pytest.raises(ConfigError, match="in place of AsyncNebis"):
        idempotent(asynchronous, "make", effects=Local, tenant=tenant)
    with pytest.raises(ConfigError, match="in place of AsyncNebis"):
        bind(asynchronous.operation("pay", effects=Local)(pay), tenant=tenant)
    with pytest.raises(ConfigError, match="piece by piece"):
        idempotent(nebis, "pieces", effects=Local, tenant=tenant)(pieces)
    with pytest.raises(ConfigError, match="tenant="):
        idempotent(nebis, "make", effects=Local)
