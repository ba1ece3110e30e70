"""The inbox port: what consumers keep beside the records of their messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeVar
from uuid import UUID

from nebis.core.record import RecordId
from nebis.delivery import ParkReason
from nebis.flow import Ask, Flow
from nebis.ports.history import Signed

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message as it is kept while it is parked."""

    parked_id: UUID
    """The same for every delivery of the same message, as far as that can be told."""
    consumer: str
    topic: str
    message_id: str | None = field(repr=False)
    partition: str | None
    offset: int | None
    content_type: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    payload: bytes | None = field(repr=False)
    """None where it was too large to be kept; the broker still has it."""
    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedLetter:
    """A parked message, and why it is."""

    letter: Letter
    reason: ParkReason
    detail: str
    """For people; never a part of the payload."""
    attempts: int
    record_id: RecordId | None = None
    is_due: bool = False
    """A worker sends it in again."""
    parked_at: int = 0
    """Set by the store's clock, when it was parked first."""
    updated_at: int = 0
    """Set by the store's clock, when it was parked last."""


class ParkDecision(StrEnum):
    """What a person may say about a parked message."""

    RETRY = "retry"
    """A worker sends it in again."""
    DISCARD = "discard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a message stands in the sequence of its partition."""

    consumer: str
    partition: str
    """The topic is part of it."""
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a consumer has applied a partition."""

    consumer: str
    partition: str
    last_offset: int
    gaps: int
    """How often an offset came that was not the next one."""
    gap: tuple[int, int] | None
    """First and last offset that the latest gap skipped."""
    updated_at: int


class Inbox(Protocol):
    """What a store keeps for consumers. Every method is a flow of the store's own asks."""

    def park(self, parked: ParkedLetter, *, now: int | None = None) -> Flow[None]:
        """Keep a message; one that is parked already gets the new reason and stays one."""
        ...

    def unpark(self, parked_id: UUID) -> Flow[bool]:
        """Let go of a parked message; False if it is not there, or no longer."""
        ...

    def decide_parked(
        self, parked_id: UUID, decision: ParkDecision, signed: Signed, *, now: int | None = None
    ) -> Flow[bool]:
        """Do what a person asked for and write it down, in one commit; False if the message is not there (SEC30)."""
        ...

    def find_parked(self, parked_id: UUID) -> Flow[ParkedLetter | None]:
        """Read one parked message."""
        ...

    def list_parked(
        self, *, consumer: str | None = None, after: tuple[int, UUID] | None = None, limit: int = 100
    ) -> Flow[list[ParkedLetter]]:
        """Read one page of parked messages without their payloads, in the order of (first parked, id)."""
        ...

    def due_letters(self, consumer: str, *, before: int, limit: int = 100) -> Flow[list[UUID]]:
        """Read which messages of a consumer are to be sent in again and were not touched since `before`."""
        ...

    def count_parked(self) -> Flow[dict[str, int]]:
        """Count parked messages by consumer."""
        ...

    def progress(self, consumer: str, partition: str) -> Flow[Progress | None]:
        """Read how far a consumer has applied a partition."""
        ...

    def progresses(self, consumer: str | None = None) -> Flow[list[Progress]]:
        """Read how far consumers are, by consumer and partition."""
        ...

    def advance(self, place: Place, *, now: int | None = None) -> Flow[None]:
        """Write down that an offset is applied, and the gap before it; one at or below the last changes nothing.

        Inside a transaction it is part of it.
        """
        ...


@dataclass(frozen=True, slots=True)
class AskInbox(Ask[T]):
    """Do something with the inbox of the store, outside any transaction of the turn."""

    act: Callable[[Inbox], Flow[T]]
