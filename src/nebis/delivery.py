"""What a broker's reader hands in, what a consumer's handler gets, and what the reader is told to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message as a broker delivered it, whatever is wrong with it."""

    payload: bytes = field(repr=False)
    topic: str
    id: str | None = None
    """What its sender called it, the same on every redelivery; None where it has no name."""
    content_type: str = "application/json"
    headers: Mapping[str, str | bytes] = field(default_factory=dict, repr=False)
    partition: str | None = None
    """Of the broker, within the topic; None where a topic has no parts."""
    offset: int | None = None
    """Its place in the partition, one more than that of the message before it."""
    redeliveries: int | None = None
    """How often the broker delivered it before; None where it does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming(Generic[T]):
    """One message as its handler gets it: the same on every attempt, whoever delivered it."""

    payload: T = field(repr=False)
    topic: str
    id: str | None
    content_type: str
    headers: Mapping[str, str] = field(repr=False)
    partition: str | None
    offset: int | None


class ParkReason(StrEnum):
    """Why a message is kept aside instead of being run."""

    NO_ID = "no-id"
    ID_MALFORMED = "id-malformed"
    """Its id, or what the dedup function made of it, cannot be a key."""
    DEDUP_FAILED = "dedup-failed"
    """The dedup function raised."""
    NO_OFFSET = "no-offset"
    """Its consumer goes by offsets."""
    HEADERS_BROKEN = "headers-broken"
    UNDECODABLE = "undecodable"
    """Its payload does not fit the type that the handler declares."""
    TOO_LARGE = "too-large"
    ID_REUSED = "id-reused"
    """Another payload came under the same id before."""
    AFTER_RETENTION = "after-retention"
    """It was applied so long ago that only its tombstone is left."""
    OFFSET_SKIPPED = "offset-skipped"
    """It came after later ones of its partition had been applied."""
    ATTEMPTS_USED_UP = "attempts-used-up"
    REJECTED = "rejected"
    """Its handler said no, for good."""
    IN_DOUBT = "in-doubt"
    """Nobody knows whether an effect of it happened."""
    OUTCOME_UNKNOWN = "outcome-unknown"
    """That was never proved either way, and it is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The message is applied, now or before: acknowledge it."""

    is_duplicate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """The message is not applied yet: have it delivered again after that time."""

    after_seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """The message is kept for a person, who can send it in again: acknowledge it."""

    reason: ParkReason
    parked_id: str


Verdict: TypeAlias = Done | Later | Parked
