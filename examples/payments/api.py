"""The payments API. Run it by itself: uvicorn examples.payments.api:app, with a gateway beside it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from examples.payments import bank
from examples.payments.database import Row, database
from examples.payments.operations import (
    CreatePayment,
    CreateRefund,
    CreateTransfer,
    Payment,
    create_payment,
    create_refund,
    create_transfer,
)
from examples.payments.orders import PlaceOrder, place_order
from examples.payments.settings import nebis
from nebis import Rejected, seconds
from nebis.http import Exchange, Wire
from nebis.integrations.fastapi import NebisRoute, bind, operation_status

TENANTS = {"demo-alice": "alice", "demo-bob": "bob"}
WIRE = Wire(status_path="/v1/operations/")
STATUSES = {"card_declined": 402, "payment_not_found": 404}
"""Of rejections; all others are a conflict with what is there."""


class SignedIn:
    """Turns away whoever has no token, before a body is read, a key looked up or a path matched."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, with its tenant."""
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            kind, _, token = ", ".join(Headers(scope=scope).getlist("authorization")).partition(" ")
            tenant = TENANTS.get(token) if kind.lower() == "bearer" else None
            if tenant is None:
                refusal = problem(401, "unauthorized", "Send Authorization: Bearer demo-alice, or demo-bob.")
                refusal.headers["WWW-Authenticate"] = "Bearer"
                await refusal(scope, receive, send)
                return
            scope.setdefault("state", {})["tenant"] = tenant
        await self.app(scope, receive, send)


def current_tenant(request: Request) -> str:
    """Return whose request it is: what `SignedIn` found, never what a body says."""
    tenant: str = request.state.tenant
    return tenant


Tenant = Annotated[str, Depends(current_tenant)]


def problem(status: int, code: str, detail: str) -> JSONResponse:
    """Say what is wrong, as RFC 9457 has it; the code is also the last part of the type."""
    content = {"type": f"{WIRE.problem_base}{code}", "code": code, "status": status, "detail": detail}
    return JSONResponse(content, status, media_type="application/problem+json")


def rejected(told: Rejected) -> Exchange:
    """Render a rejection under the API's own code; every replay is rendered from the same stored words."""
    answer = problem(STATUSES.get(told.reason, 409), told.reason, told.detail or told.reason.replace("_", " "))
    return Exchange(status=answer.status_code, headers=(("content-type", answer.media_type),), body=bytes(answer.body))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Open both sides of the database; at the end finish what runs, or hand it to another process."""
    await nebis.open()
    await database.open()
    yield
    await nebis.close(grace=seconds(3))
    await database.close()
    await bank.client.aclose()


app = FastAPI(title="Payments", lifespan=lifespan)
app.router.route_class = NebisRoute
app.add_middleware(SignedIn)


@app.post("/v1/payments")
@bind(create_payment, tenant=current_tenant, status=201, render_rejected=rejected, wire=WIRE)
async def post_payment(payment: CreatePayment) -> CreatePayment:
    """Charge a card and book it."""
    return payment


@app.post("/v1/refunds")
@bind(create_refund, tenant=current_tenant, status=201, render_rejected=rejected, wire=WIRE)
async def post_refund(refund: CreateRefund) -> CreateRefund:
    """Give money back, never more than was paid."""
    return refund


@app.post("/v1/transfers")
@bind(create_transfer, tenant=current_tenant, status=201, render_rejected=rejected, wire=WIRE)
async def post_transfer(transfer: CreateTransfer) -> CreateTransfer:
    """Move money between two accounts."""
    return transfer


@app.post("/v1/orders")
@bind(place_order, tenant=current_tenant, status=201, render_rejected=rejected, wire=WIRE)
async def post_order(order: PlaceOrder) -> PlaceOrder:
    """Charge a card, reserve stock, book a shipment: all of it or nothing."""
    return order


app.get("/v1/operations/{id}")(operation_status(nebis, tenant=current_tenant, wire=WIRE))


@app.get("/v1/payments/{payment_id}")
async def get_payment(payment_id: str, tenant: Tenant) -> Any:
    """Show a payment to its own tenant; to all others it does not exist."""
    found = await database.rows(
        "SELECT * FROM shop_payment WHERE payment_id = :payment_id AND tenant = :tenant",
        payment_id=payment_id,
        tenant=tenant,
    )
    if not found:
        return problem(404, "payment_not_found", "There is no such payment.")
    return Payment.model_validate(found[0]).model_dump() | {"refunded_cents": found[0]["refunded_cents"]}


@app.get("/v1/ledger")
async def get_ledger(tenant: Tenant, account: str | None = None) -> dict[str, list[Row]]:
    """List every entry of a tenant, or of one of its accounts."""
    statement = """
        SELECT transaction_id, account, amount_cents, created_at FROM shop_ledger
        WHERE tenant = :tenant AND (account = :account OR CAST(:account AS TEXT) IS NULL)
        ORDER BY created_at, transaction_id, account
    """
    return {"entries": await database.rows(statement, tenant=tenant, account=account)}


@app.get("/v1/balances")
async def get_balances(tenant: Tenant) -> dict[str, list[Row]]:
    """List the accounts, as the projection has added them up from messages."""
    statement = "SELECT account, amount_cents FROM shop_balance WHERE tenant = :tenant ORDER BY account"
    return {"balances": await database.rows(statement, tenant=tenant)}


@app.get("/v1/receipts")
async def get_receipts(tenant: Tenant) -> dict[str, list[Row]]:
    """List the receipts that were sent."""
    statement = """
        SELECT receipt_id, payment_id, invoice_id, created_at FROM shop_receipt
        WHERE tenant = :tenant
        ORDER BY created_at, receipt_id
    """
    return {"receipts": await database.rows(statement, tenant=tenant)}


@app.get("/healthz")
async def healthz() -> dict[str, object]:
    """Say that the one process that serves is alive."""
    return {"status": "ok", "pid": os.getpid()}
