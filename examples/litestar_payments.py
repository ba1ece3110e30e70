"""Payments with Litestar. Run it: uvicorn examples.litestar_payments:app."""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from litestar import Litestar, Request, get, post
from litestar.exceptions import HTTPException, NotAuthorizedException
from litestar.params import JSONBody

from nebis import AsyncNebis, Opaque
from nebis.integrations.litestar import NebisPlugin, idempotent, operation_status

nebis = AsyncNebis("sqlite:///shop.db")

ACCOUNTS = {"Bearer secret-1": "acct_1", "Bearer secret-2": "acct_2"}


@dataclass
class Payment:
    amount: int
    currency: str = "EUR"


@dataclass
class Paid:
    id: str
    amount: int


def current_account(request: Request[Any, Any, Any]) -> str:
    account = ACCOUNTS.get(request.headers.get("authorization", ""))
    if account is None:
        raise NotAuthorizedException
    return account


@post("/payments")
@idempotent(nebis, "create_payment", effects=Opaque, tenant=current_account)
async def create_payment(data: JSONBody[Payment]) -> Paid:
    if data.amount > 1000:
        raise HTTPException("declined", status_code=402)
    return Paid(id=str(uuid4()), amount=data.amount)


status = get("/operations/{id:str}")(operation_status(nebis, tenant=current_account))
app = Litestar([create_payment, status], plugins=[NebisPlugin(nebis)])
