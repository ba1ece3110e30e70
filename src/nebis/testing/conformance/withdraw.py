"""Withdraw: the request should never have been one."""

from __future__ import annotations

import pytest

from nebis.core.answers import Grant, Granted, Kept, Refusal, Refused
from nebis.core.verbs import Withdraw
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestWithdraw:
    """The claim leaves no trace, so that a corrected command may use the key."""

    def test_nothing_is_left_and_another_command_may_use_the_key(self, stage: Stage) -> None:
        stage.enter("running")
        answer = stage.ask("withdraw")

        after = stage.ask("claim for another command")

        assert answer == Kept()
        assert isinstance(after, Granted)
        assert after.how is Grant.NEW

    def test_the_next_life_has_a_higher_fence_i10(self, stage: Stage) -> None:
        before = stage.enter("running")
        stage.ask("withdraw")

        stage.ask("claim")

        assert before is not None
        assert stage.record.fence > before.fence

    def test_a_repeated_withdrawal_is_told_so(self, stage: Stage) -> None:
        stage.enter("withdrawn")

        assert stage.ask("withdraw") == Kept(is_repeated=True)

    def test_a_late_withdrawal_does_not_touch_the_next_life(self, stage: Stage) -> None:
        before = stage.enter("in its second life")

        answer = stage.ask("withdraw as the first owner")

        assert answer == Refused(reason=Refusal.OTHER_LIFE, found=before)

    @pytest.mark.parametrize("reason", sorted(REFUSALS[Withdraw]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, Withdraw, reason)
