"""An order: charge, stock and shipment. What was done before one of them says no is undone, newest first."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from examples.payments import bank
from examples.payments.database import run
from examples.payments.operations import CreatePayment, Text, book_payment, card_of, payment_of
from examples.payments.settings import PATIENCE, nebis
from nebis import AsyncAttempt, Declared, Rejected, Undo

SOLD_OUT = "out-of-stock"
LARGEST_PARCEL = 1000


class PlaceOrder(BaseModel):
    """Things to buy, and the card to pay with."""

    payment: CreatePayment
    sku: Text
    quantity: Annotated[int, Field(gt=0, le=1_000_000, strict=True)]


class Order(BaseModel):
    """Things that were bought."""

    order_id: str
    payment_id: str
    charge_id: str
    shipment_id: str
    sku: str
    quantity: int
    status: Literal["confirmed"] = "confirmed"
    created_at: str


async def reserve_stock(connection: Any, tenant: str, order_id: str, sku: str, quantity: int) -> str:
    """Put things aside for an order."""
    if sku == SOLD_OUT:
        raise Rejected("out_of_stock")
    await run(
        connection,
        "INSERT INTO shop_stock (order_id, tenant, sku, quantity) VALUES (:order_id, :tenant, :sku, :quantity)",
        order_id=order_id,
        tenant=tenant,
        sku=sku,
        quantity=quantity,
    )
    return order_id


async def return_stock(connection: Any, order_id: str) -> None:
    """Undo `reserve_stock`."""
    await run(connection, "DELETE FROM shop_stock WHERE order_id = :order_id", order_id=order_id)


async def book_shipment(connection: Any, tenant: str, order_id: str, shipment_id: str, quantity: int) -> str:
    """Ask the carrier, who takes parcels up to a size."""
    if quantity > LARGEST_PARCEL:
        raise Rejected("parcel_too_large")
    await run(
        connection,
        "INSERT INTO shop_shipment (shipment_id, tenant, order_id) VALUES (:shipment_id, :tenant, :order_id)",
        shipment_id=shipment_id,
        tenant=tenant,
        order_id=order_id,
    )
    return shipment_id


async def cancel_shipment(connection: Any, shipment_id: str) -> None:
    """Undo `book_shipment`."""
    await run(connection, "DELETE FROM shop_shipment WHERE shipment_id = :shipment_id", shipment_id=shipment_id)


@nebis.operation(
    "place_order",
    effects=Declared,
    undo={
        "charge": Undo(call=bank.refund_whole, recall=bank.REMEMBERS),
        "stock": Undo(call=return_stock, recall=None),
        "shipment": Undo(call=cancel_shipment, recall=None),
    },
    **PATIENCE,
)
async def place_order(attempt: AsyncAttempt, command: PlaceOrder) -> Order:
    """Do three things, or none: after `kill -9` anywhere the order is finished, or everything is undone."""
    tenant, quantity = attempt.tenant, command.quantity
    order_id, shipment_id = f"ord_{attempt.new_id('order').hex}", f"shp_{attempt.new_id('shipment').hex}"
    charge: bank.Charge = await attempt.effect("charge", bank.charge, card_of(command.payment), recall=bank.REMEMBERS)
    await attempt.step("stock", reserve_stock, tenant, order_id, command.sku, quantity)
    await attempt.step("shipment", book_shipment, tenant, order_id, shipment_id, quantity)
    payment = payment_of(attempt, command.payment, charge)
    order = Order(
        order_id=order_id,
        payment_id=payment.payment_id,
        charge_id=charge.charge_id,
        shipment_id=shipment_id,
        sku=command.sku,
        quantity=quantity,
        created_at=payment.created_at,
    )
    async with attempt.transaction() as tx:
        await book_payment(tx, attempt, payment)
        await run(
            tx.connection,
            """
            INSERT INTO shop_order (order_id, tenant, payment_id, sku, quantity, created_at)
            VALUES (:order_id, :tenant, :payment_id, :sku, :quantity, :created_at)
            """,
            tenant=tenant,
            **order.model_dump(include={"order_id", "payment_id", "sku", "quantity", "created_at"}),
        )
        tx.finish(order)
    return order
