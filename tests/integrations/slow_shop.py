"""An application for servers in processes of their own; its effects are lines in a file."""

import asyncio
import os
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nebis import AsyncNebis, Opaque, seconds
from nebis.integrations.starlette import NebisMiddleware, idempotent, lifespan

EFFECTS, STORE = "NEBIS_TEST_EFFECTS", "NEBIS_TEST_STORE"
WORK_SECONDS = 0.15
LEASE_SECONDS = 3

nebis = AsyncNebis(os.environ.get(STORE, "memory://"))


def charge(tag: str) -> None:
    with Path(os.environ[EFFECTS]).open("a") as effects:
        effects.write(f"{tag}\n")


@idempotent(
    nebis,
    "pay",
    effects=Opaque,
    tenant=lambda _request: "acct-1",
    lease=seconds(LEASE_SECONDS),
    renewal=seconds(1),
    effect_timeout=seconds(2),
)
async def pay(request: Request) -> Response:
    tag = (await request.json())["tag"]
    await asyncio.sleep(WORK_SECONDS)
    charge(tag)
    return JSONResponse({"paid": tag, "by": os.getpid()}, status_code=201)


app = Starlette(
    routes=[Route("/payments", pay, methods=["POST"])],
    middleware=[Middleware(NebisMiddleware)],
    lifespan=lifespan(nebis),
)
