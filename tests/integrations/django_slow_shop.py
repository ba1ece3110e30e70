"""A Django project for servers in processes of their own; its effects are lines in a file."""

import asyncio
import json
import os
import time

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from nebis import AsyncNebis, Nebis, Opaque, seconds
from nebis.integrations.django.lifespan import WithLifespan
from nebis.integrations.django.views import idempotent
from tests.integrations.slow_shop import STORE, WORK_SECONDS, charge

if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="only for tests", DATABASES={})
    django.setup()

nebis, async_nebis = Nebis(os.environ.get(STORE, "memory://")), AsyncNebis(os.environ.get(STORE, "memory://"))
LONG_LEASE = seconds(300)
"""So long that no test waits for it: whoever is told an answer was not left to the lease."""


def tenant(_request: HttpRequest) -> str:
    return "acct-1"


@idempotent(nebis, "pay", effects=Opaque, tenant=tenant, lease=LONG_LEASE)
def pay(request: HttpRequest) -> HttpResponse:
    tag = json.loads(request.body)["tag"]
    time.sleep(WORK_SECONDS)  # It stands for a slow downstream.
    charge(tag)
    return JsonResponse({"paid": tag}, status=201)


@idempotent(async_nebis, "pay_async", effects=Opaque, tenant=tenant, lease=LONG_LEASE)
async def pay_async(request: HttpRequest) -> HttpResponse:
    tag = json.loads(request.body)["tag"]
    await asyncio.sleep(WORK_SECONDS)
    charge(tag)
    return JsonResponse({"paid": tag}, status=201)


urlpatterns = [path("plain", pay), path("async", pay_async)]
app = WithLifespan(WithLifespan(get_asgi_application(), nebis), async_nebis)
