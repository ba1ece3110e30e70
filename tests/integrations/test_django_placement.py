"""Where the decorator stands in Django: below who may refuse a caller, outside of transactions, shielded."""

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_required, permission_required, user_passes_test
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from nebis import AsyncAttempt, AsyncNebis, Attempt, ConfigError, Local, Nebis, Opaque
from nebis.integrations.django.views import bind, idempotent
from nebis.testing.http_conformance import Client, Reply
from nebis.testing.http_conformance.client import new_key
from tests.integrations.django_project import account, asgi_serving, serving, wsgi_serving
from tests.transactions.django_shop import Payment, database

PATIENCE_SECONDS = 20.0
runs: Counter[str] = Counter()
revoked: set[str] = set()
downgraded: set[str] = set()


class Authenticating:
    """A middleware that knows who calls, as that of Django does."""

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        name = account(request)
        is_known = name is not None and name not in revoked
        may = is_known and name not in downgraded

        async def is_permitted(_: Any) -> bool:
            return may

        async def known() -> Any:
            return request.user

        request.auser = known
        request.user = SimpleNamespace(
            account=name if is_known else None,
            is_authenticated=is_known,
            has_perms=lambda _: may,
            ahas_perms=is_permitted,
        )
        return self._get_response(request)


def made(key: str) -> JsonResponse:
    runs[key] += 1
    return JsonResponse({"id": str(uuid4())}, status=201)


def tag_of(request: HttpRequest) -> str:
    return str(json.loads(request.body)["tag"])


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_revoked_and_downgraded_callers_never_see_a_stored_body_below_who_refuses_them(is_async: bool) -> None:
    """SEC03; and two tenants with one key are two."""

    def declare(nebis: Any) -> list[Any]:
        def view(request: HttpRequest) -> HttpResponse:
            return made(tag_of(request))

        async def view_async(request: HttpRequest) -> HttpResponse:
            return view(request)

        protect = idempotent(nebis, "pay", effects=Opaque, tenant=lambda request: request.user.account)
        protected = protect(view_async if is_async else view)
        may_pay = permission_required("pay", raise_exception=True)
        return [path("pay", csrf_exempt(login_required(may_pay(protected))))]

    settings: dict[str, Any] = {
        "middleware": [f"{__name__}.Authenticating"],
        "INSTALLED_APPS": ["nebis.integrations.django", "django.contrib.contenttypes", "django.contrib.auth"],
        "LOGIN_URL": "/login",
    }
    with serving(declare, is_async=is_async, **settings) as client:
        key = new_key()
        callers = [Client(client.address, f"{name}-{key}") for name in ("one", "two", "three")]
        first = [caller.post("/pay", {"tag": key}, key=key) for caller in callers]
        revoked.add(f"one-{key}")
        downgraded.add(f"two-{key}")
        again = [caller.post("/pay", {"tag": key}, key=key) for caller in callers]

    assert [reply.status for reply in first] == [201] * 3
    assert len({reply.body for reply in first}) == 3
    assert [reply.status for reply in again] == [302, 403, 201]
    assert [first[number].json()["id"].encode() in again[number].body for number in range(3)] == [False, False, True]
    assert again[2].is_replay
    assert runs[key] == 3


