"""What is particular to Django: decorators, transactions of requests, lazy and streamed responses, forms."""

import io
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.core.signals import got_request_exception
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from nebis import AsyncNebis, Attempt, ConfigError, Local, Nebis, Opaque, Rejected
from nebis.http import Exchange
from nebis.integrations.django.views import bind, idempotent
from nebis.testing.http_conformance.client import new_key
from tests.integrations.django_project import account, body_of, json_of, made, runs, serving, twice

TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates"}]


class Declined(Exception):
    """An exception that a middleware of the project turns into a response."""


class Explaining:
    """A middleware that does so."""

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        return self._get_response(request)

    def process_exception(self, _request: HttpRequest, error: Exception) -> HttpResponse | None:
        return HttpResponse("explained", status=402) if isinstance(error, Declined) else None


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_methods_of_classes_are_protected_like_functions(is_async: bool) -> None:
    def declare(nebis: Any) -> list[Any]:
        direct = idempotent(nebis, "direct", effects=Local, tenant=account)
        class_wide = idempotent(nebis, "class-wide", effects=Local, tenant=account)

        if is_async:

            class Direct(View):  # type: ignore[misc]  # Django ships no types.
                @direct
                async def post(self, request: HttpRequest, number: int) -> HttpResponse:
                    return made(f"{number}", got=number)

            class Wide(View):  # type: ignore[misc]
                async def post(self, request: HttpRequest) -> HttpResponse:
                    return made(body_of(request))

        else:

            class Direct(View):  # type: ignore[misc,no-redef]
                @direct
                def post(self, request: HttpRequest, number: int) -> HttpResponse:
                    return made(f"{number}", got=number)

            class Wide(View):  # type: ignore[misc,no-redef]
                def post(self, request: HttpRequest) -> HttpResponse:
                    return made(body_of(request))

        wide = method_decorator(class_wide, name="post")(Wide)
        return [path("direct/<int:number>", Direct.as_view()), path("wide", wide.as_view())]

    with serving(declare, is_async=is_async) as client:
        key = new_key()
        direct = twice(client, "/direct/7", key)
        other = client.post("/direct/8", {"tag": key}, key=key)
        wide = twice(client, "/wide", key)

    assert [reply.is_replay for reply in direct] == [False, True]
    assert direct[0].json()["got"] == 7
    assert direct[0].body == direct[1].body
    assert (other.status, other.code) == (422, "key-reused"), "the path counts"
    assert [(reply.status, reply.is_replay) for reply in wide] == [(201, False), (201, True)]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_template_is_rendered_once_and_its_cookie_is_for_the_first_caller(is_async: bool) -> None:
    def page(request: HttpRequest) -> TemplateResponse:
        template = engines["django"].from_string("<p>{{ id }}</p>")
        response = TemplateResponse(request, template, {"id": uuid4()}, status=201)
        response.set_cookie("session", "secret", httponly=True, samesite="Lax")
        response.set_cookie("second", "one")
        return response

    async def page_async(request: HttpRequest) -> TemplateResponse:
        return page(request)

    def declare(nebis: Any) -> list[Any]:
        protect = idempotent(nebis, "page", effects=Opaque, tenant=account)
        named = idempotent(nebis, "named", effects=Opaque, tenant=account, store_headers=["Set-Cookie"])
        view = page_async if is_async else page
        return [path("page", protect(view)), path("named", named(view))]

    with serving(declare, is_async=is_async, TEMPLATES=TEMPLATES) as client:
        key = new_key()
        first, again = twice(client, "/page", key)
        kept = twice(client, "/named", key)

    def cookies(reply: Any) -> list[str]:
        return sorted(value for name, value in reply.headers if name.lower() == "set-cookie")

    assert (first.status, again.body, again.is_replay) == (201, first.body, True)
    assert first.body.startswith(b"<p>")
    assert first.header("content-type") == again.header("content-type") == "text/html; charset=utf-8"
    assert cookies(first) == ["second=one; Path=/", "session=secret; HttpOnly; Path=/; SameSite=Lax"]
    assert cookies(again) == []
    assert cookies(kept[0]) == cookies(kept[1]) == cookies(first)


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_what_is_streamed_is_gathered_or_refused_before_its_first_byte(is_async: bool) -> None:
    """O6, F084."""
    opened: list[io.BytesIO] = []

    def pieces(count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield uuid4().bytes * 64

    async def async_pieces() -> AsyncIterator[bytes]:
        for piece in pieces(2):
            yield piece

    def answer(request: HttpRequest, kind: str) -> Any:
        runs[f"{kind}{is_async}"] += 1
        if kind == "file":
            opened.append(io.BytesIO(b"content"))
            return FileResponse(opened[-1], filename="a.bin")
        content: Any = async_pieces() if kind == "async" else pieces(2 if kind == "small" else 1000)
        return StreamingHttpResponse(content)

    async def answer_async(request: HttpRequest, kind: str) -> Any:
        return answer(request, kind)

    def declare(nebis: Any) -> list[Any]:
        protect = idempotent(nebis, "stream", effects=Local, tenant=account, result_limit_bytes=4096)
        return [path("<str:kind>", protect(answer_async if is_async else answer))]

    with serving(declare, is_async=is_async) as client:
        small, mixed, file, large = [twice(client, f"/{kind}", new_key()) for kind in ("small", "async", "file", "x")]

    for first, again in (small, mixed, file):
        assert (again.status, again.body, again.is_replay) == (200, first.body, True)
    assert [len(replies[0].body) for replies in (small, mixed, file)] == [2048, 2048, 7]
    assert 'filename="a.bin"' in str(file[1].header("content-disposition"))
    assert [file.closed for file in opened] == [True]
    assert [(reply.status, reply.code) for reply in large] == [(500, "response-unstorable")] * 2
    assert runs[f"x{is_async}"] == 1


def test_a_view_that_yields_is_refused_at_start_up() -> None:
    protect = idempotent(Nebis("memory://"), "pay", effects=Local, tenant=account)

    with pytest.raises(ConfigError, match="piece by piece"):

        @protect
        def view(request: HttpRequest) -> Iterator[bytes]:
            yield b""


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_what_django_turns_into_an_answer_is_one(is_async: bool) -> None:
    """One table: a 404 is the endpoint's last word, 400 and 403 are withdrawn."""

    def refuse(request: HttpRequest, kind: str) -> HttpResponse:
        key = body_of(request)
        runs[key] += 1
        raise {"404": Http404, "403": PermissionDenied, "400": SuspiciousOperation}[kind]("a secret")

    async def refuse_async(request: HttpRequest, kind: str) -> HttpResponse:
        return refuse(request, kind)

    def declare(nebis: Any) -> list[Any]:
        protect = idempotent(nebis, "refuse", effects=Opaque, tenant=account)
        return [path("<str:kind>", protect(refuse_async if is_async else refuse))]

    with serving(declare, is_async=is_async) as client:
        replies = [twice(client, f"/{status}", new_key()) for status in (404, 403, 400)]

    assert [[reply.status for reply in both] for both in replies] == [[404] * 2, [403] * 2, [400] * 2]
    assert [both[1].is_replay for both in replies] == [True, False, False]
    assert replies[0][0].body == replies[0][1].body


def test_an_exception_that_a_middleware_explains_is_in_doubt_unless_it_binds() -> None:
    """The middleware is outside of the view: of an Opaque one it is not known what happened before it raised."""

    def pay(request: HttpRequest) -> HttpResponse:
        runs[body_of(request)] += 1
        raise Declined

    def declare(nebis: Nebis) -> list[Any]:
        return [
            path("opaque", idempotent(nebis, "opaque", effects=Opaque, tenant=account)(pay)),
            path("local", idempotent(nebis, "local", effects=Local, tenant=account)(pay)),
            path("binding", idempotent(nebis, "binding", effects=Opaque, tenant=account, binds=[Declined])(pay)),
        ]

    with serving(declare, middleware=[f"{__name__}.Explaining"]) as client:
        opaque, local, binding = [twice(client, f"/{name}", new_key()) for name in ("opaque", "local", "binding")]

    assert [(reply.status, reply.code) for reply in opaque] == [(409, "outcome-unknown")] * 2
    assert [(reply.status, reply.body) for reply in local] == [(402, b"explained")] * 2
    assert [(reply.status, reply.code, reply.is_replay) for reply in binding] == [
        (422, "rejected", False),
        (422, "rejected", True),
    ]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_crash_in_whose_place_a_problem_is_told_still_reaches_who_watches(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def watch(request: HttpRequest, **_: Any) -> None:
        seen.append(request.path)

    def crash(request: HttpRequest) -> HttpResponse:
        raise RuntimeError("a bug")

    async def crash_async(request: HttpRequest) -> HttpResponse:
        raise RuntimeError("a bug")

    got_request_exception.connect(watch)
    try:
        with serving(
            lambda nebis: [
                path(
                    "crash",
                    idempotent(nebis, "crash", effects=Opaque, tenant=account)(crash_async if is_async else crash),
                )
            ],
            is_async=is_async,
        ) as client:
            first, again = twice(client, "/crash", new_key())
    finally:
        got_request_exception.disconnect(watch)

    assert (first.code, again.code) == ("outcome-unknown", "outcome-unknown")
    assert seen == ["/crash"]
    assert any(record.name == "nebis" and record.exc_info for record in caplog.records)


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_an_operation_is_bound_to_a_view_and_its_result_rendered(is_async: bool) -> None:
    def paid(result: dict[str, Any]) -> Exchange:
        return Exchange(status=201, headers=(("content-type", "text/plain"),), body=f"paid {result['id']}".encode())

    def pay(command: dict[str, Any]) -> dict[str, Any]:
        runs[str(command["tag"])] += 1
        if command.get("amount") == 13:
            raise Rejected("unlucky")
        return {"id": str(uuid4())}

    def declare(nebis: Any) -> list[Any]:
        if isinstance(nebis, AsyncNebis):

            @nebis.operation("pay", effects=Opaque)
            async def pay_async(command: dict[str, Any]) -> dict[str, Any]:
                return pay(command)

            @bind(pay_async, tenant=account, render=paid, rejected_status=402)
            async def view_async(request: HttpRequest) -> Any:
                return json_of(request)

            return [path("pay", view_async)]

        operation = nebis.operation("pay", effects=Opaque)(pay)

        @bind(operation, tenant=account, render=paid, rejected_status=402)
        def view(request: HttpRequest) -> Any:
            return json_of(request)

        return [path("pay", view)]

    with serving(declare, is_async=is_async) as client:
        key, unlucky = new_key(), new_key()
        first, again = twice(client, "/pay", key)
        rejected = [client.post("/pay", {"tag": unlucky, "amount": 13}, key=unlucky) for _ in range(2)]
        missing = client.post("/pay", {"tag": key})

    assert (first.status, again.body, again.is_replay) == (201, first.body, True)
    assert first.body.startswith(b"paid ")
    assert [(reply.status, reply.code) for reply in rejected] == [(402, "rejected")] * 2
    assert (missing.status, missing.code) == (400, "key-missing")
    assert (runs[key], runs[unlucky]) == (1, 1)


def test_a_safe_method_of_a_protected_view_passes_by() -> None:
    """F092."""

    def declare(nebis: Nebis) -> list[Any]:
        @idempotent(nebis, "pay", effects=Local, tenant=account)
        def view(request: HttpRequest, attempt: Attempt | None) -> HttpResponse:
            return HttpResponse(f"{request.method} {attempt is not None}")

        return [path("pay", view)]

    with serving(declare) as client:
        assert client.get("/pay").body == b"GET False"
        assert client.post("/pay", {}, key=new_key()).body == b"POST True"
