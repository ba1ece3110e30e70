"""How long housekeeping rests between two strides; no test here waits for real."""

from __future__ import annotations

import pytest

from nebis.flow import Flow
from nebis.ports.store import Swept
from nebis.runtime.sweeping import (
    AGED_PER_ARRIVAL,
    LEAST_REST,
    MANY_RECORDS,
    ONCE_RECORDS,
    ONCE_STRIDES,
    QUIET_RECORDS_PER_SECOND,
    ROUND_SECONDS,
    SAMPLE_SECONDS,
    STRIDE_RECORDS,
    STRIDE_SECONDS,
    Sweeper,
    sweep_once,
)
from nebis.stores.memory import MemoryStore, open_blocking

TOOK = 0.001


def rest(sweeper: Sweeper, *, aged: int = STRIDE_RECORDS, strides: int = 10, fence: int = 0, at: float = 0.0) -> float:
    """Return the rest after a stride that ended then."""
    swept = Swept(aged=aged, strides=strides, ends_round=False, newest_fence=fence)
    seconds = sweeper.rest_seconds(swept, began_at=at - TOOK, ended_at=at)
    assert seconds is not None
    return seconds


def test_a_round_that_is_over_has_no_next_stride() -> None:
    assert Sweeper().rest_seconds(Swept(3, 1, True, 7), began_at=0.0, ended_at=0.1) is None


def test_where_little_is_due_a_stride_is_taken_each_second() -> None:
    assert rest(Sweeper(), aged=MANY_RECORDS - 1) == pytest.approx(STRIDE_SECONDS - TOOK)


def test_the_largest_store_is_gone_through_in_time_all_the_same() -> None:
    strides = int(ROUND_SECONDS) * 4
    assert rest(Sweeper(), aged=0, strides=strides) == pytest.approx(ROUND_SECONDS / strides - TOOK)


def test_a_backlog_is_worked_off_slowly_where_nothing_comes() -> None:
    sweeper = Sweeper()
    for at in (0.0, SAMPLE_SECONDS):
        assert rest(sweeper, fence=1, at=at) + TOOK == pytest.approx(STRIDE_RECORDS / QUIET_RECORDS_PER_SECOND)


def test_a_stride_with_fewer_records_as_they_are_large_is_followed_by_a_shorter_rest() -> None:
    assert rest(Sweeper(), aged=MANY_RECORDS) + TOOK == pytest.approx(MANY_RECORDS / QUIET_RECORDS_PER_SECOND)


@pytest.mark.parametrize("arrivals", [1_000, 5_000, 50_000])
def test_it_is_worked_off_a_little_faster_than_records_come(arrivals: int) -> None:
    sweeper = Sweeper()
    rest(sweeper, fence=100, at=0.0)
    rest(sweeper, fence=100 + arrivals // 2, at=SAMPLE_SECONDS / 2)
    paced = rest(sweeper, fence=100 + int(arrivals * SAMPLE_SECONDS), at=SAMPLE_SECONDS)

    assert STRIDE_RECORDS / (paced + TOOK) == pytest.approx(AGED_PER_ARRIVAL * arrivals)
    assert AGED_PER_ARRIVAL > 2, "Each record becomes a tombstone and is removed: with less the store only grows."


def test_on_a_slow_server_it_rests_as_long_as_the_stride_took() -> None:
    swept = Swept(STRIDE_RECORDS, strides=10, ends_round=False, newest_fence=0)
    assert Sweeper().rest_seconds(swept, began_at=0.0, ended_at=30.0) == 30.0 * LEAST_REST


class Endless(MemoryStore):
    """A store in which each stride finds as many records, and no round ends."""

    def __init__(self, aged: int) -> None:
        super().__init__()
        self.strides = 0
        self._aged = aged

    def sweep(self, *, limit: int, now: int | None = None) -> Flow[Swept]:
        self.strides += 1
        yield from super().sweep(limit=limit, now=now)
        return Swept(min(self._aged, limit), 1000, ends_round=False, newest_fence=0)


@pytest.mark.parametrize(("aged", "total", "strides"), [(0, 0, ONCE_STRIDES), (300, ONCE_RECORDS, 4)])
def test_one_pass_of_a_worker_is_bounded(aged: int, total: int, strides: int) -> None:
    store = Endless(aged)
    assert open_blocking(store).sessions.run(sweep_once(store)) == total
    assert store.strides == strides


def test_a_stride_goes_through_the_store() -> None:
    backend = open_blocking()
    swept, rest_seconds = Sweeper().stride(backend.store, backend.sessions)
    assert (swept, rest_seconds) == (Swept(0, 1, ends_round=True, newest_fence=0), None)
