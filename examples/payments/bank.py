"""The client of the card gateway: what each answer, and each silence, means for the operation that called."""

from typing import Any

import httpx2
from pydantic import BaseModel

from examples.payments.settings import GATEWAY
from nebis import EffectTimedOut, Rejected, Retryable, Sticky, days

REMEMBERS = Sticky(days(1))
"""The gateway answers a key that it has seen with what it said first, yes or no: asking again is always safe."""

client = httpx2.AsyncClient(
    base_url=GATEWAY,
    trust_env=False,  # A proxy of this machine has no business between us and the loopback interface.
    limits=httpx2.Limits(max_connections=200, max_keepalive_connections=0),
)


class Card(BaseModel):
    """What the gateway is to be asked for."""

    invoice_id: str
    amount_cents: int
    currency: str
    number: str


class Charge(BaseModel):
    """Money that moved."""

    charge_id: str
    amount_cents: int


async def charge(card: Card, *, idempotency_key: str, timeout_seconds: float) -> Charge:
    """Charge a card, once per key."""
    asked = card.model_dump(exclude={"number"}) | {"card": card.number}
    return Charge.model_validate(await _post("/charges", asked, idempotency_key, timeout_seconds))


async def refund(charge_id: str, amount_cents: int, *, idempotency_key: str, timeout_seconds: float) -> str:
    """Give some of a charge back, once per key; return the gateway's id for it."""
    asked = {"charge_id": charge_id, "amount_cents": amount_cents}
    told: str = (await _post("/refunds", asked, idempotency_key, timeout_seconds))["refund_id"]
    return told


async def refund_whole(charged: Charge, *, idempotency_key: str, timeout_seconds: float) -> str:
    """Undo a charge."""
    return await refund(
        charged.charge_id, charged.amount_cents, idempotency_key=idempotency_key, timeout_seconds=timeout_seconds
    )


async def _post(path: str, body: dict[str, Any], key: str, timeout_seconds: float) -> Any:
    try:
        answer = await client.post(path, json=body, headers={"Idempotency-Key": key}, timeout=timeout_seconds)
    except httpx2.ConnectError as error:
        # There was no connection, so the request never left: nothing happened.
        raise Retryable("the card gateway cannot be reached") from error
    except httpx2.TransportError as error:
        # The request left and no answer came: the money may have moved. The effect stays open, the caller is told to
        # come back, and whoever comes next asks again under the same key.
        raise EffectTimedOut(path, timeout_seconds) from error
    if answer.status_code == 503:
        raise Retryable("the card gateway is unavailable")
    if 400 <= answer.status_code < 500:
        raise Rejected(answer.json()["error"])
    answer.raise_for_status()
    return answer.json()