def own_guard(view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    def guarded(request: HttpRequest, *arguments: Any) -> Any:
        return view(request, *arguments)

    return guarded


@pytest.mark.parametrize(
    "guard",
    [
        login_required,
        permission_required("pay"),
        user_passes_test(bool),
        own_guard,
        lambda v: csrf_exempt(own_guard(v)),
    ],
    ids=["login_required", "permission_required", "user_passes_test", "own", "own below csrf_exempt"],
)
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("kind", ["idempotent", "bind"])
def test_above_who_may_refuse_a_caller_it_does_not_start(guard: Any, is_async: bool, kind: str) -> None:
    """SEC03: there a downgraded caller would be told what is stored."""

    def view(request: HttpRequest) -> HttpResponse:
        raise AssertionError

    async def view_async(request: HttpRequest) -> HttpResponse:
        raise AssertionError

    nebis: Any = AsyncNebis("memory://") if is_async else Nebis("memory://")
    if kind == "idempotent":
        protect = idempotent(nebis, "pay", effects=Opaque, tenant=account)
    else:
        operation = nebis.operation("pay", effects=Opaque)(_pay_async if is_async else _pay)
        protect = bind(operation, tenant=account)

    with pytest.raises(ConfigError, match="directly on the view"):
        protect(guard(view_async if is_async else view))


def _pay(command: str) -> str:
    return command


async def _pay_async(command: str) -> str:
    return command


def test_a_class_and_its_dispatch_are_refused_as_mixins_ask_there_who_may() -> None:
    class Page(View):  # type: ignore[misc]  # Django ships no types.
        def post(self, request: HttpRequest) -> HttpResponse:
            raise AssertionError

    protect = idempotent(Nebis("memory://"), "pay", effects=Opaque, tenant=account)

    with pytest.raises(ConfigError, match="protect its method"):
        protect(Page.as_view())
    with pytest.raises(ConfigError, match="dispatch"):
        protect(Page.dispatch)


def test_decorators_that_do_not_ask_who_calls_may_stand_on_either_side() -> None:
    def declare(nebis: Nebis) -> list[Any]:
        def view(request: HttpRequest) -> HttpResponse:
            return made(tag_of(request))

        below = idempotent(nebis, "below", effects=Opaque, tenant=account)(csrf_exempt(require_POST(view)))
        above = csrf_exempt(require_POST(idempotent(nebis, "above", effects=Opaque, tenant=account)(view)))
        return [path("below", below), path("above", above)]

    with serving(declare, middleware=["django.middleware.csrf.CsrfViewMiddleware"]) as client:
        for place in ("/below", "/above"):
            replies = [client.post(place, {"tag": place}, key="one-key-for-both") for _ in range(2)]
            assert [(reply.status, reply.is_replay) for reply in replies] == [(201, False), (201, True)]
        assert client.get("/above").status == 405


@pytest.mark.parametrize(
    ("nebis", "is_async"), [(Nebis("memory://"), True), (AsyncNebis("memory://"), False)], ids=["async", "plain"]
)
def test_a_view_and_its_store_are_of_one_kind(nebis: Any, is_async: bool) -> None:
    async def view_async(request: HttpRequest) -> HttpResponse:
        raise AssertionError

    def view(request: HttpRequest) -> HttpResponse:
        raise AssertionError

    with pytest.raises(ConfigError, match="protect it with"):
        idempotent(nebis, "pay", effects=Local, tenant=account)(view_async if is_async else view)


def test_an_async_view_under_wsgi_runs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    nebis = AsyncNebis("memory://")

    @idempotent(nebis, "pay", effects=Local, tenant=account)
    async def view(request: HttpRequest) -> HttpResponse:
        return made("under WSGI")

    with wsgi_serving([path("pay", view)], Nebis("memory://")) as address:
        reply = Client(address).post("/pay", {}, key=new_key())

    assert reply.status == 500
    assert runs["under WSGI"] == 0
    assert "serve it under ASGI" in caplog.text


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[str]:
    """The URL of a database that Django knows as `shop`, with ATOMIC_REQUESTS."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with database("shop", url, ATOMIC_REQUESTS=True, OPTIONS={"timeout": 20}):
        with connections["shop"].schema_editor() as editor:
            editor.create_model(Payment)
        with connections["shop"].cursor() as cursor:
            cursor.execute("CREATE TABLE parent (id TEXT PRIMARY KEY)")
            cursor.execute(
                "CREATE TABLE child (id TEXT REFERENCES parent DEFERRABLE INITIALLY DEFERRED, tag TEXT PRIMARY KEY)"
            )
        connections["shop"].close()
        yield url


def payments() -> list[str]:
    try:
        return sorted(Payment.objects.using("shop").values_list("id", flat=True))
    finally:
        connections["shop"].close()


def test_the_transaction_of_atomic_requests_ends_before_the_answer_is_stored(shop: str) -> None:
    """D1: a commit that fails never yields a success, and the retry runs."""
    events: list[str] = []

    def declare(nebis: Nebis) -> list[Any]:
        @idempotent(nebis, "pay", effects=Local, tenant=account)
        def pay(request: HttpRequest) -> HttpResponse:
            assert connections["shop"].in_atomic_block
            tag, parent = tag_of(request), json.loads(request.body)["parent"]
            Payment.objects.using("shop").create(id=tag)
            with connections["shop"].cursor() as cursor:
                cursor.execute("INSERT INTO child VALUES (%s, %s)", [parent, tag])
            transaction.on_commit(lambda: events.append("committed"), using="shop")
            if parent == "crash":
                raise RuntimeError
            return made(tag)

        return [path("pay", csrf_exempt(pay))]

    with serving(declare) as client:
        failed, crashed = new_key(), new_key()
        replies = [client.post("/pay", {"tag": failed, "parent": "nobody"}, key=failed)]
        replies.append(client.post("/pay", {"tag": crashed, "parent": "crash"}, key=crashed))
        assert payments() == []
        with closing(connections["shop"]) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO parent VALUES ('nobody')")
        replies.extend(client.post("/pay", {"tag": failed, "parent": "nobody"}, key=failed) for _ in range(2))

    assert [reply.status for reply in replies] == [500, 500, 201, 201]
    assert [reply.is_replay for reply in replies] == [False, False, False, True]
    assert payments() == [failed]
    assert events == ["committed"]


@pytest.mark.parametrize("place", ["above", "below"])
def test_a_view_without_that_transaction_commits_rows_and_answer_together(shop: str, place: str) -> None:
    """T1."""

    def declare(nebis: Nebis) -> list[Any]:
        def pay(request: HttpRequest, attempt: Attempt) -> HttpResponse:
            with attempt.transaction(connections["shop"]) as tx:
                Payment.objects.using("shop").create(id=tag_of(request))
                answer = made(tag_of(request))
                tx.finish(answer)
            raise RuntimeError("after the commit")

        protect = idempotent(nebis, "pay", effects=Local, tenant=account)
        apart = transaction.non_atomic_requests("shop")
        return [path("pay", apart(protect(pay)) if place == "above" else protect(apart(pay)))]

    with serving(declare, url=shop) as client:
        key = new_key()
        first, again = [client.post("/pay", {"tag": key}, key=key) for _ in range(2)]

    assert (first.status, again.status, again.is_replay) == (201, 201, True)
    assert first.body == again.body
    assert payments() == [key]
    assert runs[key] == 1


def test_inside_a_transaction_nothing_is_claimed(shop: str, caplog: pytest.LogCaptureFixture) -> None:
    """D1: ATOMIC_REQUESTS is around a class, where no mark of a method reaches, and atomic around a function."""

    def declare(nebis: Nebis) -> list[Any]:
        protect = idempotent(nebis, "pay", effects=Local, tenant=account)

        class Pay(View):  # type: ignore[misc]
            @protect
            def post(self, request: HttpRequest) -> HttpResponse:
                return made(tag_of(request))

        @method_decorator(transaction.non_atomic_requests("shop"), name="dispatch")
        class Apart(Pay):
            pass

        return [path("pay", Pay.as_view()), path("apart", Apart.as_view())]

    with serving(declare) as client:
        key = new_key()
        inside = client.post("/pay", {"tag": key}, key=key)
        apart = client.post("/apart", {"tag": key}, key=key)

    assert (inside.status, apart.status) == (500, 201)
    assert "non_atomic_requests" in caplog.text
    assert runs[key] == 1


def test_a_client_that_hangs_up_does_not_take_the_thread_of_the_orm_with_it(tmp_path: Path) -> None:
    """F074, D3: Django cancels an async view at once; the transaction it is in goes on where it began."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    started, cancelled, gate = threading.Event(), threading.Event(), threading.Event()
    threads: list[int] = []
    nebis = AsyncNebis(url)

    @idempotent(nebis, "pay", effects=Local, tenant=account)
    async def pay(request: HttpRequest, attempt: AsyncAttempt) -> HttpResponse:
        async with attempt.transaction(connections["shop"]) as tx:
            threads.append(await sync_to_async(threading.get_ident)())
            await Payment.objects.using("shop").acreate(id=tag_of(request))
            started.set()
            await asyncio.to_thread(gate.wait, PATIENCE_SECONDS)
            threads.append(await sync_to_async(threading.get_ident)())
            await Payment.objects.using("shop").acreate(id=f"{tag_of(request)} more")
            answer = made(tag_of(request))
            tx.finish(answer)
        return answer

    async def watched(request: HttpRequest) -> HttpResponse:
        try:
            return await pay(request)  # type: ignore[call-arg]  # The attempt is given by the decorator.
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with database("shop", url):
        with connections["shop"].schema_editor() as editor:
            editor.create_model(Payment)
        connections["shop"].close()
        with asgi_serving([path("pay", watched)], nebis) as address:
            client, key = Client(address), new_key()
            with client.connect() as connection:
                connection.sendall(client.request("POST", "/pay", json.dumps({"tag": key}).encode(), key=key))
                assert started.wait(PATIENCE_SECONDS)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            assert cancelled.wait(PATIENCE_SECONDS)
            gate.set()
            reply = settled(client, key)
        assert payments() == [key, f"{key} more"]

    assert (reply.status, reply.is_replay) == (201, True)
    assert len(set(threads)) == 1
    assert runs[key] == 1


def settled(client: Client, key: str) -> Reply:
    """Retry as a client should: while it is told that the first is in flight."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        reply = client.post("/pay", {"tag": key}, key=key)
        if reply.status != 409 or time.monotonic() > deadline:
            return reply
        time.sleep(0.01)  # As Retry-After asks, only sooner.
