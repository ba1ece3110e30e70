"""Reading first where a replay is likely: a hint that saves a trip, and that costs nothing but one when it is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from nebis.core.answers import Grant, Granted, Replay, Reused
from nebis.core.owning import KEPT
from nebis.core.record import Nonce, Outcome, OutcomeKind, RecordId, Retention
from nebis.core.verbs import Claim, Complete, identity_of
from nebis.flow import Flow
from nebis.ports.store import BlockingBackend
from nebis.stores import open_blocking
from nebis.stores.sql.asks import Query
from nebis.stores.sql.seen import SeenEnds
from tests.runtime.verbs import claim, renewal
from tests.stores.sql_backends import opened_sqlite

T = TypeVar("T")
DAY_US = 24 * 60 * 60 * 1_000_000
KEPT_FOR = Retention(outcome_us=DAY_US, metadata_us=DAY_US)


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> Iterator[BlockingBackend]:
    if request.param == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        backend = opened_sqlite(folder)
    else:
        backend = open_blocking(request.getfixturevalue("postgres_url"))
        backend.sessions.run(backend.store.migrate())
    yield backend
    backend.sessions.close()


def overheard(flow: Flow[T], asked: list[str]) -> Flow[T]:
    """Run a flow and write down what it asks for."""
    try:
        ask = next(flow)
        while True:
            asked.append(ask.statement.name if isinstance(ask, Query) else type(ask).__name__)
            ask = flow.send((yield ask))
    except StopIteration as stop:
        value: T = stop.value
        return value


def first(number: int) -> Claim:
    asked = claim(number)
    return replace(asked, terms=replace(asked.terms, retention=KEPT_FOR))


def again(number: int) -> Claim:
    """Return what a retry sends: the same, with random marks of its own."""
    return replace(
        first(number), record_id=RecordId(UUID(int=1000 + number)), nonce=Nonce((1000 + number).to_bytes(16, "big"))
    )


def run_once(backend: BlockingBackend, numbers: range) -> None:
    granted = backend.sessions.run(backend.store.apply([first(number) for number in numbers]))
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=b"done")
    ends = [
        Complete(ownership=answer.record.ownership, outcome=outcome, retention=KEPT_FOR)
        for answer in granted
        if isinstance(answer, Granted)
    ]
    assert backend.sessions.run(backend.store.apply(ends)) == [KEPT] * len(numbers)


def test_replays_of_records_that_were_seen_to_end_are_one_read(backend: BlockingBackend) -> None:
    run_once(backend, range(1, 4))
    asked: list[str] = []
    answers = backend.sessions.run(overheard(backend.store.apply([again(number) for number in (3, 1, 2)]), asked))
    assert [type(answer) for answer in answers] == [Replay] * 3
    assert asked in (["read"], ["read_ended"])


def test_one_key_that_was_never_seen_sends_its_batch_the_usual_way(backend: BlockingBackend) -> None:
    run_once(backend, range(1, 2))
    asked: list[str] = []
    answers = backend.sessions.run(overheard(backend.store.apply([again(1), first(2)]), asked))
    assert [type(answer) for answer in answers] == [Replay, Granted]
    assert any(name.startswith("claim") for name in asked)


def test_another_command_under_a_key_that_was_seen_is_refused(backend: BlockingBackend) -> None:
    run_once(backend, range(1, 2))
    [answer] = backend.sessions.run(backend.store.apply([replace(again(1), fingerprints=((1, bytes([1] * 32)),))]))
    assert isinstance(answer, Reused)


def test_a_record_that_is_gone_since_it_was_seen_begins_anew(backend: BlockingBackend) -> None:
    run_once(backend, range(1, 3))
    [replay, _] = backend.sessions.run(backend.store.apply([again(1), again(2)]))
    assert isinstance(replay, Replay)
    far = replay.record.expires_at + KEPT_FOR.metadata_us + DAY_US
    backend.sessions.run(backend.store.sweep(limit=10, now=far))
    answers = backend.sessions.run(backend.store.apply([again(1), again(2)], now=far))
    assert [answer.how for answer in answers if isinstance(answer, Granted)] == [Grant.NEW, Grant.NEW]


def test_a_record_whose_window_is_over_since_it_was_seen_runs_again(backend: BlockingBackend) -> None:
    run_once(backend, range(1, 2))
    [replay] = backend.sessions.run(backend.store.apply([again(1)]))
    assert isinstance(replay, Replay)
    [answer] = backend.sessions.run(backend.store.apply([again(1)], now=replay.record.expires_at))
    assert isinstance(answer, Granted)
    assert answer.how is Grant.RUN_AGAIN


def test_the_memory_of_ends_is_bounded_and_forgets_the_oldest() -> None:
    seen = SeenEnds(longest=2)
    ends = [
        Complete(
            ownership=renewal(number).ownership,
            outcome=Outcome(kind=OutcomeKind.SUCCEEDED, body=b""),
            retention=KEPT_FOR,
        )
        for number in (1, 2, 3, 4)
    ]
    for end in ends[:3]:  # What one batch ends is kept whole, and forgotten whole.
        seen.learn([end], [KEPT])
    assert not seen.expects_replays([first(1)])
    assert seen.expects_replays([first(2), first(3)])
    seen.learn(ends[:2], [KEPT] * 2)
    assert seen.expects_replays([first(1), first(2), first(3)])
    for end in ends[2:]:
        seen.learn([end], [KEPT])
    assert not seen.expects_replays([first(1)])
    assert not seen.expects_replays([first(2)])
    assert seen.expects_replays([first(3), first(4)])
    assert identity_of(ends[0]) == first(1).identity


def test_a_renewal_is_no_end() -> None:
    seen = SeenEnds()
    seen.learn([renewal(1)], [KEPT])
    assert not seen.expects_replays([first(1)])
