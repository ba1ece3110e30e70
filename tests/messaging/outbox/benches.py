"""An outbox on each store, seen as its relays see it and as it really is."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nebis.flow import Flow
from nebis.ports.messages import Confirmed, Message, PublishResult
from nebis.ports.outbox import Entry, EntryQuery, Mark, MessageState, Outbox, outbox_of
from nebis.ports.store import BlockingBackend
from nebis.stores.sql.asks import in_transaction

SECOND_US = 1_000_000
NOW = 1_700_000_000_000_000
LEASE_US = 30 * SECOND_US


def message(name: str, key: str | None = None, **more: Any) -> Message:
    return Message(**{"id": name, "topic": "orders", "payload": name.encode(), "ordering_key": key, **more})


class Bench:
    """An outbox whose clock is moved by hand."""

    def __init__(self, backend: BlockingBackend) -> None:
        self.backend = backend
        self.outbox: Outbox = outbox_of(backend.store)
        self.now = NOW

    def run(self, flow: Flow[Any]) -> Any:
        return self.backend.sessions.run(flow)

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * SECOND_US)

    def stage(self, *messages: Message) -> None:
        self.run(in_transaction(self.outbox.stage(messages, now=self.now)))

    def take(self, relay: str, limit: int = 100) -> list[Entry]:
        taken: list[Entry] = self.run(self.outbox.take(relay, limit=limit, lease_us=LEASE_US, now=self.now))
        return taken

    def mark(self, relay: str, entries: Sequence[Entry], state: MessageState, pause_us: int = 0) -> frozenset[int]:
        marks = [
            Mark(sequence=each.sequence, fence=each.fence, state=state, attempts=each.attempts, pause_us=pause_us)
            for each in entries
        ]
        marked: frozenset[int] = self.run(self.outbox.mark(relay, marks, now=self.now))
        return marked

    def states(self) -> dict[str, MessageState]:
        return {entry.message.id: entry.state for entry in self.run(self.outbox.entries(EntryQuery(limit=10_000)))}


def names(entries: Sequence[Entry]) -> list[str]:
    return [entry.message.id for entry in entries]


@dataclass
class Ledger:
    """A publisher that writes down what reached its broker, in the order in which it did."""

    answer: Callable[[Message], PublishResult] = lambda _: Confirmed()
    delivered: list[Message] = field(default_factory=list)
    resets: int = 0
    is_closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        results = []
        for each in messages:
            result = self.answer(each)
            results.append(result)
            if isinstance(result, Confirmed):
                with self.lock:
                    self.delivered.append(each)
        return results

    async def reset(self) -> None:
        self.resets += 1

    async def aclose(self) -> None:
        self.is_closed = True

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.delivered]

    def first_times(self, key: str) -> list[str]:
        """Return the ids of a key in the order of their first arrival, as a consumer that deduplicates sees them."""
        return list(dict.fromkeys(each.id for each in self.delivered if each.ordering_key == key))
