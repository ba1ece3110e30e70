"""What follows from a payment: a receipt for the customer, and balances for whoever asks. Once per message.

Messages come from the outbox. Here the relay hands them over inside the worker's process; with a broker in between it
would publish them, and everything below would stay as it is: a message may come twice, and is applied once.
"""

from typing import Any

from examples.payments.database import run
from examples.payments.ledger import Posted
from examples.payments.settings import AT_ONCE, nebis
from nebis import AsyncAttempt, Local, Retryable, seconds
from nebis.delivery import Delivery, Incoming, Later
from nebis.messaging import AsyncRelay, Message, RelayPolicy
from nebis.messaging.publishers.function import FunctionPublisher


@nebis.consumer("receipts", effects=Local, **AT_ONCE)
async def write_receipt(attempt: AsyncAttempt, message: Incoming[Posted]) -> None:
    """Write the e-mail that will be sent, unless the payment has one: the unique key says so whatever happens here."""
    posted = message.payload
    async with attempt.transaction() as tx:
        await run(
            tx.connection,
            """
            INSERT INTO shop_receipt (receipt_id, tenant, payment_id, invoice_id, created_at)
            VALUES (:receipt_id, :tenant, :payment_id, :invoice_id, :created_at)
            ON CONFLICT (payment_id) DO NOTHING
            """,
            receipt_id=f"rec_{attempt.new_id('receipt').hex}",
            tenant=posted.tenant,
            payment_id=posted.transaction_id,
            invoice_id=posted.invoice_id,
            created_at=attempt.time.isoformat(),
        )
        tx.finish(None)


@nebis.consumer("balances", effects=Local, **AT_ONCE)
async def add_up(attempt: AsyncAttempt, message: Incoming[Posted]) -> None:
    """Add a transaction to the balances: nothing here could tell a second time, so it must not come to that."""
    posted = message.payload
    async with attempt.transaction() as tx:
        for account, amount_cents in sorted(posted.amounts.items()):
            await run(
                tx.connection,
                """
                INSERT INTO shop_balance (tenant, account, amount_cents) VALUES (:tenant, :account, :amount_cents)
                ON CONFLICT (tenant, account)
                DO UPDATE SET amount_cents = shop_balance.amount_cents + excluded.amount_cents
                """,
                tenant=posted.tenant,
                account=account,
                amount_cents=amount_cents,
            )
        tx.finish(None)


CONSUMERS: dict[str, tuple[Any, ...]] = {"payment.created": (write_receipt, add_up)}
"""By topic; whatever else is posted only changes balances."""


async def deliver(message: Message) -> None:
    """Hand a message to everybody who waits for it; raise `Retryable` to be given it again."""
    delivery = Delivery(
        id=message.id,
        topic=message.topic,
        payload=message.payload,
        content_type=message.content_type,
        headers=dict(message.headers),
    )
    for consumer in CONSUMERS.get(message.topic, (add_up,)):
        verdict = await consumer.handle(delivery)
        if isinstance(verdict, Later):
            raise Retryable(verdict.reason)


relay = AsyncRelay(
    nebis,
    FunctionPublisher(deliver),
    policy=RelayPolicy(
        batch=20, lease=seconds(5), publish_timeout=seconds(4), idle=seconds(0.2), backoff_longest=seconds(5)
    ),
)
