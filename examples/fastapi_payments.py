"""Payments with FastAPI. Run it: uvicorn examples.fastapi_payments:app."""

from typing import Annotated
from uuid import uuid4

from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel

from nebis import AsyncAttempt, AsyncNebis, Local, Opaque
from nebis.integrations.fastapi import (
    NebisRoute,
    bind,
    idempotency_contract,
    idempotent,
    lifespan,
    operation_status,
)

nebis = AsyncNebis("sqlite:///shop.db")
app = FastAPI(lifespan=lifespan(nebis))
app.router.route_class = NebisRoute

ACCOUNTS = {"Bearer secret-1": "acct_1", "Bearer secret-2": "acct_2"}


class Payment(BaseModel):
    amount: int
    currency: str = "EUR"


class Paid(BaseModel):
    id: str
    amount: int


def current_account(authorization: Annotated[str, Header()] = "") -> str:
    if authorization not in ACCOUNTS:
        raise HTTPException(401)
    return ACCOUNTS[authorization]


@app.post("/payments", status_code=201)
@idempotent(nebis, "create_payment", effects=Opaque, tenant=current_account)
async def create_payment(payment: Payment) -> Paid:
    if payment.amount > 1000:
        raise HTTPException(402, "declined")
    return Paid(id=str(uuid4()), amount=payment.amount)


@app.post("/orders", status_code=201)
@idempotent(nebis, "place_order", effects=Local, tenant=current_account)
async def place_order(payment: Payment, attempt: AsyncAttempt) -> Paid:
    order = Paid(id=str(attempt.new_id("order")), amount=payment.amount)
    async with attempt.transaction() as tx:
        await tx.connection.execute("CREATE TABLE IF NOT EXISTS shop_order (id TEXT PRIMARY KEY, amount INTEGER)")
        await tx.connection.execute("INSERT INTO shop_order VALUES (?, ?)", (order.id, order.amount))
        tx.finish(order)
    return order


@nebis.operation("refund", effects=Opaque)
async def refund(command: Payment) -> Paid:
    return Paid(id=str(uuid4()), amount=-command.amount)


@app.post("/refunds")
@bind(refund, tenant=current_account, status=201)
async def create_refund(payment: Payment) -> Payment:
    return payment


app.get("/operations/{id}")(operation_status(nebis, tenant=current_account))
app.get("/idempotency", include_in_schema=False)(idempotency_contract())
