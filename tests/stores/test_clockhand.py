"""A sweep over a large table, a part at a time."""

from __future__ import annotations

import psycopg
import pytest

from nebis.ports.store import Sweep
from nebis.stores import open_blocking
from nebis.stores.sql import clockhand
from nebis.stores.sql.clockhand import BLOCKS_AT_ONCE, STRIDE_BLOCKS, ClockHand
from tests.stores.test_plans import FILLING


def swept(hand: ClockHand, blocks: int) -> list[int]:
    """Return the blocks of one sweep that finds little."""
    seen: list[int] = []
    for first, end in hand.rounds(blocks):
        seen.extend(range(first, min(end, blocks)))
        hand.passed(end)
    return seen


@pytest.mark.parametrize("blocks", [0, 1, STRIDE_BLOCKS, STRIDE_BLOCKS + 1, 10 * STRIDE_BLOCKS - 1, BLOCKS_AT_ONCE])
def test_a_table_of_moderate_size_is_swept_as_a_whole_each_time_wherever_the_hand_stands(blocks: int) -> None:
    hand = ClockHand()
    for _ in range(3):
        assert sorted(swept(hand, blocks)) == list(range(blocks))


def test_a_large_table_is_swept_in_parts_that_together_are_the_whole() -> None:
    hand, blocks = ClockHand(), 5 * BLOCKS_AT_ONCE // 2
    parts = [swept(hand, blocks) for _ in range(3)]
    assert [len(part) for part in parts] == [BLOCKS_AT_ONCE] * 3
    assert set().union(*parts) == set(range(blocks))


def test_a_sweep_that_found_enough_goes_on_at_the_same_place() -> None:
    hand = ClockHand()
    assert next(hand.rounds(BLOCKS_AT_ONCE)) == next(hand.rounds(BLOCKS_AT_ONCE)) == (0, STRIDE_BLOCKS)


def test_a_table_that_shrank_is_swept_from_its_beginning() -> None:
    hand = ClockHand()
    swept(hand, BLOCKS_AT_ONCE)
    assert swept(hand, 3) == [0, 1, 2]


def test_a_real_table_of_many_strides_is_swept_to_the_last_record(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I9 holds in every part: what is in progress stays."""
    monkeypatch.setattr(clockhand, "STRIDE_BLOCKS", 16)
    backend = open_blocking(postgres_url)
    backend.sessions.run(backend.store.migrate())
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(FILLING, (3000,))
        connection.execute(
            "UPDATE nebis_record SET state = 'P', outcome = NULL, outcome_kind = NULL, completed_at = NULL "
            "WHERE fence <= 5"
        )
    far = 6_000_000_000_000_000
    counts = [backend.sessions.run(backend.store.sweep(Sweep.EXPIRE, limit=1000, now=far)) for _ in range(4)]
    assert counts == [1000, 1000, 995, 0]
    counts = [backend.sessions.run(backend.store.sweep(Sweep.FORGET, limit=2000, now=far)) for _ in range(3)]
    assert counts == [2000, 995, 0]
    found = backend.sessions.run(backend.store.count(now=far))
    backend.sessions.close()
    assert sum(found.by_state.values()) == 5
