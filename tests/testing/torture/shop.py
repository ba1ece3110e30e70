"""A small shop that keeps every promise of a key, in the standard library alone, for others to break."""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

LARGEST_BYTES = 65_536
LONGEST_KEY = 255
TENANTS = {"Bearer secret-1": "acct_1", "Bearer secret-2": "acct_2"}
_KEY = re.compile(r'[!#-+\--~]{1,255}|"[!#-+\--~]{1,255}"')

Json = dict[str, Any]


@dataclass(slots=True)
class Answer:
    status: int
    body: Json
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Entry:
    """What is known of a key."""

    fingerprint: str
    answer: Answer | None = None
    """None while it runs."""


class Refused(Exception):
    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.answer = Answer(status, {"error": what})


class Handler(BaseHTTPRequestHandler):
    """One connection to the shop."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    shop: "Shop"

    def do_GET(self) -> None:
        self.say(self.shop.read(self))

    def do_POST(self) -> None:
        try:
            answer = self.shop.post(self)
        except Refused as refused:
            answer = refused.answer
        except ConnectionError:
            self.close_connection = True
            return
        self.say(answer)

    def read_body(self) -> bytes:
        """Return the whole body; raise `ConnectionError` if it breaks off."""
        if "content-length" not in self.headers:
            self.close_connection = True
            raise Refused(411, "length required")
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError
        if length > LARGEST_BYTES:
            raise Refused(413, "too large")
        return body

    def say(self, answer: Answer) -> None:
        data = json.dumps(answer.body).encode()
        with suppress(ConnectionError):
            self.send_response(answer.status, "")
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.shop.cut()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the inherited parameter.
        """Stay silent."""


class Shop:
    """The shop without faults. Each method is a promise that a subclass may break."""

    own: ClassVar[str] = ""
    """The check that must find the fault."""
    also: ClassVar[frozenset[str]] = frozenset()
    """Checks that may find it too; no other may fail."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.entries: dict[object, Entry] = {}
        self.effects: Counter[str] = Counter()
        self.failed: set[str] = set()
        self.payments: dict[str, tuple[str, Json]] = {}

    def cut(self) -> None:
        """Think nothing of a connection that broke off."""

    def post(self, handler: Handler) -> Answer:
        tenant = self.tenant(handler)
        body = handler.read_body()
        key = self.key(handler)
        command = self.command(body)
        identity = self.identity(tenant, handler, key)
        seen = self.claim(identity, self.fingerprint(command), key)
        if seen is not None:
            return self.replayed(seen)
        try:
            answer = self.run(tenant, command)
        except RuntimeError:
            self.failing(identity, command)
            return Answer(500, {"error": "unwell"})
        self.complete(handler, identity, answer)
        return Answer(answer.status, answer.body, {**answer.headers, "Set-Cookie": f"session={uuid4()}"})

    def tenant(self, handler: Handler) -> str:
        found = TENANTS.get(handler.headers.get("authorization", ""))
        if found is None:
            handler.close_connection = True
            raise Refused(401, "who are you")
        return found

    def key(self, handler: Handler) -> str:
        given = handler.headers.get_all("idempotency-key") or []
        if len(given) != 1:
            raise self.refusal(400, "one key is needed", ", ".join(given))
        if not _KEY.fullmatch(given[0]):
            raise self.refusal(400, "that is no key", given[0])
        return given[0].strip('"')

    def refusal(self, status: int, what: str, key: str) -> Refused:
        return Refused(status, what)

    def command(self, body: bytes) -> Json:
        try:
            found = json.loads(body, object_pairs_hook=_once, parse_constant=_never)
        except (ValueError, RecursionError):
            raise Refused(400, "that is no JSON") from None
        if not isinstance(found, dict) or not isinstance(found.get("order"), str):
            raise Refused(422, "an order is needed")
        return found

    def identity(self, tenant: str, handler: Handler, key: str) -> object:
        return tenant, handler.path, key

    def fingerprint(self, command: Json) -> str:
        return json.dumps(command, sort_keys=True)

    def claim(self, identity: object, fingerprint: str, key: str) -> Answer | None:
        """Claim the key, or return what is stored for it."""
        with self.lock:
            entry = self.entries.get(identity)
            if entry is None:
                self.entries[identity] = Entry(fingerprint)
                return None
        return self.compared(entry, fingerprint, key)

    def compared(self, entry: Entry, fingerprint: str, key: str) -> Answer:
        if entry.fingerprint != fingerprint:
            raise self.refusal(422, "that key was used for something else", key)
        if entry.answer is None:
            return self.in_flight()
        return entry.answer

    def in_flight(self) -> Answer:
        return Answer(409, {"error": "in flight"}, {"Retry-After": "1"})

    def replayed(self, answer: Answer) -> Answer:
        return Answer(answer.status, answer.body, {**answer.headers, "Idempotency-Replayed": "true"})

    def run(self, tenant: str, command: Json) -> Answer:
        order, fails = command["order"], command.get("fails")
        time.sleep(command.get("delay_ms", 0) / 1000)
        if command["amount"] > 1000:
            return Answer(402, {"declined": str(uuid4())})
        if fails == "once" and order not in self.failed:
            self.failed.add(order)
            raise RuntimeError
        with self.lock:
            self.effects[order] += 1
        if fails == "late":
            raise RuntimeError
        made = {"id": uuid4().hex, "amount": command["amount"]}
        self.payments[made["id"]] = (tenant, made)
        return Answer(201, made)

    def failing(self, identity: object, command: Json) -> None:
        """Free the key where nothing happened; otherwise it stays in doubt."""
        if command.get("fails") == "once":
            with self.lock:
                del self.entries[identity]

    def complete(self, handler: Handler, identity: object, answer: Answer) -> None:
        with self.lock:
            self.entries[identity].answer = answer

    def read(self, handler: Handler) -> Answer:
        parts = urlsplit(handler.path)
        if parts.path == "/count":
            return Answer(200, {"count": self.effects[parse_qs(parts.query)["order"][0]]})
        tenant, made = self.payments.get(parts.path.rpartition("/")[2], ("", {}))
        if tenant and tenant == TENANTS.get(handler.headers.get("authorization", "")):
            return Answer(200, made)
        return Answer(404, {"error": "not found"})


def _once(pairs: list[tuple[str, Any]]) -> Json:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def _never(constant: str) -> None:
    raise ValueError(constant)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


@contextmanager
def open_shop(shop: Shop) -> Iterator[str]:
    """Serve a shop while the block runs; yields its URL."""
    server = _Server(("127.0.0.1", 0), type("Handler", (Handler,), {"shop": shop}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


SHOP_TOML = """
[request]
path = "/payments"
success = 201
body = { order = "order-{unique}", amount = 5 }
largest_bytes = 65536

[variants]
changed = { amount = 6 }
rejected = { amount = 5000 }
rejected_status = 402
slow = { delay_ms = 150 }
fails_once = { fails = "once" }
fails_late = { fails = "late" }

[keys]
replayed_header = "Idempotency-Replayed"

[tenants]
first = { Authorization = "Bearer secret-1" }
second = { Authorization = "Bearer secret-2" }

[effects]
url = "/count?order=order-{unique}"
json_path = "count"
lag_seconds = 0.1
settle_seconds = 0

[lookup]
path = "/payments/{id}"

[other]
path = "/refunds"

[limits]
twins = 8
storm = 12
request_seconds = 5
settled_seconds = 2
"""
