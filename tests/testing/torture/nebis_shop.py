"""The shop of the kit's own tests, made with Nebis: Starlette on SQLite, rows and answer in one commit."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from nebis import AsyncAttempt, AsyncNebis, Local
from nebis.integrations.starlette import NebisMiddleware, idempotent, lifespan
from tests.testing.torture.shop import LARGEST_BYTES, TENANTS


def current_account(request: Request) -> str:
    account = TENANTS.get(request.headers.get("authorization", ""))
    if account is None:
        raise HTTPException(401)
    return account


async def payment(request: Request) -> dict[str, Any]:
    try:
        found = await request.json()
    except (ValueError, RecursionError):
        raise HTTPException(400) from None
    if not isinstance(found, dict) or not isinstance(found.get("order"), str):
        raise HTTPException(422, "an order is needed")
    return found


def make_app(directory: Path) -> Starlette:
    """Return the application; its rows are in a file of the directory, beside the records."""
    file = directory / "shop.db"
    nebis = AsyncNebis(f"sqlite:///{file}")
    failed: set[str] = set()
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE charge (id TEXT, tenant TEXT, order_id TEXT, amount INTEGER)")
    database.close()

    async def pay(request: Request, attempt: AsyncAttempt) -> JSONResponse:
        command = await payment(request)
        order, fails = command["order"], command.get("fails")
        await asyncio.sleep(command.get("delay_ms", 0) / 1000)
        if command["amount"] > 1000:
            raise HTTPException(402, "declined")
        if fails == "once" and order not in failed:
            failed.add(order)
            raise RuntimeError("before the effect")
        async with attempt.transaction() as tx:
            made = {"id": uuid4().hex, "amount": command["amount"]}
            row = (made["id"], attempt.tenant, order, made["amount"])
            await tx.connection.execute("INSERT INTO charge VALUES (?, ?, ?, ?)", row)
            if fails == "late":
                raise RuntimeError("after the effect")
            response = JSONResponse(made, 201)
            tx.finish(response)
        return response

    async def count(request: Request) -> JSONResponse:
        return JSONResponse({"count": len(_rows(file, "order_id", request.query_params["order"]))})

    async def show(request: Request) -> JSONResponse:
        rows = _rows(file, "id", request.path_params["id"])
        if not rows or rows[0][1] != current_account(request):
            raise HTTPException(404)
        return JSONResponse({"id": rows[0][0], "amount": rows[0][3]})

    choices: Any = {
        "effects": Local,
        "tenant": current_account,
        "command": payment,
        "command_limit_bytes": LARGEST_BYTES,
    }
    return Starlette(
        routes=[
            Route("/payments", idempotent(nebis, "pay", **choices)(pay), methods=["POST"]),
            Route("/refunds", idempotent(nebis, "refund", **choices)(pay), methods=["POST"]),
            Route("/count", count),
            Route("/payments/{id}", show),
        ],
        middleware=[Middleware(NebisMiddleware)],
        lifespan=lifespan(nebis),
    )


def _rows(file: Path, column: str, value: str) -> list[Any]:
    database = sqlite3.connect(file)
    try:
        return database.execute(f"SELECT * FROM charge WHERE {column} = ?", (value,)).fetchall()
    finally:
        database.close()
