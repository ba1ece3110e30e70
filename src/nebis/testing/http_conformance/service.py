"""A running application, and how much is asked of it."""

from __future__ import annotations

from dataclasses import dataclass

from nebis.testing.http_conformance.application import Scenarios
from nebis.testing.http_conformance.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is asked: the numbers of the promise, or a tenth of them."""

    twins: int
    interleaved: int
    disconnects: int


FULL = Sizes(twins=50, interleaved=10_000, disconnects=50)
TENTH = Sizes(twins=8, interleaved=1_000, disconnects=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An application with one endpoint for each of `ROUTES`, `GET /operations/{id}` and `POST /idempotency-tokens`.

    The same as the last is mounted at `POST /brief-tokens` too, with a lifetime of `BRIEFLY`.
    """

    address: tuple[str, int]
    scenarios: Scenarios
    sizes: Sizes = TENTH

    def client(self, caller: str | None = "acct-1") -> Client:
        """Return a client that authenticates as that caller, or not at all."""
        return Client(self.address, caller)
