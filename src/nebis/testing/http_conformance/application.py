"""The application under test, apart from its framework: what its endpoints do, and how its routes are protected."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

from nebis import Declared, Limit, Local, Opaque, Rejected, ResourceGone, Retryable, Wait, hours
from nebis.core.record import EffectsMode
from nebis.http import Accept, BodyKey, BusinessKey, Exchange, OptionalKey, Reconstruct, Reference, Wire, public

MEGABYTE = 1024 * 1024
ANSWER_LIMIT_BYTES = 2 * MEGABYTE
COMMAND_LIMIT_BYTES = 64 * 1024
GATE_SECONDS = 20.0
WIRE = Wire(
    status_path="/operations/",
    expires_header="Idempotency-Expires",
    deadline_header="Request-Deadline",
    timeout_header="Request-Timeout",
)
CARD_LIMIT = 3
BRIEFLY = timedelta(seconds=1)
"""For how long the tokens of `POST /brief-tokens` are good."""
SENSITIVE = (
    ("Set-Cookie", "session=secret"),
    ("WWW-Authenticate", "Bearer"),
    ("Authentication-Info", "secret"),
    ("X-Access-Token", "secret"),
    ("X-Refresh-Token", "secret"),
    ("X-Auth-Token", "secret"),
    ("X-CSRF-Token", "secret"),
    ("X-XSRF-Token", "secret"),
    ("X-Api-Key", "secret"),
    ("Authorization", "secret"),
)
"""What an endpoint may tell one caller and no replay may repeat (SEC14)."""


class Denied(Exception):
    """A caller who may not: the application answers it in its framework's own way, with this status."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"denied with {status}")


class Disguised(Exception):
    """A refusal that an endpoint raises in its framework's own way of raising a status."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"refused with {status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route of the application: `POST path`, protected under its name."""

    name: str
    effects: EffectsMode
    options: Mapping[str, Any] = field(default_factory=dict)
    is_public: bool = False

    @property
    def path(self) -> str:
        """Return the path of the route; every route takes the same JSON commands."""
        return f"/{self.name}"

    @property
    def tenant(self) -> Any:
        """Return the tenant if no authentication is asked for."""
        return public() if self.is_public else None

    def choices(self, scenarios: Scenarios) -> dict[str, Any]:
        """Return what to hand to the integration's decorator, beside name, effects and tenant."""
        chosen = {
            "wire": WIRE,
            "result_limit_bytes": ANSWER_LIMIT_BYTES,
            "command_limit_bytes": COMMAND_LIMIT_BYTES,
            "store_headers": ("X-Chosen",),
            **self.options,
        }
        if chosen.pop("rebuilds", False):
            chosen["reconstruct"] = Reconstruct(
                refer=lambda answer: str(answer["id"]), rebuild=scenarios.rebuild, schema="v2"
            )
        return chosen


ROUTES = (
    Route(name="local", effects=Local),
    Route(name="declared", effects=Declared),
    Route(name="opaque", effects=Opaque),
    Route(
        name="waiting", effects=Local, options={"in_flight": Wait(longest=timedelta(seconds=20)), "waiters_limit": 64}
    ),
    Route(name="accepting", effects=Local, options={"in_flight": Accept()}),
    Route(name="optional", effects=Local, options={"key": OptionalKey()}),
    Route(name="business", effects=Local, options={"key": BusinessKey(lambda command: str(command["order"]))}),
    Route(
        name="business-always",
        effects=Local,
        options={"key": BusinessKey(lambda command: str(command["order"]), always=True)},
    ),
    Route(name="body-key", effects=Local, options={"key": BodyKey("client_token")}),
    Route(name="lenient", effects=Local, options={"binds": ()}),
    Route(name="secretive", effects=Local, options={"store_body": False}),
    Route(name="rebuilt", effects=Local, options={"rebuilds": True}),
    Route(name="varying", effects=Local, options={"vary_on": ("Accept",)}),
    Route(name="guests", effects=Local, is_public=True),
    Route(name="issued", effects=Local, options={"issued_keys": True}),
    Route(name="issued-too", effects=Local, options={"issued_keys": True}),
    Route(name="limited", effects=Local, options={"velocity": [Limit(CARD_LIMIT, per=hours(1), by="card")]}),
)


