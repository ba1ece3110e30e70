"""What tests ask of the bank, and how they tell it to behave."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from nebis.testing.bank.behaviours import Kind
from nebis.testing.bank.books import Mode, Reply

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Bank:
    """A bank that runs somewhere on this machine."""

    port: int

    def charge(
        self,
        mode: Mode,
        reference: str,
        amount: int = 1,
        *,
        key: str | None = None,
        fence: int | None = None,
        attempt: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Reply:
        """Ask for a charge; raise `OSError` or `http.client.HTTPException` if there is no answer."""
        marks = {"Idempotency-Key": key, "Fence": fence, "Attempt": attempt}
        headers = {name: str(value) for name, value in marks.items() if value is not None}
        body = {"reference": reference, "amount": amount}
        return self._ask("POST", f"/{mode}/charges", body, headers, timeout_seconds)

    def find(self, key: str) -> dict[str, Any] | None:
        """Look a charge up at the queryable counter."""
        reply = self._ask("GET", f"/{Mode.QUERYABLE}/charges/{quote(key, safe='')}")
        return reply.body if reply.status == 200 else None

    def void(self, key: str) -> bool:
        """Burn a key at the queryable counter; False if it was charged already."""
        return self._ask("POST", f"/{Mode.QUERYABLE}/charges/{quote(key, safe='')}/void", {}).status == 200

    def behave(self, reference: str, kind: Kind, *, seconds: float = 0.0, times: int = 1) -> None:
        """Ask for a behaviour towards the next calls with this reference."""
        body = {"reference": reference, "kind": kind, "seconds": seconds, "times": times}
        assert self._ask("POST", "/behaviours", body).status == 200

    def release(self, reference: str) -> None:
        """End every delay of calls with this reference."""
        assert self._ask("POST", "/release", {"reference": reference}).status == 200

    def ledger(self, reference: str | None = None) -> list[dict[str, Any]]:
        """Return every movement of money, or those with one reference."""
        found: list[dict[str, Any]] = self._books("ledger", reference)
        return found

    def requests(self, reference: str | None = None) -> list[dict[str, Any]]:
        """Return every call that arrived, or those with one reference."""
        found: list[dict[str, Any]] = self._books("requests", reference)
        return found

    def _books(self, name: str, reference: str | None) -> Any:
        query = "" if reference is None else f"?reference={quote(reference, safe='')}"
        return self._ask("GET", f"/{name}{query}").body[name]

    def _ask(
        self,
        method: str,
        path: str,
        body: object | None = None,
        headers: dict[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_seconds)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers or {})
            response = connection.getresponse()
            return Reply(response.status, json.loads(response.read()))
        finally:
            connection.close()
