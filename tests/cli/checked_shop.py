"""Applications for `nebis check` to look at."""

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from flask import Flask

from nebis import AsyncNebis, Declared, Local, Nebis, Opaque, hours
from nebis.http import BodyKey, OptionalKey
from nebis.integrations.fastapi import NebisRoute, bind, idempotent, lifespan
from nebis.integrations.report import unprotected

nebis = AsyncNebis("memory://")
blocking = Nebis("memory://")


def account() -> str:
    return "acct-1"


def session() -> Iterator[None]:
    yield


@nebis.operation("refund", effects=Declared)
async def refund(command: dict[str, int]) -> int:
    return command["amount"]


router = APIRouter(route_class=NebisRoute)


@router.post("/payments")
@idempotent(nebis, "create_payment", effects=Opaque, tenant=account)
async def create_payment() -> None: ...


@router.patch("/orders/{number:int}", dependencies=[Depends(session)])
@idempotent(nebis, "change_order", effects=Local, tenant=account, key=OptionalKey(), retention=hours(36))
async def change_order(number: int) -> None: ...


@router.post("/carts")
@idempotent(nebis, "fill_cart", effects=Local, tenant=account, key=BodyKey("token"))
async def fill_cart() -> None: ...


@router.post("/refunds")
@bind(refund, tenant=account)
async def create_refund(command: dict[str, int]) -> dict[str, int]:
    return command


@router.post("/search")
@unprotected("it only reads")
async def search() -> None: ...


@router.put("/carts/{number}")
async def replace_cart(number: str) -> None: ...


app = FastAPI(lifespan=lifespan(nebis))
app.include_router(router, prefix="/v1")

careless = FastAPI()
careless.include_router(router)


@careless.post("/login")
@careless.post("/hooks/{name}")
async def receive_hook(name: str = "") -> None: ...


@careless.post("/gifts")
@idempotent(nebis, "give", effects=Local, tenant=account)
async def give() -> None: ...


def make_flask() -> Flask:
    made = Flask("shop")

    @made.post("/payments/<int:number>")
    def pay(number: int) -> str:
        return str(number)

    return made


def make_nothing() -> Any:
    raise ValueError("postgresql://shop:hunter2@db/shop")
