"""What happens once: payments, refunds and transfers. Each function is written as if nothing could go wrong twice."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from examples.payments import bank
from examples.payments.database import run
from examples.payments.ledger import Posted, post
from examples.payments.settings import AT_ONCE, PATIENCE, nebis
from nebis import AsyncAttempt, Declared, Local, Rejected, Undo
from nebis.transaction import AsyncTransaction

Cents = Annotated[int, Field(gt=0, le=100_000_000_000, strict=True)]
Text = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
Currency = Literal["USD", "EUR", "INR"]


class CreatePayment(BaseModel):
    """What a client asks for. A real service takes a token of its card vault, never the number."""

    invoice_id: Text
    amount_cents: Cents
    currency: Currency
    card: Text


class Payment(BaseModel):
    """What it gets, however often it asks."""

    payment_id: str
    charge_id: str
    invoice_id: str
    amount_cents: int
    currency: Currency
    status: Literal["succeeded"] = "succeeded"
    created_at: str


@nebis.operation("create_payment", effects=Declared, **PATIENCE)
async def create_payment(attempt: AsyncAttempt, command: CreatePayment) -> Payment:
    """Charge the card, then book the payment.

    A process that dies in between leaves the intent of the charge behind. Whoever comes next, the client's retry or the
    worker, asks the gateway again under the same key and is told of the same charge.
    """
    charge: bank.Charge = await attempt.effect("charge", bank.charge, card_of(command), recall=bank.REMEMBERS)
    payment = payment_of(attempt, command, charge)
    async with attempt.transaction() as tx:
        await book_payment(tx, attempt, payment)
        tx.finish(payment)  # Rows, message and answer: one commit.
    return payment


def card_of(command: CreatePayment) -> bank.Card:
    return bank.Card(
        invoice_id=command.invoice_id,
        amount_cents=command.amount_cents,
        currency=command.currency,
        number=command.card,
    )


def payment_of(attempt: AsyncAttempt, command: CreatePayment, charge: bank.Charge) -> Payment:
    """Describe the payment. Its id and its time are the record's, so that every attempt says the same."""
    return Payment(
        payment_id=f"pay_{attempt.new_id('payment').hex}",
        charge_id=charge.charge_id,
        invoice_id=command.invoice_id,
        amount_cents=command.amount_cents,
        currency=command.currency,
        created_at=attempt.time.isoformat(),
    )


async def book_payment(tx: AsyncTransaction, attempt: AsyncAttempt, payment: Payment) -> None:
    """Write the payment, its two entries and the message about it into an open transaction."""
    await run(
        tx.connection,
        """
        INSERT INTO shop_payment (payment_id, tenant, charge_id, invoice_id, amount_cents, currency, created_at)
        VALUES (:payment_id, :tenant, :charge_id, :invoice_id, :amount_cents, :currency, :created_at)
        """,
        tenant=attempt.tenant,
        **payment.model_dump(exclude={"status"}),
    )
    posted = Posted(
        tenant=attempt.tenant,
        transaction_id=payment.payment_id,
        amounts={"card_clearing": payment.amount_cents, "sales": -payment.amount_cents},
        invoice_id=payment.invoice_id,
    )
    await post(tx, attempt, "payment.created", posted)


class CreateRefund(BaseModel):
    """Money to give back, of one payment."""

    payment_id: Text
    amount_cents: Cents


class Reserved(BaseModel):
    """A part of a payment that nobody else can give back any more."""

    refund_id: str
    payment_id: str
    charge_id: str
    amount_cents: int


class Refund(BaseModel):
    """Money that was given back."""

    refund_id: str
    payment_id: str
    amount_cents: int
    status: Literal["succeeded"] = "succeeded"
    created_at: str


