"""Doubt: an effect may have happened and its owner cannot tell."""

from __future__ import annotations

import pytest

from nebis.core.answers import Doubtful, Kept, Refusal
from nebis.core.record import State
from nebis.core.verbs import Doubt
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.specimens import SECOND_US
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestDoubt:
    """The fence stays, since the owner may still hold the truth."""

    def test_the_record_says_since_when_and_why_and_keeps_its_fence(self, stage: Stage) -> None:
        before = stage.enter("calling, queryable")
        stage.wait(SECOND_US)

        answer = stage.ask("doubt")

        assert answer == Kept()
        assert before is not None
        assert (stage.record.state, stage.record.fence) == (State.IN_DOUBT, before.fence)
        assert (stage.record.doubt_since, stage.record.doubt_reason) == (stage.now, "no-answer")

    def test_a_clean_record_in_doubt_is_dirty_and_runs_for_nobody(self, stage: Stage) -> None:
        stage.enter("in doubt without an effect")

        assert stage.record.is_dirty
        assert stage.ask("claim") == Doubtful(record=stage.record)

    def test_a_repeated_doubt_keeps_the_first_instant(self, stage: Stage) -> None:
        before = stage.enter("in doubt, sticky")
        stage.wait(SECOND_US)

        answer = stage.ask("doubt")

        assert answer == Kept(is_repeated=True)
        assert stage.record == before

    def test_the_command_is_kept_while_in_doubt(self, stage: Stage) -> None:
        stage.enter("in doubt, opaque")

        assert stage.record.command is not None

    @pytest.mark.parametrize("reason", sorted(REFUSALS[Doubt]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, Doubt, reason)
