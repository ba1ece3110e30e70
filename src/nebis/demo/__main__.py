"""Serve one protected endpoint on loopback, with the standard library alone.

PORT (8000) and NEBIS_STORE (a SQLite file under .nebis/) choose where it listens and what remembers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any

from nebis import Attempt, InDoubt, Local, Nebis, NebisError, NotYet, Rejected, RequestError
from nebis.core.strictjson import parse

LARGEST_BODY_BYTES = 64 * 1024
LARGEST_PORT = 65535


@dataclass(frozen=True)
class CreatePayment:
    """What a client asks for."""

    invoice_id: str
    amount_cents: int


@dataclass(frozen=True)
class Payment:
    """What it gets, however often it asks."""

    payment_id: str
    invoice_id: str
    amount_cents: int
    created_at: str


def protect(nebis: Nebis) -> Any:
    """Declare the one operation of this demo."""

    @nebis.operation("create_payment", effects=Local)
    def create_payment(attempt: Attempt, command: CreatePayment) -> Payment:
        if command.amount_cents <= 0:
            raise Rejected("amount-not-positive")
        print(f"  ran create_payment for invoice {command.invoice_id} (attempt {attempt.number})", flush=True)
        return Payment(
            payment_id=str(attempt.new_id("payment")),
            invoice_id=command.invoice_id,
            amount_cents=command.amount_cents,
            created_at=attempt.time.isoformat(),
        )

    return create_payment


class Endpoint(BaseHTTPRequestHandler):
    """POST /payments with an Idempotency-Key."""

    protocol_version = "HTTP/1.1"
    create_payment: Any

    def do_GET(self) -> None:
        """Say that the demo is alive."""
        if self.path == "/healthz":
            self._answer(HTTPStatus.OK, {"status": "ok", "pid": os.getpid()})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"detail": "POST /payments, or GET /healthz."})

    def do_POST(self) -> None:
        """Run the operation, or answer with what an earlier request left."""
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > LARGEST_BODY_BYTES:
            self.close_connection = True
            self._answer(HTTPStatus.BAD_REQUEST, {"detail": f"Send Content-Length, at most {LARGEST_BODY_BYTES}."})
            return
        body = self.rfile.read(int(length))
        if self.path != "/payments":
            self._answer(HTTPStatus.NOT_FOUND, {"detail": "POST /payments."})
            return
        try:
            command = _command(body)
            done = self.create_payment.execute(
                key=self.headers.get("Idempotency-Key", ""), tenant="demo", command=command
            )
        except NebisError as error:
            self._answer(_status(error), {"code": error.code, "detail": str(error)}, error=error)
        else:
            self._answer(HTTPStatus.CREATED, asdict(done.result), replayed=done.is_replay)

    def _answer(
        self, status: HTTPStatus, body: dict[str, object], *, replayed: bool = False, error: NebisError | None = None
    ) -> None:
        data = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if replayed:
            self.send_header("Idempotency-Replayed", "true")
        if isinstance(error, NotYet | InDoubt):
            self.send_header("Retry-After", str(max(1, round(error.retry_after_seconds))))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the inherited parameter.
        """Stay silent; the demo prints what it runs."""


def _command(body: bytes) -> CreatePayment:
    data = parse(body)
    if not isinstance(data, dict) or set(data) != {"invoice_id", "amount_cents"}:
        raise RequestError("Send an object with invoice_id and amount_cents.")
    if not isinstance(data["invoice_id"], str) or not isinstance(data["amount_cents"], int):
        raise RequestError("invoice_id is a string and amount_cents a whole number.")
    return CreatePayment(invoice_id=data["invoice_id"], amount_cents=data["amount_cents"])


def _status(error: NebisError) -> HTTPStatus:
    by_code = {
        "key-reused": HTTPStatus.UNPROCESSABLE_ENTITY,
        "in-flight": HTTPStatus.CONFLICT,
        "outcome-unknown": HTTPStatus.CONFLICT,
        "rejected": HTTPStatus.PAYMENT_REQUIRED,
        "body-too-large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    }
    if error.code in by_code:
        return by_code[error.code]
    if isinstance(error, RequestError):
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.SERVICE_UNAVAILABLE if isinstance(error, NotYet) else HTTPStatus.INTERNAL_SERVER_ERROR


def main() -> int:
    """Serve until interrupted; say clearly why it cannot."""
    port_text = os.environ.get("PORT", "8000")
    if not port_text.isdigit() or not 1 <= int(port_text) <= LARGEST_PORT:
        print(f"PORT must be a number from 1 to {LARGEST_PORT}, not {port_text!r}.", file=sys.stderr)
        return 2
    location = os.environ.get("NEBIS_STORE", "")
    if not location:
        Path(".nebis").mkdir(exist_ok=True)
        location = "sqlite:///.nebis/demo.db"
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Nebis(location) as nebis:
            endpoint = type("Endpoint", (Endpoint,), {"create_payment": protect(nebis)})
            server = ThreadingHTTPServer(("127.0.0.1", int(port_text)), endpoint)
            print(_welcome(int(port_text)), flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                server.server_close()
    except OSError as error:
        print(f"Cannot listen on port {port_text}: {error.strerror}. Choose another one with PORT=.", file=sys.stderr)
        return 1
    except NebisError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _welcome(port: int) -> str:
    pay = (
        f"curl -i http://127.0.0.1:{port}/payments -H 'Idempotency-Key: 7c9e6679-7425-40de-944b-e07fc1f90ae7' "
        """-d '{"invoice_id": "inv_1", "amount_cents": 4200}'"""
    )
    return f"Nebis demo on http://127.0.0.1:{port} (Ctrl-C ends it). Run this twice; it runs once:\n\n  {pay}\n"


if __name__ == "__main__":
    sys.exit(main())