async def reserve(connection: Any, tenant: str, refund_id: str, command: CreateRefund) -> Reserved:
    """Take the amount out of what is left of the payment; one statement decides, so that racing refunds cannot both."""
    wanted: dict[str, object] = {"tenant": tenant, **command.model_dump()}
    left = await run(
        connection,
        """
        UPDATE shop_payment
        SET refunded_cents = refunded_cents + :amount_cents
        WHERE payment_id = :payment_id AND tenant = :tenant AND refunded_cents + :amount_cents <= amount_cents
        RETURNING charge_id
        """,
        **wanted,
    )
    if not left:
        mine = "SELECT 1 FROM shop_payment WHERE payment_id = :payment_id AND tenant = :tenant"
        is_mine = await run(connection, mine, tenant=tenant, payment_id=command.payment_id)
        raise Rejected("refund_exceeds_payment" if is_mine else "payment_not_found")
    return Reserved(refund_id=refund_id, charge_id=left[0][0], **command.model_dump())


async def give_up(connection: Any, reserved: Reserved) -> None:
    """Undo a reservation whose refund the gateway refused."""
    await run(
        connection,
        "UPDATE shop_payment SET refunded_cents = refunded_cents - :amount_cents WHERE payment_id = :payment_id",
        amount_cents=reserved.amount_cents,
        payment_id=reserved.payment_id,
    )


@nebis.operation("create_refund", effects=Declared, undo={"reserve": Undo(call=give_up, recall=None)}, **PATIENCE)
async def create_refund(attempt: AsyncAttempt, command: CreateRefund) -> Refund:
    """Reserve, call, settle: the reservation commits first, so that no two refunds count on the same money."""
    refund_id = f"ref_{attempt.new_id('refund').hex}"
    reserved: Reserved = await attempt.step("reserve", reserve, attempt.tenant, refund_id, command)
    await attempt.effect("refund", bank.refund, reserved.charge_id, reserved.amount_cents, recall=bank.REMEMBERS)
    refund = Refund(
        refund_id=refund_id,
        payment_id=reserved.payment_id,
        amount_cents=reserved.amount_cents,
        created_at=attempt.time.isoformat(),
    )
    async with attempt.transaction() as tx:
        await run(
            tx.connection,
            """
            INSERT INTO shop_refund (refund_id, tenant, payment_id, amount_cents, status, created_at)
            VALUES (:refund_id, :tenant, :payment_id, :amount_cents, :status, :created_at)
            """,
            tenant=attempt.tenant,
            **refund.model_dump(),
        )
        amounts = {"sales": refund.amount_cents, "card_clearing": -refund.amount_cents}
        posted = Posted(tenant=attempt.tenant, transaction_id=refund_id, amounts=amounts)
        await post(tx, attempt, "refund.created", posted)
        tx.finish(refund)
    return refund


class CreateTransfer(BaseModel):
    """Money to move between two accounts of one tenant, which come into being on first use."""

    from_account: Text
    to_account: Text
    amount_cents: Cents

    @model_validator(mode="after")
    def _check_accounts(self) -> "CreateTransfer":
        if self.from_account == self.to_account:
            raise ValueError("from_account and to_account must differ")
        return self


class Transfer(BaseModel):
    """Money that was moved."""

    transfer_id: str
    from_account: str
    to_account: str
    amount_cents: int
    status: Literal["succeeded"] = "succeeded"
    created_at: str


@nebis.operation("create_transfer", effects=Local, **AT_ONCE)
async def create_transfer(attempt: AsyncAttempt, command: CreateTransfer) -> Transfer:
    """Move money inside one database: claim, entries, message and answer are a single commit."""
    transfer = Transfer(
        transfer_id=f"tra_{attempt.new_id('transfer').hex}",
        created_at=attempt.time.isoformat(),
        **command.model_dump(),
    )
    amounts = {command.from_account: -command.amount_cents, command.to_account: command.amount_cents}
    async with attempt.transaction() as tx:
        posted = Posted(tenant=attempt.tenant, transaction_id=transfer.transfer_id, amounts=amounts)
        await post(tx, attempt, "transfer.created", posted)
        tx.finish(transfer)
    return transfer
