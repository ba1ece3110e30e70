"""The one Django project of this process, with the URLs and settings of one test after the other.

Its settings are made in `tests.transactions.django_shop`, which conftest imports first.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from uuid import uuid4

from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test.utils import override_settings

from nebis import AsyncNebis, Nebis
from nebis.http import Exchange
from nebis.integrations.django.lifespan import WithLifespan
from nebis.testing.http_conformance import Client
from tests.integrations.servers import uvicorn_serving
from tests.integrations.wsgi_servers import waitress_serving

COMMON = "django.middleware.common.CommonMiddleware"


runs: Counter[str] = Counter()
"""How often each tag was acted on."""


@contextmanager
def project(urlpatterns: Sequence[Any], *, middleware: Sequence[str] = (COMMON,), **changed: Any) -> Iterator[None]:
    """Make these the URLs of the project while the block runs."""
    urls = ModuleType("urls")
    urls.urlpatterns = urlpatterns  # type: ignore[attr-defined]
    settings = {"ROOT_URLCONF": urls, "ALLOWED_HOSTS": ["*"], "MIDDLEWARE": list(middleware), **changed}
    with override_settings(**settings):
        yield


@contextmanager
def wsgi_serving(urlpatterns: Sequence[Any], nebis: Nebis, **changed: Any) -> Iterator[tuple[str, int]]:
    """Serve the project under WSGI; yields the address."""
    with project(urlpatterns, **changed), waitress_serving(WSGIHandler()) as address:
        try:
            yield address
        finally:
            nebis.close()


@contextmanager
def asgi_serving(urlpatterns: Sequence[Any], nebis: AsyncNebis | Nebis, **changed: Any) -> Iterator[tuple[str, int]]:
    """Serve the project under ASGI; yields the address."""
    with project(urlpatterns, **changed), uvicorn_serving(WithLifespan(ASGIHandler(), nebis)) as address:
        yield address


@contextmanager
def serving(
    declare: Callable[[Any], Sequence[Any]], *, is_async: bool = False, url: str = "memory://", **changed: Any
) -> Iterator[Client]:
    """Serve the URLs that `declare` makes with a store of its own, in the world that is asked for."""
    nebis = AsyncNebis(url) if is_async else Nebis(url)
    serve: Any = asgi_serving if is_async else wsgi_serving
    with serve(declare(nebis), nebis, **changed) as address:
        yield Client(address)


def response(exchange: Exchange) -> HttpResponse:
    """Make a response of Django of what a scenario answers."""
    made = HttpResponse(exchange.body, status=exchange.status)
    del made.headers["Content-Type"]
    for name, value in exchange.headers:
        made.headers[name] = value
    return made


def account(request: HttpRequest) -> str | None:
    """Return the account that a request is of, by a header that any caller may send: these are tests."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token if scheme == "Bearer" else None


def made(key: str, **more: Any) -> JsonResponse:
    runs[key] += 1
    return JsonResponse({"id": str(uuid4()), **more}, status=201)


def body_of(request: HttpRequest) -> str:
    return str(request.body.decode())


def json_of(request: HttpRequest) -> Any:
    return json.loads(request.body)


def twice(client: Client, where: str, key: str, **sent: Any) -> list[Any]:
    return [client.post(where, {"tag": key}, key=key, **sent) for _ in range(2)]
