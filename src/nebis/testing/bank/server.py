"""The bank over HTTP: one thread for each connection, one connection for each request."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from nebis.testing.bank.behaviours import Behaviour, Behaviours, Kind
from nebis.testing.bank.books import Books, Call, Mode, Reply

NEED_KEY = frozenset({Mode.STICKY, Mode.SUCCESS_ONLY, Mode.FENCED, Mode.QUERYABLE})


class BankServer(ThreadingHTTPServer):
    """A listening bank."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, books: Books) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.books = books
        self.behaviours = Behaviours()


class Misspoken(Exception):
    """A request that the bank does not understand."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: BankServer

    def do_GET(self) -> None:
        """Look something up."""
        url = urlsplit(self.path)
        reference = parse_qs(url.query).get("reference", [None])[0]
        match url.path.strip("/").split("/"):
            case ["ledger"]:
                self._say(Reply(200, {"ledger": self.server.books.ledger(reference)}))
            case ["requests"]:
                self._say(Reply(200, {"requests": self.server.books.requests(reference)}))
            case [Mode.QUERYABLE, "charges", key]:
                self._say(self.server.books.find(unquote(key)))
            case _:
                self._say(Reply(404, {"error": "no such page"}))

    def do_POST(self) -> None:
        """Move money, or be told how to behave."""
        try:
            match urlsplit(self.path).path.strip("/").split("/"):
                case [mode, "charges"] if mode in list(Mode):
                    self._charge(self._call(Mode(mode)))
                case [Mode.QUERYABLE, "charges", key, "void"]:
                    self._say(self.server.books.void(unquote(key)))
                case ["behaviours"]:
                    self._say(self._behave(self._body()))
                case ["release"]:
                    self.server.behaviours.release(str(self._body()["reference"]))
                    self._say(Reply(200, {}))
                case _:
                    self._say(Reply(404, {"error": "no such page"}))
        except (Misspoken, KeyError, ValueError, TypeError) as error:
            self._say(Reply(400, {"error": f"{type(error).__name__}: {error}"}))

    def _charge(self, call: Call) -> None:
        books = self.server.books
        behaviour = self.server.behaviours.take(call.reference)
        kind = None if behaviour is None else behaviour.kind
        number = books.arrived(call, kind)
        if kind is Kind.FAIL_BEFORE:
            self._say(books.refuse(number, 503, "try again"))
            return
        if behaviour is not None and kind is Kind.DELAY_BEFORE:
            behaviour.delay()
        reply = books.serve(number, call, declines=kind is Kind.DECLINE)
        if behaviour is not None and kind is Kind.DELAY_AFTER:
            behaviour.delay()
        if kind is Kind.LOSE_REPLY:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._say(reply)

    def _call(self, mode: Mode) -> Call:
        body = self._body()
        key, fence = self.headers.get("Idempotency-Key"), self.headers.get("Fence")
        if mode in NEED_KEY and not key:
            raise Misspoken("this counter needs an Idempotency-Key")
        if mode is Mode.FENCED and not fence:
            raise Misspoken("this counter needs a Fence")
        return Call(
            mode=mode,
            reference=str(body["reference"]),
            amount=int(body["amount"]),
            key=key,
            fence=None if fence is None else int(fence),
            attempt=self.headers.get("Attempt"),
        )

    def _behave(self, body: dict[str, Any]) -> Reply:
        for _ in range(int(body.get("times", 1))):
            behaviour = Behaviour(kind=Kind(body["kind"]), seconds=float(body.get("seconds", 0.0)))
            self.server.behaviours.ask(str(body["reference"]), behaviour)
        return Reply(200, {})

    def _body(self) -> dict[str, Any]:
        read = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
        if not isinstance(read, dict):
            raise Misspoken("send a JSON object")
        return read

    def _say(self, reply: Reply) -> None:
        body = json.dumps(reply.body).encode()
        try:
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            # Whoever asked is gone. What was done is in the books, which is all that a witness is for.
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name that http.server gives it.
        """Say nothing: the books are the log."""
