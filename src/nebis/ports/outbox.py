"""The outbox port: messages that wait, in the store, for a relay to publish them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable

from nebis.core.answers import Answer, Locked
from nebis.core.verbs import Verb
from nebis.errors import MisuseError
from nebis.flow import Ask, Flow
from nebis.ports.history import Signed
from nebis.ports.messages import Message, PublishResult
from nebis.ports.store import Store


class MessageState(IntEnum):
    """How far a message got; up to `PARKED` it holds back what follows it under its ordering key."""

    PENDING = 0
    PARKED = 1
    """Given up by the relays, until a person retries or discards it."""
    PUBLISHED = 2
    DISCARDED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message in the outbox, and what was done about it."""

    sequence: int
    message: Message
    state: MessageState
    attempts: int
    fence: int
    """Counts who took it: only the last one may say what became of it."""
    created_at: int
    available_at: int
    """When it may be tried next; while a relay has it, when its lease ends."""
    ended_at: int | None
    taken_by: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What became of a message that a relay took."""

    sequence: int
    fence: int
    state: MessageState
    attempts: int
    pause_us: int = 0
    """How long it is left alone, if it is still pending."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How much waits in the outbox."""

    pending: int
    parked: int
    oldest_pending_us: int | None
    """Since when the oldest message waits that could have been published by now."""
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryQuery:
    """One bounded page of the outbox, in the order of staging."""

    states: tuple[MessageState, ...] = ()
    topic: str | None = None
    after: int = 0
    limit: int = 100


class Outbox(Protocol):
    """What a store does for messages. Every method is a flow of the store's own asks."""

    def stage(self, messages: Sequence[Message], *, now: int | None = None) -> Flow[None]:
        """Write messages inside the transaction that is open; one whose id is known already is left as it is."""
        ...

    def apply_and_stage(
        self, verb: Verb, messages: Sequence[Message], *, now: int | None = None
    ) -> Flow[Answer | Locked]:
        """Apply a verb inside the transaction that is open, and stage messages if it is kept."""
        ...

    def take(self, taken_by: str, *, limit: int, lease_us: int, now: int | None = None) -> Flow[list[Entry]]:
        """Take messages that are due, for as long as the lease, in the order of staging.

        Of those with the same ordering key only the first ones, and none while somebody else has an earlier one.
        """
        ...

    def mark(self, taken_by: str, marks: Sequence[Mark], *, now: int | None = None) -> Flow[frozenset[int]]:
        """Say what became of messages; return those that were still this relay's to speak for."""
        ...

    def purge(self, *, keep_us: int, limit: int, now: int | None = None) -> Flow[int]:
        """Delete at most `limit` messages that ended so long ago; return how many."""
        ...

    def find(self, message_id: str) -> Flow[Entry | None]:
        """Read one message."""
        ...

    def entries(self, query: EntryQuery) -> Flow[list[Entry]]:
        """Read one page of messages."""
        ...

    def depth(self, *, now: int | None = None) -> Flow[Depth]:
        """Count what waits."""
        ...

    def decide(
        self, message_id: str, state: MessageState, signed: Signed, *, now: int | None = None
    ) -> Flow[Entry | None]:
        """Retry (pending) or discard what a person says, and write it down in the same commit.

        Return the message if that was done; None if it is not there, is being published, or has ended.
        """
        ...


@runtime_checkable
class HasOutbox(Protocol):
    """A store that has an outbox."""

    @property
    def outbox(self) -> Outbox:
        """Return it."""
        ...


def outbox_of(store: Store) -> Outbox:
    """Return the outbox of a store; raise `MisuseError` if it has none."""
    if not isinstance(store, HasOutbox):
        raise MisuseError(f"The {store.capabilities.name} store has no outbox; use PostgreSQL or SQLite.")
    return store.outbox


@dataclass(frozen=True, slots=True)
class TakeMessages(Ask[list[Entry]]):
    """Take messages that are due, in the name of this relay."""

    limit: int
    lease_us: int


@dataclass(frozen=True, slots=True)
class PublishMessages(Ask[Sequence[PublishResult]]):
    """Hand messages to their publishers, and answer for each in the same order; never raises."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class ResetPublishers(Ask[None]):
    """Let the publishers of these topics begin anew; never raises."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class MarkMessages(Ask[frozenset[int]]):
    """Say what became of messages; answered with those that were still ours."""

    marks: tuple[Mark, ...]
