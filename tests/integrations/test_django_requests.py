"""What Django gives a protected view to read: forms, bodies that others have read, callers, and tests of its own."""

import asyncio
import unittest
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, TestCase
from django.urls import path

from nebis import AsyncNebis, Local, Nebis, Opaque
from nebis.http import ProxyHeader
from nebis.integrations.django.views import idempotent
from nebis.testing.http_conformance.client import new_key
from tests.integrations.django_project import account, body_of, json_of, made, project, runs, serving, twice

KEY = {"Idempotency-Key": "one-key-of-a-test"}


@pytest.mark.parametrize("is_read_first", [False, True], ids=["first", "after a middleware has read it"])
def test_a_form_counts_by_its_fields_and_files_and_not_by_the_boundary(is_read_first: bool) -> None:
    """F102; the middleware against forged requests reads the form before any view."""

    def upload(request: HttpRequest) -> HttpResponse:
        content = request.FILES["file"].read()
        return made(request.POST["note"], size=len(content))

    def declare(nebis: Nebis) -> list[Any]:
        return [path("files", idempotent(nebis, "upload", effects=Opaque, tenant=account)(upload))]

    def sent(boundary: str, note: str, content: bytes) -> dict[str, Any]:
        mark = f"--{boundary}\r\nContent-Disposition: form-data; name="
        head = f'{mark}"note"\r\n\r\n{note}\r\n{mark}"file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n'
        body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
        return {"body": body, "content_type": f"multipart/form-data; boundary={boundary}"}

    with serving(declare, middleware=[f"{__name__}.FormReading"] if is_read_first else []) as client:
        key = new_key()
        sents = [sent("one", key, b"hello"), sent("two", key, b"hello"), sent("one", key, b"HELLO")]
        first, again, other = [client.post("/files", key=key, **one) for one in sents]

    assert (first.status, first.json()["size"]) == (201, 5)
    assert (again.is_replay, again.body) == (True, first.body)
    assert (other.status, other.code) == (422, "key-reused")


class FormReading:
    """A middleware that reads the form of each request."""

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        assert request.POST
        return self._get_response(request)


class StreamReading:
    """A middleware that consumes the body, so that nobody else can read it."""

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        request.read()
        return self._get_response(request)


def test_a_body_that_is_gone_is_not_taken_for_an_empty_one(caplog: pytest.LogCaptureFixture) -> None:
    def declare(nebis: Nebis) -> list[Any]:
        return [path("pay", idempotent(nebis, "pay", effects=Opaque, tenant=account)(lambda _: made("gone")))]

    with serving(declare, middleware=[f"{__name__}.StreamReading"]) as client:
        reply = client.post("/pay", {"a": 1}, key=new_key())

    assert reply.status == 500
    assert runs["gone"] == 0
    assert "request.body" in caplog.text


def test_what_is_asked_for_may_be_said_by_a_function_and_refused_by_it() -> None:
    def amount(request: HttpRequest) -> Any:
        if "amount" not in json_of(request):
            raise PermissionDenied
        return json_of(request)["amount"]

    def declare(nebis: Nebis) -> list[Any]:
        protect = idempotent(nebis, "pay", effects=Opaque, tenant=account, command=amount)
        return [path("pay", protect(lambda request: made(str(json_of(request)["amount"]))))]

    with serving(declare) as client:
        key = new_key()
        refused = client.post("/pay", {"note": "x"}, key=key)
        first = client.post("/pay", {"amount": 5, "note": "x"}, key=key)
        again = client.post("/pay", {"amount": 5, "note": "y"}, key=key)

    assert (refused.status, first.status, again.status) == (403, 201, 201)
    assert again.is_replay


def test_a_tenant_of_a_proxy_is_believed_from_its_network_only() -> None:
    """SEC01."""

    def declare(nebis: Nebis) -> list[Any]:
        near, far = ProxyHeader("X-Tenant", ("127.0.0.0/8",)), ProxyHeader("X-Tenant", ("10.0.0.0/8",))
        view = lambda request: made(body_of(request))  # noqa: E731
        return [
            path("near", idempotent(nebis, "near", effects=Local, tenant=near)(view)),
            path("far", idempotent(nebis, "far", effects=Local, tenant=far)(view)),
        ]

    with serving(declare) as client:
        key, headers = new_key(), [("X-Tenant", "acct-1")]
        near = twice(client, "/near", key, headers=headers)
        far = client.post("/far", {"tag": key}, key=key, headers=headers)

    assert [reply.is_replay for reply in near] == [False, True]
    assert (far.status, far.code) == (401, "tenant-missing")


def test_a_plain_view_is_protected_in_the_transaction_of_a_test_case() -> None:
    """Whoever tests a protected view with Django's own tools finds it as it is served."""
    nebis = Nebis("memory://")
    view = idempotent(nebis, "pay", effects=Local, tenant=account)(lambda request: made(body_of(request)))
    sent: dict[str, Any] = {"content_type": "application/json", "headers": {"Authorization": "Bearer acct-1"}}

    class Case(TestCase):  # type: ignore[misc]  # Django ships no types.
        def runTest(self) -> None:  # noqa: N802 - the name is that of unittest.
            for is_replay in (False, True):
                response = self.client.post("/pay", {"a": 1}, **sent | {"headers": sent["headers"] | KEY})
                assert response.status_code == 201
                assert ("Idempotency-Replayed" in response.headers) is is_replay

    result = unittest.TestResult()
    with project([path("pay", view)]):
        unittest.TestSuite([Case()]).run(result)

    assert result.wasSuccessful(), result.errors + result.failures
    nebis.close()


def test_an_async_view_is_protected_under_the_async_client_of_tests() -> None:
    nebis = AsyncNebis("memory://")

    @idempotent(nebis, "pay", effects=Local, tenant=account)
    async def view(request: HttpRequest) -> HttpResponse:
        return made(body_of(request))

    async def ask() -> list[Any]:
        headers = {"Authorization": "Bearer acct-1", **KEY}
        client = AsyncClient()
        try:
            return [
                await client.post("/pay", {"a": 1}, content_type="application/json", headers=headers) for _ in range(2)
            ]
        finally:
            await nebis.close()

    with project([path("pay", view)]):
        first, again = asyncio.run(ask())

    assert (first.status_code, again.content) == (201, first.content)
    assert again.headers["Idempotency-Replayed"] == "true"
