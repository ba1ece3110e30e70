"""Attempts that people may have to ask about are written down; those that end at once cost nothing (decision 0005)."""

import os
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from nebis.core.answers import Grant
from nebis.core.record import Record
from nebis.flow import Flow
from nebis.ports.history import AttemptNote
from nebis.ports.store import BlockingSessions, DefiniteFailure
from nebis.runtime import heartbeat as module
from nebis.runtime.heartbeat import Heartbeat
from tests.flows.specimens import LEASE_US, NOW, request_of
from tests.runtime.observed import PATIENCE_SECONDS, MovedClock, ObservedStore, renews

SOON_SECONDS = 0.01
NEVER_SECONDS = 10.0 * PATIENCE_SECONDS


class NotingStore(ObservedStore):
    """A store that says when something was written down, or fails to, as often as it is told to."""

    def __init__(self, clock: MovedClock) -> None:
        super().__init__(clock)
        self.noted = threading.Event()
        self.failures = 0

    def note_attempts(self, notes: Sequence[AttemptNote]) -> Flow[None]:
        if self.failures:
            self.failures -= 1
            raise DefiniteFailure("not now")
        yield from super().note_attempts(notes)
        self.noted.set()

    def notes(self, record: Record) -> list[AttemptNote]:
        return self.sessions().run(self.attempts_of(record.record_id))


class Noting:
    """A heartbeat on such a store."""

    def __init__(self) -> None:
        self.clock = MovedClock(NOW)
        self.store = NotingStore(self.clock)
        self.connections = 0
        self.heartbeat = Heartbeat(self.store, self.connect, lambda _: None)

    def connect(self) -> BlockingSessions:
        self.connections += 1
        return self.store.sessions()

    def claim(self) -> Record:
        return self.store.claimed(request_of(key="noted-0123456789abcdef"))


@pytest.fixture
def noting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noting]:
    monkeypatch.setattr(module, "RETRY_SECONDS", SOON_SECONDS)
    monkeypatch.setattr(module, "NOTE_AFTER_SECONDS", NEVER_SECONDS)
    made = Noting()
    yield made
    made.heartbeat.close()


def test_an_attempt_that_lasts_is_written_down_with_its_process(
    noting: Noting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NOTE_AFTER_SECONDS", SOON_SECONDS)
    record = noting.claim()

    noting.heartbeat.watch(record, LEASE_US, NEVER_SECONDS)

    assert noting.store.noted.wait(PATIENCE_SECONDS)
    assert noting.store.notes(record) == [
        AttemptNote(
            record_id=record.record_id,
            fence=record.fence,
            started_at=record.created_at,
            lease_us=LEASE_US,
            host=socket.gethostname(),
            pid=os.getpid(),
            how=Grant.NEW,
        )
    ]


def test_an_attempt_that_ends_at_once_costs_neither_a_row_nor_a_connection(noting: Noting) -> None:
    record = noting.claim()

    noting.heartbeat.forget(noting.heartbeat.watch(record, LEASE_US, NEVER_SECONDS))
    noting.heartbeat.close()

    assert (noting.store.notes(record), noting.connections) == ([], 0)


def test_a_successor_is_written_down_at_once(noting: Noting) -> None:
    noting.claim()
    noting.clock.now += LEASE_US + 1
    successor = noting.claim()

    noting.heartbeat.watch(successor, LEASE_US, NEVER_SECONDS)

    assert noting.store.noted.wait(PATIENCE_SECONDS)
    [note] = noting.store.notes(successor)
    assert (note.fence, note.how, note.started_at) == (successor.fence, Grant.TAKEN_OVER, noting.clock.now)


def test_what_could_not_be_written_down_is_tried_again_and_keeps_no_renewal(
    noting: Noting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NOTE_AFTER_SECONDS", 0.0)
    noting.store.failures = 3
    record = noting.claim()

    noting.heartbeat.watch(record, LEASE_US, SOON_SECONDS)
    noting.store.wait_for(renews(record.identity), times=3)

    assert noting.store.noted.wait(PATIENCE_SECONDS)
    assert len(noting.store.notes(record)) == 1
