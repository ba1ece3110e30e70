"""A step names its edge; a refusal changes nothing and says why."""

from __future__ import annotations

import pytest

from nebis.core.answers import Refusal, Refused
from nebis.core.record import Record, State
from nebis.core.step import Edge, changed, refusal_of_state, refuse
from tests.core.records import IN_EVERY_STATE, running


@pytest.mark.parametrize("record", [None, running()])
def test_a_refusal_keeps_the_record_and_shows_what_was_found(record: Record | None) -> None:
    step = refuse(record, Refusal.FENCED)

    assert step.record is record
    assert step.answer == Refused(reason=Refusal.FENCED, found=record)
    assert step.edge is Edge.REFUSED


@pytest.mark.parametrize("state", list(State))
def test_a_state_that_a_verb_did_not_expect_is_named(state: State) -> None:
    assert refusal_of_state(IN_EVERY_STATE[state]).value == state.value


def test_only_real_fields_can_be_changed() -> None:
    assert changed(running(), attempts=2).attempts == 2
    with pytest.raises(TypeError):
        changed(running(), attemps=2)
