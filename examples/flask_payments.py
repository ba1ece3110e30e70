"""Payments with Flask. Run it: gunicorn -k gthread --threads 8 examples.flask_payments:app."""

from typing import Any
from uuid import uuid4

from flask import Flask, abort, request

from nebis import Attempt, Local, Nebis, Opaque
from nebis.integrations.flask import bind, idempotent, operation_status

nebis = Nebis("sqlite:///shop.db")
app = Flask(__name__)

ACCOUNTS = {"Bearer secret-1": "acct_1", "Bearer secret-2": "acct_2"}


def current_account() -> str:
    account = ACCOUNTS.get(request.headers.get("Authorization", ""))
    if account is None:
        abort(401)
    return account


def payment() -> int:
    body = request.get_json()
    if not isinstance(body, dict) or not isinstance(body.get("amount"), int):
        abort(422, "amount is a whole number")
    amount: int = body["amount"]
    return amount


@app.post("/payments")
@idempotent(nebis, "create_payment", effects=Opaque, tenant=current_account, command=payment)
def create_payment() -> tuple[dict[str, Any], int]:
    amount = payment()
    if amount > 1000:
        return {"declined": amount}, 402
    return {"id": str(uuid4()), "amount": amount}, 201


@app.post("/orders")
@idempotent(nebis, "place_order", effects=Local, tenant=current_account, command=payment)
def place_order(attempt: Attempt) -> tuple[dict[str, Any], int]:
    order = {"id": str(attempt.new_id("order")), "amount": payment()}
    with attempt.transaction() as tx:
        tx.connection.execute("CREATE TABLE IF NOT EXISTS shop_order (id TEXT PRIMARY KEY, amount INTEGER)")
        tx.connection.execute("INSERT INTO shop_order VALUES (:id, :amount)", order)
        tx.finish((order, 201))
    return order, 201


@nebis.operation("refund", effects=Opaque)
def refund(amount: int) -> dict[str, Any]:
    return {"id": str(uuid4()), "amount": -amount}


@app.post("/refunds")
@bind(refund, tenant=current_account, status=201)
def create_refund() -> int:
    return payment()


app.register_blueprint(operation_status(nebis, tenant=current_account))
