"""The Retry Lab: the page, what it can ask for, and the stream that tells it what really happened."""

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse

from examples.payments import bank
from examples.payments.api import WIRE, current_tenant, rejected
from examples.payments.database import Row, database
from examples.payments.demo.faults import asked
from examples.payments.operations import CreatePayment, Payment, card_of, create_payment
from examples.payments.settings import nebis
from nebis import NebisError
from nebis.core.record import Record, RecordId
from nebis.http import BusinessKey
from nebis.integrations.fastapi import NebisRoute, bind
from nebis.ports.observer import Event

PAGE = Path(__file__).parent / "page"
LOOK_SECONDS = 0.2
TENANT = "alice"
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}

router = APIRouter(route_class=NebisRoute)


class Hub:
    """What happened to the requests of each open page, until its stream has told it."""

    def __init__(self) -> None:
        self._told: dict[str, deque[Row]] = {}
        self.moved = asyncio.Event()

    def open(self, session: str) -> deque[Row]:
        """Return what is to be told to a page."""
        return self._told.setdefault(session, deque(maxlen=500))

    def close(self, session: str) -> None:
        """Forget a page that is gone."""
        self._told.pop(session, None)

    def watch(self, event: Event) -> None:
        """Note an event for the page whose request it happened to."""
        now = asked.get()
        if now is not None:
            self.open(now.session).append({"lane": now.lane, "kind": type(event).__name__, **asdict(event)})
            self.moved.set()


hub = Hub()


@router.get("/", include_in_schema=False)
async def page() -> Response:
    return FileResponse(PAGE / "index.html", headers=HEADERS)


@router.get("/lab/{name}", include_in_schema=False)
async def asset(name: str) -> Response:
    found = {path.name: path for path in PAGE.iterdir()}.get(name)
    return Response(status_code=404) if found is None else FileResponse(found, headers=HEADERS)


@router.post("/v1/lab/invoices")
@bind(
    create_payment,
    tenant=current_tenant,
    status=201,
    render_rejected=rejected,
    wire=WIRE,
    # Whatever key the client makes up, the invoice decides: fresh keys for the same invoice are the same request.
    key=BusinessKey(of=lambda command: f"invoice:{command.invoice_id}", always=True),
)
async def pay_invoice(payment: CreatePayment) -> CreatePayment:
    """Pay as `POST /v1/payments` does, under a key that is made from the invoice."""
    return payment


@router.post("/v1/lab/unprotected", status_code=201)
async def pay_without_nebis(command: CreatePayment) -> Payment:
    """Pay as most code does: charge, then write. Nothing remembers that this request was here before."""
    try:
        charge = await bank.charge(card_of(command), idempotency_key=str(uuid4()), timeout_seconds=10)
    except NebisError as error:
        raise HTTPException(502, str(error)) from error
    payment_id = f"pay_{uuid4().hex}"
    found = await database.rows("SELECT CAST(CURRENT_TIMESTAMP AS TEXT) AS now")
    row = {"payment_id": payment_id, "tenant": TENANT, "charge_id": charge.charge_id, "created_at": found[0]["now"]}
    await database.rows(
        """
        INSERT INTO shop_payment (payment_id, tenant, charge_id, invoice_id, amount_cents, currency, created_at)
        VALUES (:payment_id, :tenant, :charge_id, :invoice_id, :amount_cents, :currency, :created_at)
        """,
        **row,
        **command.model_dump(exclude={"card"}),
    )
    for account, sign in (("card_clearing", 1), ("sales", -1)):
        await database.rows(
            """
            INSERT INTO shop_ledger (transaction_id, account, tenant, amount_cents, created_at)
            VALUES (:payment_id, :account, :tenant, :amount_cents, :created_at)
            """,
            account=account,
            amount_cents=sign * command.amount_cents,
            **{name: row[name] for name in ("payment_id", "tenant", "created_at")},
        )
    await database.rows(
        """
        INSERT INTO shop_receipt (receipt_id, tenant, payment_id, invoice_id, created_at)
        VALUES (:receipt_id, :tenant, :payment_id, :invoice_id, :created_at)
        """,
        receipt_id=f"rec_{uuid4().hex}",
        invoice_id=command.invoice_id,
        **{name: row[name] for name in ("payment_id", "tenant", "created_at")},
    )
    return Payment(
        payment_id=payment_id,
        charge_id=charge.charge_id,
        created_at=row["created_at"],
        **command.model_dump(exclude={"card"}),
    )


