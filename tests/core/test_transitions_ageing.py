"""How records end: only at their time, and never while something is unsettled (I9, F068, F069)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nebis.core.ageing import aged_by, expire, forget, purge
from nebis.core.answers import OwnerAnswer, Refusal, Refused
from nebis.core.owning import KEPT
from nebis.core.record import Record, Resource, State
from nebis.core.step import Edge, Step
from tests.core.records import EXPIRED, FORGOTTEN, IN_EVERY_STATE, available, completed, done, expired

Ageing = Callable[[Record | None, int], Step[OwnerAnswer]]
FROM: dict[Ageing, State] = {expire: State.COMPLETED, purge: State.AVAILABLE, forget: State.EXPIRED}


def test_an_outcome_past_its_window_becomes_a_tombstone() -> None:
    record = completed(effects=(done(),), resource=Resource(type="payment", id="pay_1"))

    step = expire(record, EXPIRED)

    assert step.edge is Edge.EXPIRED
    assert step.answer == KEPT
    assert step.record == expired(resource=Resource(type="payment", id="pay_1"))


@pytest.mark.parametrize(
    ("age", "record", "now", "edge"),
    [(purge, available(), EXPIRED, Edge.PURGED), (forget, expired(), FORGOTTEN, Edge.FORGOTTEN)],
)
def test_what_is_past_its_time_is_removed(age: Ageing, record: Record, now: int, edge: Edge) -> None:
    step = age(record, now)

    assert (step.record, step.answer, step.edge) == (None, KEPT, edge)


@pytest.mark.parametrize(
    ("age", "record", "now"),
    [(expire, completed(), EXPIRED - 1), (purge, available(), EXPIRED - 1), (forget, expired(), FORGOTTEN - 1)],
)
def test_nothing_ages_a_microsecond_early(age: Ageing, record: Record, now: int) -> None:
    assert age(record, now).answer == Refused(reason=Refusal.NOT_DUE, found=record)


@pytest.mark.parametrize("age", FROM)
def test_what_is_not_there_does_not_age(age: Ageing) -> None:
    assert age(None, FORGOTTEN).answer == Refused(reason=Refusal.ABSENT, found=None)


@pytest.mark.parametrize(("age", "state"), [(age, state) for age in FROM for state in State if state is not FROM[age]])
def test_only_its_own_state_ages_however_old_i9(age: Ageing, state: State) -> None:
    record = IN_EVERY_STATE[state]

    step = age(record, 100 * FORGOTTEN)

    assert step.record is record
    assert step.answer == Refused(reason=Refusal(state.value), found=record)


@pytest.mark.parametrize(
    ("record", "now", "left"),
    [
        (completed(), EXPIRED - 1, completed()),
        (completed(), EXPIRED, expired()),
        (completed(), FORGOTTEN, None),
        (available(), EXPIRED, None),
        (expired(), FORGOTTEN - 1, expired()),
        (expired(), FORGOTTEN, None),
    ],
)
def test_a_record_ages_at_once_as_far_as_it_may(record: Record, now: int, left: Record | None) -> None:
    assert aged_by(record, now) == left


@pytest.mark.parametrize("state", [State.IN_PROGRESS, State.IN_DOUBT])
def test_what_is_unsettled_never_ages_i9(state: State) -> None:
    assert aged_by(IN_EVERY_STATE[state], 100 * FORGOTTEN) is IN_EVERY_STATE[state]
