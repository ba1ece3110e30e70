"""What a route that is bound to an operation tells of a rejection, the first time and every time after."""

from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route

from nebis import AsyncAttempt, AsyncNebis, Local, Rejected
from nebis.http import Exchange
from nebis.integrations.starlette import NebisMiddleware, bind, lifespan
from nebis.testing.http_conformance import Client
from nebis.testing.http_conformance.client import new_key
from tests.integrations.servers import uvicorn_serving


def tenant(_: Request) -> str:
    return "acct_1"


def shop(place: Path, **options: Any) -> Starlette:
    nebis = AsyncNebis(f"sqlite:///{place}/shop.db")

    @nebis.operation("pay", effects=Local)
    async def pay(attempt: AsyncAttempt, amount: int) -> str:
        raise Rejected("declined", detail=f"{attempt.tenant} has no {amount}")

    @bind(pay, tenant=tenant, **options)
    async def endpoint(request: Request) -> int:
        asked: int = (await request.json())["amount"]
        return asked

    return Starlette(
        routes=[Route("/pay", endpoint, methods=["POST"])],
        middleware=[Middleware(NebisMiddleware)],
        lifespan=lifespan(nebis),
    )


@pytest.mark.parametrize("is_own", [False, True], ids=["as a problem", "in the words of the api"])
def test_a_replayed_rejection_is_the_same_answer_and_says_that_it_is_a_replay(tmp_path: Path, is_own: bool) -> None:
    def own(told: Rejected) -> Exchange:
        return Exchange(status=402, headers=(("content-type", "text/plain"),), body=told.reason.encode())

    options: dict[str, Any] = {"render_rejected": own} if is_own else {"rejected_status": 402}
    key = new_key()
    with uvicorn_serving(shop(tmp_path, **options)) as address:
        client = Client(address, None)

        first, again = [client.post("/pay", {"amount": 7}, key=key) for _ in range(2)]

    assert (first.status, first.is_replay) == (402, False)
    assert (again.status, again.is_replay, again.body) == (402, True, first.body)
    assert first.body == b"declined" if is_own else b"acct_1 has no 7" in first.body
