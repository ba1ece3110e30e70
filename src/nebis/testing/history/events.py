"""What a history is made of. All instants are of one clock, in whatever unit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HistoryUnusable(Exception):
    """A history that proves nothing, because it is empty or cannot be understood."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Whose key, or whose aggregate, it is: rules hold for each of them alone."""

    tenant: str
    name: str

    def __str__(self) -> str:
        """Name it for people."""
        return f"{self.tenant}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke:
    """A call that was sent."""

    place: Place
    call: str
    at: float
    command: str
    nonce: str


class Verdict(StrEnum):
    """What a call was told."""

    OK = "ok"
    """A success of the operation."""
    FAIL = "fail"
    """A definite refusal by the operation itself."""
    REFUSED = "refused"
    """A word about this call only: it did nothing."""
    INFO = "info"
    """Nothing definite, or nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How a call ended for its client."""

    place: Place
    call: str
    at: float
    verdict: Verdict
    digest: str | None = None
    """Of status, selected headers and body; of successes."""
    code: str | None = None
    """Why, if it is not a success."""
    body_tenant: str | None = None
    body_nonce: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One movement of money in the bank's ledger."""

    place: Place
    at: float
    attempt: str | None = None
    """The call on whose behalf it was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """An attempt that came to own the record."""

    place: Place
    record: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """An outcome that became durable."""

    place: Place
    record: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """A record as it stood when everything was quiet."""

    place: Place
    state: str
    reason: str | None = None


class RowKind(StrEnum):
    """Where a business row was seen."""

    BUSINESS = "business"
    """Committed, in the order of commits."""
    OUTBOX = "outbox"
    """Staged as an event."""
    CONSUMED = "consumed"
    """Turned into an effect by a consumer, after it left out what it had seen before."""
