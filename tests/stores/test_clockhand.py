"""A sweep over a large table, a stride at a time."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from nebis.core.answers import Granted
from nebis.core.record import State
from nebis.ports.store import BlockingBackend, Swept
from nebis.stores import open_blocking
from nebis.stores.sql import verbs
from nebis.stores.sql.clockhand import ClockHand, Stride
from nebis.testing.conformance.specimens import RETENTION, START_US, claim, complete
from tests.stores.sql_backends import sqlite_url
from tests.stores.test_plans import FILLING

FAR_US = 6_000_000_000_000_000
STRIDE = 16


def swept(hand: ClockHand, places: int, first_place: int = 0) -> list[int]:
    """Return the places of one round that finds little."""
    seen: list[int] = []
    while True:
        stride = hand.next_stride(first_place)
        seen.extend(range(stride.first, min(stride.end, places)))
        if hand.passed(stride.end, places):
            return seen


@pytest.mark.parametrize("places", [0, 1, STRIDE, STRIDE + 1, 10 * STRIDE - 1])
def test_a_round_is_over_every_place_once(places: int) -> None:
    hand = ClockHand(STRIDE)
    for _ in range(2):
        assert hand.is_at_start
        assert swept(hand, places) == list(range(places))


@pytest.mark.parametrize(("places", "strides"), [(0, 1), (1, 1), (STRIDE, 1), (STRIDE + 1, 2)])
def test_it_is_known_how_many_strides_a_round_takes(places: int, strides: int) -> None:
    assert ClockHand(STRIDE).strides(places) == strides


def test_a_stride_that_found_enough_goes_on_where_it_stopped() -> None:
    hand = ClockHand(STRIDE)
    hand.stopped(7, places=100)
    assert hand.next_stride() == Stride(7, 7 + STRIDE, turn=0, turns=1)


def turns_of(hand: ClockHand, places: int) -> list[tuple[int, int]]:
    """Return which turn was taken at which place in one round that finds little."""
    taken: list[tuple[int, int]] = []
    while True:
        stride = hand.next_stride()
        taken.append((stride.first, stride.turn))
        if hand.passed(stride.end, places):
            return taken


def test_each_part_of_a_table_has_all_its_turns_before_the_next_one() -> None:
    hand = ClockHand(STRIDE, turns=3)
    turns_of(hand, 2 * STRIDE)
    for _ in range(2):
        assert hand.is_at_start
        assert turns_of(hand, 2 * STRIDE) == [(place, turn) for place in (0, STRIDE) for turn in (0, 1, 2)]


def test_a_table_of_one_stride_has_one_turn_until_it_grows() -> None:
    hand = ClockHand(STRIDE, turns=3)
    assert (turns_of(hand, STRIDE), hand.strides(STRIDE)) == ([(0, 0)], 1)
    assert turns_of(hand, STRIDE + 1) == [(0, 0), (STRIDE, 0), (STRIDE, 1), (STRIDE, 2)]
    assert (len(turns_of(hand, STRIDE)), hand.strides(STRIDE + 1)) == (3, 6)
    assert turns_of(hand, STRIDE) == [(0, 0)]


def test_a_turn_that_found_enough_goes_on_where_it_stopped_and_holds_up_no_other() -> None:
    hand = ClockHand(STRIDE, turns=2)
    hand.stopped(7, places=100)
    hand.stopped(9, places=100)
    assert hand.next_stride() == Stride(7, 7 + STRIDE, turn=1, turns=2)
    hand.passed(7 + STRIDE, places=100)
    assert hand.next_stride() == Stride(9, 9 + STRIDE, turn=0, turns=2)


def test_a_round_begins_where_the_table_does() -> None:
    assert swept(ClockHand(STRIDE), 1000 + STRIDE, first_place=1000) == list(range(1000, 1000 + STRIDE))


def test_a_table_that_shrank_is_swept_from_its_beginning() -> None:
    hand = ClockHand(STRIDE)
    hand.passed(STRIDE * 5, STRIDE * 9)
    assert hand.passed(STRIDE * 6, 3)
    assert swept(hand, 3) == [0, 1, 2]


def stride(backend: BlockingBackend, limit: int) -> Swept:
    return backend.sessions.run(backend.store.sweep(limit=limit, now=FAR_US))


def fill(url: str) -> None:
    """Make three thousand records, of which the first five are in progress."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(FILLING, (3000,))
        connection.execute(
            "UPDATE nebis_record SET state = 'P', outcome = NULL, outcome_kind = NULL, completed_at = NULL "
            "WHERE fence <= 5"
        )


