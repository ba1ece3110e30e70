"""Turn back: an operation that is rejected half-way is undone."""

from __future__ import annotations

import pytest

from nebis.core.answers import Granted, Intended, Kept, Refusal, Refused
from nebis.core.record import OutcomeKind
from nebis.core.verbs import TurnBack
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestTurnBack:
    """The rejection is kept first, then only undoing goes on."""

    def test_the_rejection_is_kept(self, stage: Stage) -> None:
        stage.enter("one effect done")

        answer = stage.ask("turn back")

        assert answer == Kept()
        assert stage.record.rejection == b"out of stock"

    def test_a_repeated_turn_is_told_so(self, stage: Stage) -> None:
        stage.enter("undoing")

        assert stage.ask("turn back") == Kept(is_repeated=True)

    def test_from_then_on_only_undos_may_be_intended(self, stage: Stage) -> None:
        before = stage.enter("undoing")

        forward = stage.ask("intend something else")
        backward = stage.ask("intend an undo")

        assert forward == Refused(reason=Refusal.UNDOING, found=before)
        assert isinstance(backward, Intended)

    def test_a_successor_finds_the_rejection_and_what_happened(self, stage: Stage) -> None:
        stage.enter("undoing, lapsed")

        answer = stage.ask("claim")

        assert isinstance(answer, Granted)
        assert answer.record.is_undoing
        assert [effect.name for effect in answer.record.effects] == ["charge"]

    def test_it_can_only_end_in_a_rejection(self, stage: Stage) -> None:
        before = stage.enter("undoing")

        succeeded = stage.ask("complete")
        rejected = stage.ask("complete with a rejection")

        assert succeeded == Refused(reason=Refusal.UNDOING, found=before)
        assert rejected == Kept()
        assert (stage.record.outcome_kind, stage.record.rejection) == (OutcomeKind.REJECTED, None)

    @pytest.mark.parametrize("reason", sorted(REFUSALS[TurnBack]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, TurnBack, reason)
