"""What is particular to Starlette: class-based endpoints, streams that break, functions that validate."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser, has_required_scope, requires
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from nebis import AsyncAttempt, AsyncNebis, ConfigError, Declared, Local, Nebis, Opaque, Rejected
from nebis.http import ProxyHeader
from nebis.integrations.starlette import NebisMiddleware, bind, idempotent, lifespan
from nebis.testing.http_conformance import Client
from nebis.testing.http_conformance.client import new_key
from tests.integrations.servers import uvicorn_serving

runs: Counter[str] = Counter()


def tenant(_request: Request) -> str:
    return "acct-1"


@contextmanager
def serving(nebis: AsyncNebis | Nebis, *routes: Route, middleware: list[Middleware] | None = None) -> Iterator[Client]:
    installed = [Middleware(NebisMiddleware)] if middleware is None else middleware
    app = Starlette(routes=routes, middleware=installed, lifespan=lifespan(nebis))
    with uvicorn_serving(app) as address:
        yield Client(address)


def post(path: str, endpoint: Any) -> Route:
    return Route(path, endpoint, methods=["POST"])


def test_a_method_of_a_class_is_protected_like_a_function() -> None:
    nebis = AsyncNebis("memory://")

    class Things(HTTPEndpoint):
        @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
        async def post(self, request: Request) -> Response:
            runs[(await request.json())["tag"]] += 1
            return JSONResponse({"id": str(uuid4())})

    with serving(nebis, Route("/things", Things)) as client:
        key = new_key()
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]

    assert first.status == 200
    assert again.body == first.body
    assert runs[key] == 1


def test_a_plain_function_runs_on_a_thread_with_either_facade() -> None:
    for nebis in (AsyncNebis("memory://"), Nebis("memory://")):

        @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
        def make(request: Request) -> Response:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            return JSONResponse({"id": str(uuid4())})

        with serving(nebis, post("/things", make)) as client:
            key = new_key()
            first, again = [client.post("/things", {}, key=key) for _ in range(2)]

        assert first.status == 200
        assert (again.body, again.is_replay) == (first.body, True)


def test_a_stream_that_breaks_sends_nothing_and_frees_its_key() -> None:
    nebis = AsyncNebis("memory://")
    breaks = [True]

    @idempotent(nebis, "make", effects=Local, tenant=tenant)
    async def make(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"half"
            if breaks:
                breaks.pop()
                raise RuntimeError("broken")
            yield b" and half"

        return StreamingResponse(pieces())

    with serving(nebis, post("/things", make)) as client:
        key = new_key()
        broken, whole, again = [client.post("/things", {}, key=key) for _ in range(3)]

    assert (broken.status, b"half" in broken.body) == (500, False)
    assert (whole.status, whole.body, whole.is_replay) == (200, b"half and half", False)
    assert (again.body, again.is_replay) == (whole.body, True)


def test_what_the_validating_function_refuses_leaves_the_key_unused() -> None:
    nebis = AsyncNebis("memory://")

    async def amount(request: Request) -> int:
        given = (await request.json()).get("amount")
        if not isinstance(given, int):
            raise HTTPException(422)
        return given

    @idempotent(nebis, "make", effects=Opaque, tenant=tenant, command=amount)
    async def make(request: Request) -> Response:
        return JSONResponse({"amount": (await request.json())["amount"], "id": str(uuid4())})

    with serving(nebis, post("/things", make)) as client:
        key = new_key()
        wrong = client.post("/things", {"amount": "x"}, key=key)
        first = client.post("/things", {"amount": 1, "note": "volatile"}, key=key)
        again = client.post("/things", {"amount": 1, "note": "another"}, key=key)
        other = client.post("/things", {"amount": 2}, key=key)

    assert [wrong.status, first.status, again.status, other.status] == [422, 200, 200, 422]
    assert again.body == first.body
    assert other.code == "key-reused"


def test_the_path_counts() -> None:
    nebis = AsyncNebis("memory://")

    @idempotent(nebis, "pay", effects=Opaque, tenant=tenant, command=lambda _request: 1)
    async def pay(request: Request) -> Response:
        return JSONResponse(request.path_params)

    with serving(nebis, post("/accounts/{account}/payments", pay)) as client:
        key = new_key()
        first = client.post("/accounts/17/payments", {}, key=key)
        other = client.post("/accounts/18/payments", {}, key=key)

    assert first.json() == {"account": "17"}
    assert (other.status, other.code) == (422, "key-reused")


def test_effects_of_a_declared_endpoint_are_made_once_over_attempts() -> None:
    """E1: the second request resumes after the recorded effect."""
    from nebis.effects import Sticky
    from nebis.policy import hours

    nebis = AsyncNebis("memory://")
    charged: list[str] = []
    breaks = [True]

    async def charge(amount: int, *, idempotency_key: str) -> str:
        charged.append(idempotency_key)
        return f"charge of {amount}"

    @idempotent(nebis, "pay", effects=Declared, tenant=tenant)
    async def pay(request: Request, attempt: AsyncAttempt) -> Response:
        told = await attempt.effect("charge", charge, 5, recall=Sticky(hours(1)))
        if breaks:
            breaks.pop()
            raise RuntimeError("after the charge")
        return JSONResponse({"told": told})

    with serving(nebis, post("/payments", pay)) as client:
        key = new_key()
        failed, resumed, again = [client.post("/payments", {}, key=key) for _ in range(3)]

    assert [failed.status, resumed.status, again.status] == [500, 200, 200]
    assert again.body == resumed.body
    assert len(charged) == 1


def test_a_rejection_of_a_bound_operation_has_the_status_of_its_route() -> None:
    nebis = AsyncNebis("memory://")

    @nebis.operation("pay", effects=Local)
    async def pay(command: int) -> str:
        runs["bound"] += 1
        if command > 10:
            raise Rejected("card-declined")
        return "paid"

    @bind(pay, tenant=tenant, rejected_status=402)
    async def payments(request: Request) -> int:
        return int((await request.json())["amount"])

    with serving(nebis, post("/payments", payments)) as client:
        key = new_key()
        paid = [client.post("/payments", {"amount": 5}, key=key) for _ in range(2)]
        declined = [client.post("/payments", {"amount": 50}, key=f"{key}-2") for _ in range(2)]
        other = client.post("/payments", {"amount": 6}, key=key)

    assert [(reply.status, reply.json(), reply.is_replay) for reply in paid] == [
        (200, "paid", False),
        (200, "paid", True),
    ]
    assert [(reply.status, reply.code) for reply in declined] == [(402, "rejected")] * 2
    assert (other.status, other.code) == (422, "key-reused")
    assert runs["bound"] == 2


class Accounts(AuthenticationBackend):
    """Who calls, and with which rights; both may change."""

    def __init__(self) -> None:
        self.rights: dict[str, list[str]] = {}

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser] | None:
        token = conn.headers.get("authorization", "").removeprefix("Bearer ")
        return (AuthCredentials(self.rights[token]), SimpleUser(token)) if token in self.rights else None


def test_who_lost_a_right_is_not_told_what_was_stored_below_or_above_the_decorator_that_asks_for_it() -> None:
    """SEC03: a replay passes by what stands below ours, so that whoever may refuse is above or is `authorize`."""
    nebis, accounts = AsyncNebis("memory://"), Accounts()

    def asking(request: Request) -> None:
        if not has_required_scope(request, ["pay"]):
            raise HTTPException(403)

    async def pay(request: Request) -> Response:
        return JSONResponse({"secret": str(uuid4())})

    def protect(name: str, **options: Any) -> Any:
        return idempotent(nebis, name, effects=Local, tenant=lambda request: request.user.display_name, **options)

    routes = [
        post("/above", requires("pay")(protect("above")(pay))),
        post("/below", protect("below", authorize=asking)(requires("pay")(pay))),
    ]
    with pytest.raises(ConfigError, match="a decorator stands below"):
        protect("careless")(requires("pay")(pay))
    around = [Middleware(AuthenticationMiddleware, backend=accounts), Middleware(NebisMiddleware)]
    key = new_key()
    with serving(nebis, *routes, middleware=around) as client:
        accounts.rights["acct-1"] = ["pay"]
        first = [client.post(path, {}, key=key) for path in ("/above", "/below")]
        replayed = [client.post(path, {}, key=key) for path in ("/above", "/below")]
        accounts.rights["acct-1"] = []
        downgraded = [client.post(path, {}, key=key) for path in ("/above", "/below")]
        del accounts.rights["acct-1"]
        revoked = [client.post(path, {}, key=key) for path in ("/above", "/below")]

    assert [reply.is_replay for reply in first + replayed] == [False, False, True, True]
    assert {reply.status for reply in downgraded + revoked} == {403}
    assert not any(b"secret" in reply.body for reply in downgraded + revoked)


def test_another_command_is_refused_once_a_single_transaction_ended(postgres_url: str) -> None:
    """P2: before its only commit there is nothing to compare with; afterwards there is."""
    nebis = AsyncNebis(postgres_url)

    @nebis.operation("pay", effects=Local, single_transaction=True)
    async def pay(attempt: AsyncAttempt, command: dict[str, int]) -> str:
        async with attempt.transaction() as tx:
            tx.finish(f"paid {command['amount']}")
        return f"paid {command['amount']}"

    @bind(pay, tenant=tenant)
    async def payments(request: Request) -> Any:
        return await request.json()

    key = new_key()
    with serving(nebis, post("/payments", payments)) as client:
        first, again = [client.post("/payments", {"amount": 1}, key=key) for _ in range(2)]
        other = client.post("/payments", {"amount": 2}, key=key)

    assert (first.status, first.json(), first.is_replay) == (200, "paid 1", False)
    assert (again.body, again.is_replay) == (first.body, True)
    assert (other.status, other.code) == (422, "key-reused")


def test_a_tenant_header_is_believed_from_a_proxy_only() -> None:
    """SEC01."""
    outcomes = []
    for network in ("127.0.0.0/8", "192.0.2.0/24"):
        nebis = AsyncNebis("memory://")

        @idempotent(nebis, "make", effects=Opaque, tenant=ProxyHeader("X-Tenant", (network,)))
        async def make(request: Request) -> Response:
            return JSONResponse({})

        with serving(nebis, post("/things", make)) as client:
            outcomes.append(client.post("/things", {}, key=new_key(), headers=[("X-Tenant", "acct-1")]).status)

    assert outcomes == [200, 401]


def test_an_endpoint_without_the_middleware_runs_nothing() -> None:
    nebis = AsyncNebis("memory://")

    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    async def make(request: Request) -> Response:
        runs["unguarded"] += 1
        return JSONResponse({})

    with serving(nebis, post("/things", make), middleware=[]) as client:
        reply = client.post("/things", {}, key=new_key())

    assert reply.status == 500
    assert runs["unguarded"] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"key": "required"},
        {"single_transaction": True},
        {"store_headers": ["Connection"]},
        {"lease": 30},
        {"unknown": 1},
        {"tenant": ProxyHeader("X-Tenant", ())},
        {"tenant": ProxyHeader("X-Tenant", ("everywhere",))},
    ],
    ids=str,
)
def test_a_choice_that_cannot_work_is_refused_at_start_up(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        idempotent(AsyncNebis("memory://"), "make", effects=Local, **{"tenant": tenant, **options})
