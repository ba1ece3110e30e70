"""Payments with Starlette. Run it: uvicorn examples.starlette_payments:app."""

from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from nebis import AsyncNebis, Opaque
from nebis.integrations.starlette import NebisMiddleware, idempotent, lifespan, operation_status

nebis = AsyncNebis("sqlite:///shop.db")

ACCOUNTS = {"Bearer secret-1": "acct_1", "Bearer secret-2": "acct_2"}


def current_account(request: Request) -> str:
    account = ACCOUNTS.get(request.headers.get("authorization", ""))
    if account is None:
        raise HTTPException(401)
    return account


async def payment(request: Request) -> int:
    body = await request.json()
    if not isinstance(body, dict) or not isinstance(body.get("amount"), int):
        raise HTTPException(422, "amount is a whole number")
    amount: int = body["amount"]
    return amount


@idempotent(nebis, "create_payment", effects=Opaque, tenant=current_account, command=payment)
async def create_payment(request: Request) -> JSONResponse:
    amount = await payment(request)
    if amount > 1000:
        raise HTTPException(402, "declined")
    return JSONResponse({"id": str(uuid4()), "amount": amount}, status_code=201)


app = Starlette(
    routes=[
        Route("/payments", create_payment, methods=["POST"]),
        Route("/operations/{id}", operation_status(nebis, tenant=current_account)),
    ],
    middleware=[Middleware(NebisMiddleware)],
    lifespan=lifespan(nebis),
)
