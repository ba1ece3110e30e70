"""Payments with plain ASGI. Run it: uvicorn examples.asgi_payments:app."""

import json
from typing import Any
from uuid import uuid4

from nebis import AsyncNebis, Opaque
from nebis.integrations.asgi import lifespan
from nebis.integrations.asgi_rules import Protected, rule

nebis = AsyncNebis("sqlite:///shop.db")

ACCOUNTS = {b"Bearer secret-1": "acct_1", b"Bearer secret-2": "acct_2"}


def current_account(scope: Any) -> str | None:
    return ACCOUNTS.get(dict(scope["headers"]).get(b"authorization", b""))


async def shop(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        async with lifespan(nebis)(None):
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    amount = json.loads(body)["amount"]
    status, answer = (402, {"declined": amount}) if amount > 1000 else (201, {"id": str(uuid4()), "amount": amount})
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


app = Protected(
    shop,
    rules=[rule(nebis, "POST /payments", "create_payment", effects=Opaque, tenant=current_account)],
)
