"""The simulated outbox does with messages what the SQL stores do: the same verbs in the same order, compared."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nebis.flow import Flow
from nebis.ports.messages import Message
from nebis.ports.outbox import Entry, EntryQuery, Mark, MessageState, Outbox, outbox_of
from nebis.ports.store import BlockingBackend
from nebis.stores import open_blocking
from nebis.stores.sql.asks import in_transaction
from nebis.testing.simulate.outbox import SimulatedOutbox

LEASE_US = 10_000_000
STEPS = 60


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlockingBackend]:
    is_sqlite = request.param == "sqlite"
    opened = open_blocking(f"sqlite:///{tmp_path}/nebis.db" if is_sqlite else request.getfixturevalue("postgres_url"))
    opened.sessions.run(opened.store.migrate())
    yield opened
    opened.sessions.close()


class Pair:
    """The model and the store side by side, on one clock that is moved by hand."""

    def __init__(self, backend: BlockingBackend) -> None:
        self._backend = backend
        self._outbox: Outbox = outbox_of(backend.store)
        self.now = 1_700_000_000_000_000
        is_postgres = backend.store.capabilities.name == "postgres"
        self.model = SimulatedOutbox(lambda: self.now, takes_heads_first=is_postgres)

    def run(self, flow: Flow[Any]) -> Any:
        return self._backend.sessions.run(flow)

    def stage(self, messages: Sequence[Message]) -> None:
        self.model.commit(self.model.stage(messages))
        self.run(in_transaction(self._outbox.stage(messages, now=self.now)))

    def take(self, relay: str, limit: int) -> list[Entry]:
        expected = self.model.take(relay, limit=limit, lease_us=LEASE_US)
        found: list[Entry] = self.run(self._outbox.take(relay, limit=limit, lease_us=LEASE_US, now=self.now))
        assert shown(found) == shown(expected)
        return expected

    def mark(self, relay: str, marks: Sequence[Mark]) -> None:
        expected = self.model.mark(relay, marks)
        assert self.run(self._outbox.mark(relay, marks, now=self.now)) == expected

    def compare(self) -> None:
        found: list[Entry] = self.run(self._outbox.entries(EntryQuery(limit=1000)))
        assert shown(found) == shown([entry for _, entry in sorted(self.model.entries.items())])


def shown(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries without the message's own wish, which the stores read back as when it may be tried next."""
    return [replace(entry, message=replace(entry.message, available_at=None)) for entry in entries]


def mark_of(entry: Entry, chance: random.Random) -> Mark:
    state = chance.choice((MessageState.PUBLISHED, MessageState.PUBLISHED, MessageState.PENDING, MessageState.PARKED))
    return Mark(
        sequence=entry.sequence,
        fence=entry.fence - (chance.random() < 0.1),
        state=state,
        attempts=entry.attempts,
        pause_us=chance.choice((0, 1_000_000, 20_000_000)) if state is MessageState.PENDING else 0,
        error=None if state is MessageState.PUBLISHED else "no answer",
    )


@pytest.mark.parametrize("seed", range(4))
def test_model_does_what_the_store_does(backend: BlockingBackend, seed: int) -> None:
    chance = random.Random(seed)
    pair, held = Pair(backend), dict[str, list[Entry]]()
    for step in range(STEPS):
        pair.now += chance.choice((0, 1, 500_000, 4_000_000, 11_000_000))
        relay = chance.choice(("one", "two", "three"))
        match chance.choice(("stage", "take", "take", "mark", "mark")):
            case "stage":
                keys = [chance.choice((None, "a", "b")) for _ in range(chance.randint(1, 3))]
                pair.stage(
                    [
                        Message(id=f"{step}-{place}", topic="t", payload=b"p", ordering_key=key)
                        for place, key in enumerate(keys)
                    ]
                )
            case "take":
                held[relay] = pair.take(relay, chance.choice((1, 2, 3, 10)))
            case _:
                pair.mark(relay, [mark_of(entry, chance) for entry in held.pop(relay, [])])
        pair.compare()
