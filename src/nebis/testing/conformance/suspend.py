"""Suspend: stop so that a successor need not wait for the lease."""

from __future__ import annotations

import pytest

from nebis.core.answers import Grant, Granted, Kept, Refusal
from nebis.core.record import Resource
from nebis.core.verbs import Suspend
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestSuspend:
    """Only what can be gone on with is suspended."""

    def test_the_next_request_goes_on_at_once(self, stage: Stage) -> None:
        stage.enter("calling, sticky")
        stage.ask("suspend")

        answer = stage.ask("claim")

        assert isinstance(answer, Granted)
        assert answer.how is Grant.RESUMED

    def test_the_open_call_may_still_land(self, stage: Stage) -> None:
        stage.enter("calling, success-only")

        answer = stage.ask("suspend")

        assert answer == Kept()
        assert stage.record.effects[0].is_outstanding

    def test_a_lapsed_lease_is_not_moved_forward(self, stage: Stage) -> None:
        stage.enter("calling, sticky, lapsed")
        lapsed_at = stage.record.lease_until
        stage.wait(1)

        stage.ask("suspend")

        assert stage.record.lease_until == lapsed_at

    def test_a_resource_may_be_named_on_the_way_out(self, stage: Stage) -> None:
        stage.enter("one effect done")

        stage.ask("suspend with a resource")

        assert stage.record.resource == Resource(type="order", id="ord_ü")

    def test_the_mark_of_those_who_wait_is_taken_off(self, stage: Stage) -> None:
        stage.enter("calling, sticky")
        stage.ask("claim and wait")

        stage.ask("suspend")

        assert not stage.record.is_awaited

    @pytest.mark.parametrize("reason", sorted(REFUSALS[Suspend]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, Suspend, reason)
