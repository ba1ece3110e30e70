"""The ledger: entries that are written together, sum to zero, and are told to whoever follows."""

from pydantic import BaseModel

from examples.payments.database import run
from nebis import AsyncAttempt
from nebis.transaction import AsyncTransaction


class Posted(BaseModel):
    """A transaction of the ledger, as those who follow it are told."""

    tenant: str
    transaction_id: str
    amounts: dict[str, int]
    invoice_id: str = ""


async def post(tx: AsyncTransaction, attempt: AsyncAttempt, topic: str, posted: Posted) -> None:
    """Book one transaction of the ledger, whose entries sum to zero, and stage the message about it."""
    assert sum(posted.amounts.values()) == 0
    for account, amount_cents in sorted(posted.amounts.items()):
        await run(
            tx.connection,
            """
            INSERT INTO shop_ledger (transaction_id, account, tenant, amount_cents, created_at)
            VALUES (:transaction_id, :account, :tenant, :amount_cents, :created_at)
            """,
            transaction_id=posted.transaction_id,
            account=account,
            tenant=posted.tenant,
            amount_cents=amount_cents,
            created_at=attempt.time.isoformat(),
        )
    tx.stage(topic, posted.model_dump(), ordering_key=posted.transaction_id)