@router.post("/lab/gateway")
async def behave(behaviour: dict[str, int]) -> Response:
    """Tell the gateway how to misbehave: the page may not talk to another address than its own."""
    answer = await bank.client.post("/behaviour", json=behaviour)
    return JSONResponse(answer.json(), answer.status_code)


def streaming(is_ending: Callable[[], bool]) -> None:
    """Add the stream, which has to end when the server does."""

    @router.get("/lab/stream/{session}/{invoice}", include_in_schema=False)
    async def stream(request: Request, session: str, invoice: str) -> Response:
        # After a crash the browser comes back by itself and says which record it was watching.
        watched = request.headers.get("last-event-id", "")
        frames = _frames(session, invoice, watched, is_ending)
        return StreamingResponse(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _frames(session: str, invoice: str, watched: str, is_ending: Callable[[], bool]) -> AsyncIterator[str]:
    told, shown = hub.open(session), ""
    try:
        yield "retry: 300\n\n"
        while not is_ending():
            hub.moved.clear()
            while told:
                event = told.popleft()
                watched = event["operation_id"]
                yield f"event: happened\ndata: {json.dumps(event)}\n\n"
            snapshot = json.dumps(await _snapshot(invoice, watched))
            if snapshot != shown:
                shown = snapshot
                yield f"id: {watched}\nevent: snapshot\ndata: {snapshot}\n\n"
            try:
                await asyncio.wait_for(hub.moved.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue
    finally:
        hub.close(session)


async def _snapshot(invoice: str, watched: str) -> Row:
    """Read what is true now, each part from those who own it."""
    record = await nebis.find(RecordId(UUID(watched))) if watched else None
    mine = {"tenant": TENANT, "invoice": invoice}
    payments = "SELECT payment_id FROM shop_payment WHERE tenant = :tenant AND invoice_id = :invoice"
    return {
        "pid": os.getpid(),
        "record": None if record is None else _portrait(record),
        "charges": await _charges(invoice),
        "ledger": await database.rows(
            f"""
            SELECT transaction_id, account, amount_cents FROM shop_ledger
            WHERE transaction_id IN ({payments})
            ORDER BY transaction_id, account
            """,  # noqa: S608 - put together from texts of our own.
            **mine,
        ),
        "outbox": await database.rows(
            f"SELECT topic, state FROM nebis_outbox WHERE ordering_key IN ({payments}) ORDER BY sequence",  # noqa: S608
            **mine,
        ),
        "receipts": await database.rows(
            f"SELECT receipt_id FROM shop_receipt WHERE payment_id IN ({payments}) ORDER BY receipt_id",  # noqa: S608
            **mine,
        ),
    }


async def _charges(invoice: str) -> list[Any] | None:
    """Ask the gateway what moved money; None while it is not there."""
    try:
        answer = await bank.client.get("/charges", params={"invoice_id": invoice}, timeout=2)
    except httpx2.HTTPError:
        return None
    found: list[Any] = answer.json()["charges"]
    return found


def _portrait(record: Record) -> Row:
    return {
        "operation_id": str(record.record_id),
        "state": record.state.value,
        "is_dirty": record.is_dirty,
        "attempts": record.attempts,
        "recoveries": record.recoveries,
        "fence": record.fence,
        "lease_until_ms": record.lease_until // 1000,
        "effects": [
            {
                "name": effect.name,
                "key": effect.derived_key,
                "verdict": None if effect.verdict is None else effect.verdict.value,
            }
            for effect in record.effects
        ],
        "outcome": None if record.outcome_kind is None else record.outcome_kind.value,
    }
