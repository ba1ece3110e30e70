"""Payments with plain WSGI. Run it: waitress-serve examples.wsgi_payments:app."""

import json
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from nebis import Nebis, Opaque
from nebis.integrations.wsgi import Protected, operation_status, rule

nebis = Nebis("sqlite:///shop.db")

ACCOUNTS = {"Bearer secret-1": "acct_1", "Bearer secret-2": "acct_2"}


def current_account(environ: Any) -> str | None:
    return ACCOUNTS.get(environ.get("HTTP_AUTHORIZATION", ""))


status = operation_status(nebis, tenant=current_account)


def shop(environ: Any, start_response: Any) -> Iterable[bytes]:
    if environ["PATH_INFO"].startswith("/operations/"):
        return status(environ, start_response)
    amount = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))["amount"]
    headers = [("Content-Type", "application/json")]
    if amount > 1000:
        start_response("402 Payment Required", headers)
        return [json.dumps({"declined": amount}).encode()]
    start_response("201 Created", headers)
    return [json.dumps({"id": str(uuid4()), "amount": amount}).encode()]


app = Protected(
    shop,
    rules=[rule(nebis, "POST /payments", "create_payment", effects=Opaque, tenant=current_account)],
)
