"""A card gateway that stands for somebody else's: its own process, its own database, and none of our code.

    python examples/payments/gateway.py --port 8001 --file gateway.db

It moves money once per Idempotency-Key and remembers what it said, yes or no, also across `kill -9`. `POST /behaviour`
makes it as unreliable as a real one; every field is optional and only those that are given change:

    delay_ms           charge first, then hold the reply for that long
    lose_reply_next    charge the next n times, and close the connection without a word
    fail_before_next   answer the next n calls with 503, without charging
    decline_next       decline the next n charges

A call that only repeats a remembered answer is not held: there is nothing left to wait for.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

DECLINED_CARD = "4000000000000002"
LARGEST_BODY_BYTES = 64 * 1024

SCHEMA = """
CREATE TABLE IF NOT EXISTS request (path TEXT, idempotency_key TEXT, invoice_id TEXT, at TEXT);
CREATE TABLE IF NOT EXISTS charge (
    charge_id TEXT PRIMARY KEY, idempotency_key TEXT, invoice_id TEXT, amount_cents INTEGER, created_at TEXT
);
CREATE TABLE IF NOT EXISTS refund (
    refund_id TEXT PRIMARY KEY, charge_id TEXT, invoice_id TEXT, amount_cents INTEGER, idempotency_key TEXT
);
CREATE TABLE IF NOT EXISTS answer (
    path TEXT, idempotency_key TEXT, request TEXT, status INTEGER, body TEXT, PRIMARY KEY (path, idempotency_key)
);
"""

Json = dict[str, Any]


@dataclass
class Behaviour:
    """How the gateway misbehaves, until it is told otherwise or restarted."""

    delay_ms: int = 0
    lose_reply_next: int = 0
    fail_before_next: int = 0
    decline_next: int = 0

    def change(self, fields: Json) -> None:
        for name, value in fields.items():
            if name not in asdict(self) or type(value) is not int or value < 0:
                raise ValueError(f"{name!r} must be one of {', '.join(asdict(self))}, and a whole number from 0")
        for name, value in fields.items():
            setattr(self, name, value)

    def takes(self, name: str) -> bool:
        """Say whether the next call is one of those that `name` counts, and count it."""
        left: int = getattr(self, name)
        setattr(self, name, max(0, left - 1))
        return left > 0


@dataclass
class Reply:
    status: int
    body: Json
    is_new: bool = False
    is_lost: bool = False


class Gateway:
    """The books of the gateway: one connection, one writer at a time, every answer durable before it is given."""

    def __init__(self, file: str) -> None:
        self.behaviour = Behaviour()
        self.turn = threading.Lock()
        self.books = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=10)
        self.books.row_factory = sqlite3.Row
        self.books.execute("PRAGMA journal_mode = WAL")
        self.books.execute("PRAGMA synchronous = FULL")
        self.books.executescript(SCHEMA)

    def rows(self, query: str, *values: object) -> list[Json]:
        return [dict(row) for row in self.books.execute(query, values)]

    def post(self, path: str, key: str, request: Json) -> Reply:
        """Answer one call, in one transaction: what it moved and what it was told exist together or not at all."""
        with self.turn, self.books:
            self.books.execute("BEGIN IMMEDIATE")
            self.books.execute("INSERT INTO request VALUES (?, ?, ?, ?)", (path, key, self._invoice(request), _now()))
            if self.behaviour.takes("fail_before_next"):
                return Reply(503, {"error": "unavailable"})
            reply = self._remembered(path, key, request) or self._answer(path, key, request)
            reply.is_lost = self.behaviour.takes("lose_reply_next")
            return reply

    def _invoice(self, request: Json) -> str | None:
        if "charge_id" not in request:
            return request.get("invoice_id")
        charged = self.rows("SELECT invoice_id FROM charge WHERE charge_id = ?", request["charge_id"])
        return charged[0]["invoice_id"] if charged else None

    def _remembered(self, path: str, key: str, request: Json) -> Reply | None:
        found = self.rows("SELECT * FROM answer WHERE path = ? AND idempotency_key = ?", path, key)
        if not found:
            return None
        if found[0]["request"] != json.dumps(request, sort_keys=True):
            return Reply(422, {"error": "key_reused"})
        return Reply(found[0]["status"], json.loads(found[0]["body"]))

    def _answer(self, path: str, key: str, request: Json) -> Reply:
        reply = self._charge(key, request) if path == "/charges" else self._refund(key, request)
        self.books.execute(
            "INSERT INTO answer VALUES (?, ?, ?, ?, ?)",
            (path, key, json.dumps(request, sort_keys=True), reply.status, json.dumps(reply.body)),
        )
        return reply

    def _charge(self, key: str, request: Json) -> Reply:
        if request["card"] == DECLINED_CARD or self.behaviour.takes("decline_next"):
            return Reply(402, {"error": "card_declined"}, is_new=True)
        charge = {
            "charge_id": f"ch_{uuid4().hex}",
            "idempotency_key": key,
            "invoice_id": request["invoice_id"],
            "amount_cents": request["amount_cents"],
            "created_at": _now(),
        }
        self.books.execute("INSERT INTO charge VALUES (?, ?, ?, ?, ?)", tuple(charge.values()))
        return Reply(201, charge, is_new=True)

    def _refund(self, key: str, request: Json) -> Reply:
        charged = self.rows("SELECT * FROM charge WHERE charge_id = ?", request["charge_id"])
        if not charged:
            return Reply(404, {"error": "no_such_charge"}, is_new=True)
        refunded = self.rows(
            "SELECT COALESCE(SUM(amount_cents), 0) AS cents FROM refund WHERE charge_id = ?", request["charge_id"]
        )
        if refunded[0]["cents"] + request["amount_cents"] > charged[0]["amount_cents"]:
            return Reply(409, {"error": "refund_exceeds_charge"}, is_new=True)
        refund = {
            "refund_id": f"re_{uuid4().hex}",
            "charge_id": request["charge_id"],
            "invoice_id": charged[0]["invoice_id"],
            "amount_cents": request["amount_cents"],
            "idempotency_key": key,
        }
        self.books.execute("INSERT INTO refund VALUES (?, ?, ?, ?, ?)", tuple(refund.values()))
        return Reply(201, refund, is_new=True)


LISTS = {
    "/charges": "SELECT charge_id, idempotency_key, invoice_id, amount_cents, created_at FROM charge ORDER BY rowid",
    "/refunds": "SELECT refund_id, charge_id, invoice_id, amount_cents, idempotency_key FROM refund ORDER BY rowid",
    "/requests": "SELECT path, idempotency_key, invoice_id, at FROM request ORDER BY rowid",
}
FIELDS = {
    "/charges": {"invoice_id": str, "amount_cents": int, "currency": str, "card": str},
    "/refunds": {"charge_id": str, "amount_cents": int},
}


class Endpoint(BaseHTTPRequestHandler):
    """HTTP/1.0, a connection for each call: whoever finds the door closed knows that nothing happened."""

    gateway: Gateway

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path in LISTS:
            invoices = parse_qs(query).get("invoice_id")
            with self.gateway.turn:
                found = self.gateway.rows(LISTS[path])
            self._send(200, {path[1:]: [row for row in found if invoices is None or row["invoice_id"] in invoices]})
        elif path == "/behaviour":
            self._send(200, asdict(self.gateway.behaviour))
        elif path == "/healthz":
            self._send(200, {"status": "ok", "pid": os.getpid()})
        else:
            self._send(404, {"error": "not_found"})

    def do_POST(self) -> None:
        try:
            body = self._body()
            if self.path == "/behaviour":
                self.gateway.behaviour.change(body)
                self._send(200, asdict(self.gateway.behaviour))
            elif self.path in FIELDS:
                self._move_money(body)
            else:
                self._send(404, {"error": "not_found"})
        except ValueError as error:
            self._send(400, {"error": "bad_request", "detail": str(error)})

    def _move_money(self, body: Json) -> None:
        key = self.headers.get("Idempotency-Key", "")
        if not key:
            raise ValueError("an Idempotency-Key is required")
        for name, kind in FIELDS[self.path].items():
            if type(body.get(name)) is not kind:
                raise ValueError(f"{name} must be {kind.__name__}")
        if body["amount_cents"] <= 0:
            raise ValueError("amount_cents must be above zero")
        reply = self.gateway.post(self.path, key, body)
        if reply.is_new:
            time.sleep(self.gateway.behaviour.delay_ms / 1000)
        if reply.is_lost:
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._send(reply.status, reply.body)

    def _body(self) -> Json:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= LARGEST_BODY_BYTES:
            raise ValueError(f"at most {LARGEST_BODY_BYTES} bytes")
        body = json.loads(self.rfile.read(length))
        if not isinstance(body, dict):
            raise ValueError("the body must be a JSON object")  # noqa: TRY004 - of the request, not of a variable.
        return body

    def _send(self, status: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(status, HTTPStatus(status).phrase)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle(self) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # The caller is gone; what it asked for is in the books.
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the inherited parameter.
        """Stay silent; `GET /requests` has everything."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def _now() -> str:
    return datetime.now(UTC).isoformat()


def main() -> int:
    parser = argparse.ArgumentParser(description="A card gateway to be unreliable with.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--file", default="gateway.db")
    chosen = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))  # There is nothing to tidy up: every answer is on disk.
    gateway = Gateway(chosen.file)
    Server((chosen.host, chosen.port), type("Endpoint", (Endpoint,), {"gateway": gateway})).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