@pytest.fixture
def backend(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> BlockingBackend:
    monkeypatch.setattr(verbs, "STRIDE_BLOCKS", STRIDE)
    backend = open_blocking(postgres_url)
    backend.sessions.run(backend.store.migrate())
    fill(postgres_url)
    return backend


def test_a_real_table_of_many_strides_is_swept_to_the_last_record(backend: BlockingBackend) -> None:
    """I9 holds in every part: what is in progress stays."""
    strides = [stride(backend, 1000)]
    while not strides[-1].ends_round:
        strides.append(stride(backend, 1000))
    found = backend.sessions.run(backend.store.count(now=FAR_US))
    backend.sessions.close()

    # The first one takes all its turns at once: only its answer tells how long the table is.
    assert len(strides) == strides[0].strides - 2 > 5
    assert sum(each.aged for each in strides) == 2995
    assert sum(found.by_state.values()) == 5


def test_tombstones_find_room_beside_what_they_replace(backend: BlockingBackend, postgres_url: str) -> None:
    """All but those of the first stride; the table grows by a quarter where each makes all of its own at once."""
    when_outcomes_are_over = 4_500_000_000_000_000
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("VACUUM FULL nebis_record")
        before = _blocks(connection)
        while not backend.sessions.run(backend.store.sweep(limit=1000, now=when_outcomes_are_over)).ends_round:
            continue
        after = _blocks(connection)
        found = backend.sessions.run(backend.store.count(now=when_outcomes_are_over))
    backend.sessions.close()

    assert found.by_state[State.EXPIRED] == 2995
    assert after - before < STRIDE


def _blocks(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    row = connection.execute("SELECT pg_relation_size('nebis_record') / current_setting('block_size')::int").fetchone()
    assert row is not None
    return int(str(row[0]))


def test_a_stride_that_is_stopped_by_its_limit_goes_on_in_the_same_block(backend: BlockingBackend) -> None:
    aged = [stride(backend, 7).aged for _ in range(20)]
    backend.sessions.close()

    assert aged == [7] * 20


def test_a_record_that_somebody_holds_is_passed_over_and_its_neighbours_are_not(
    backend: BlockingBackend, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as holder:
        holder.execute("SELECT FROM nebis_record WHERE fence IN (7, 9) FOR UPDATE")
        beside = stride(backend, 10).aged
        holder.rollback()
    with psycopg.connect(postgres_url) as reader:
        left = reader.execute("SELECT fence FROM nebis_record WHERE fence <= 17 ORDER BY fence").fetchall()
    backend.sessions.run(backend.store.sweep(limit=10_000, now=FAR_US))
    backend.sessions.close()

    assert beside == 10
    assert [fence for (fence,) in left] == [1, 2, 3, 4, 5, 7, 9]


def test_rows_that_are_numbered_are_swept_to_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "STRIDE_ROWS", STRIDE)
    backend = open_blocking(sqlite_url(tmp_path))
    backend.sessions.run(backend.store.migrate())
    sweeps: list[Swept] = []
    claims = [claim(str(number)) for number in range(100)]
    granted = backend.sessions.run(backend.store.apply(claims, now=START_US))
    done = [complete(each.record.ownership) for each in granted if isinstance(each, Granted)]
    backend.sessions.run(backend.store.apply(done[:90], now=START_US))
    for limit in (1000, 3):
        ends_round = False
        while not ends_round:
            swept = backend.sessions.run(backend.store.sweep(limit=limit, now=START_US + RETENTION.outcome_us))
            ends_round = swept.ends_round
            sweeps.append(swept)
    found = backend.sessions.run(backend.store.count(now=FAR_US))
    backend.sessions.close()

    assert sum(each.aged for each in sweeps) == 90
    assert {state: number for state, number in found.by_state.items() if number} == {
        State.EXPIRED: 90,
        State.IN_PROGRESS: 10,
    }
    assert sweeps[-1].newest_fence >= 100