class Scenarios:
    """What the endpoints do: whatever the command says, and a count of how often they did it."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        """How often each tag was acted on."""
        self.revoked: set[str] = set()
        self.downgraded: set[str] = set()
        self.resources: dict[str, str] = {}
        self._gates: dict[str, threading.Event] = {}
        self._started: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def tenant(self, authorization: str | None) -> str:
        """Authenticate a caller from a header, as an application would."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme != "Bearer" or not token.replace("-", "").isalnum() or token in self.revoked:
            raise Denied(401)
        if token in self.downgraded:
            raise Denied(403)
        return token

    def act(self, command: Any) -> Exchange:
        """Do what the command says, or raise: blocking, so that an asyncio endpoint calls it on a thread."""
        if not isinstance(command, dict):
            command = {"act": "json", "tag": json.dumps(command, default=str)}
        tag = str(command.get("tag", ""))
        if "gate" in command:
            self.started(tag).set()
            assert self.gate(tag).wait(GATE_SECONDS), "nobody opened the gate"
        with self._lock:
            self.runs[tag] += 1
        return _ACTS[command.get("act", "json")](self, command)

    def gate(self, tag: str) -> threading.Event:
        """Return what a command with `gate` waits for before it does anything."""
        with self._lock:
            return self._gates.setdefault(tag, threading.Event())

    def started(self, tag: str) -> threading.Event:
        """Return what is set once such a command stands before its gate."""
        with self._lock:
            return self._started.setdefault(tag, threading.Event())

    def rebuild(self, reference: Reference) -> Any:
        """Make an answer from a resource, in the shape of the newest deploy."""
        if reference.id not in self.resources:
            raise ResourceGone
        return {"id": reference.id, "state": self.resources[reference.id], "stored": reference.schema, "shape": "v3"}

    def _json(self, command: Mapping[str, Any]) -> Exchange:
        made = str(uuid4())
        self.resources[made] = "new"
        headers = (
            ("Content-Type", "application/json"),
            ("Location", f"/things/{made}"),
            ("X-Chosen", made),
            ("X-Passing", "for the first caller"),
            *SENSITIVE,
        )
        body = json.dumps({"id": made, "echo": command.get("echo")}).encode()
        return Exchange(status=201, headers=headers, body=body)

    def _invalid(self, command: Mapping[str, Any]) -> Exchange:
        if command.get("amount") is None:
            raise Disguised(422)
        return self._json(command)


def _bytes(status: int, content_type: str, make: Callable[[], bytes]) -> Callable[[Scenarios, Any], Exchange]:
    headers = (("Content-Type", content_type), ("X-Chosen", "yes")) if content_type else (("X-Chosen", "yes"),)
    return lambda _scenarios, _command: Exchange(status=status, headers=headers, body=make())


def _raising(make: Callable[[], Exception]) -> Callable[[Scenarios, Any], Exchange]:
    def act(_scenarios: Scenarios, _command: Any) -> Exchange:
        raise make()

    return act


_ACTS: Mapping[str, Callable[[Scenarios, Any], Exchange]] = {
    "json": Scenarios._json,  # noqa: SLF001 - a table of the methods of this very class.
    "invalid": Scenarios._invalid,  # noqa: SLF001
    "binary": _bytes(200, "application/octet-stream", lambda: uuid4().bytes + bytes(range(256))),
    "latin": _bytes(200, "text/plain; charset=iso-8859-1", lambda: f"\xe9t\xe9 {uuid4()}".encode("latin-1")),
    "large": _bytes(200, "application/octet-stream", lambda: uuid4().bytes * (MEGABYTE // 16)),
    "empty": _bytes(204, "", lambda: b""),
    "overflow": _bytes(200, "application/octet-stream", lambda: b"x" * (ANSWER_LIMIT_BYTES + 1)),
    "declined": _bytes(402, "application/json", lambda: json.dumps({"declined": str(uuid4())}).encode()),
    "unwell": _bytes(500, "text/plain", lambda: b"unwell"),
    "raise-declined": _raising(lambda: Disguised(402)),
    "raise-forbidden": _raising(lambda: Disguised(403)),
    "raise-limited": _raising(lambda: Disguised(429)),
    "rejected": _raising(lambda: Rejected("card-declined", detail="do not honour")),
    "retryable": _raising(lambda: Retryable("the ledger is busy")),
    "crash": _raising(lambda: RuntimeError("a secret that nobody may see")),
}
