"""Views for the tests of Django; each takes an order from the shop that a test has opened."""

from collections.abc import Callable
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

orders: dict[str, Callable[[str], Any]] = {}
"""How an order is taken by each view; set by a test."""


def plain(_: HttpRequest, key: str) -> HttpResponse:
    return HttpResponse(orders["blocking"](key))


@transaction.non_atomic_requests("shop")  # type: ignore[untyped-decorator]  # Django ships no types.
def non_atomic(_: HttpRequest, key: str) -> HttpResponse:
    return HttpResponse(orders["blocking"](key))


async def asynchronous(_: HttpRequest, key: str) -> HttpResponse:
    return HttpResponse(await orders["async"](key))


urlpatterns = [
    path("plain/<key>", plain),
    path("non-atomic/<key>", non_atomic),
    path("async/<key>", asynchronous),
]
