"""Take over: how a worker goes on with what nobody finishes."""

from __future__ import annotations

import pytest

from nebis.core.answers import Doubtful, GivenUp, Grant, Granted, Refusal, Refused
from nebis.core.record import State
from nebis.core.verbs import TakeOver
from nebis.testing.conformance.moves import taking_over
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.specimens import LEASE_US
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestTakeOver:
    """A worker's claim: the same guards as a request's, and no privileges (C6)."""

    def test_a_lapsed_clean_record_is_run_by_the_worker(self, stage: Stage) -> None:
        before = stage.enter("lapsed")

        answer = stage.ask("take over")

        assert isinstance(answer, Granted)
        assert answer.how is Grant.TAKEN_OVER
        assert before is not None
        assert answer.record.fence > before.fence
        assert (answer.record.recoveries, answer.record.command) == (1, before.command)

    def test_a_lapsed_repeatable_call_is_resumed(self, stage: Stage) -> None:
        stage.enter("calling, sticky, lapsed")

        answer = stage.ask("take over")

        assert isinstance(answer, Granted)
        assert answer.how is Grant.RESUMED
        assert answer.record.effects[0].is_outstanding

    def test_a_lapsed_unrepeatable_call_goes_in_doubt_under_the_same_fence(self, stage: Stage) -> None:
        before = stage.enter("calling, queryable, lapsed")

        answer = stage.ask("take over")

        assert isinstance(answer, Doubtful)
        assert before is not None
        assert answer.record.fence == before.fence

    def test_the_second_of_two_workers_finds_that_the_record_moved_on_f059(self, stage: Stage) -> None:
        stage.enter("lapsed")
        seen = stage.case.owner
        stage.ask(taking_over("one"))

        answer = stage.ask(taking_over("two", whose=lambda _: seen))

        assert answer == Refused(reason=Refusal.MOVED_ON, found=stage.record)

    def test_a_repeated_take_over_recognises_itself(self, stage: Stage) -> None:
        stage.enter("lapsed")
        verb = taking_over()(stage.case)
        stage.send(verb)

        answer = stage.send(verb)

        assert answer == Granted(record=stage.record, how=Grant.OWN)
        assert stage.record.recoveries == 1

    def test_recoveries_used_up_give_a_clean_record_back_to_its_client(self, stage: Stage) -> None:
        stage.enter("lapsed")

        answer = stage.ask("take over without recoveries left")

        assert isinstance(answer, GivenUp)
        assert answer.record.state is State.AVAILABLE

    def test_recoveries_used_up_put_a_dirty_record_in_doubt(self, stage: Stage) -> None:
        stage.enter("calling, sticky, lapsed")

        answer = stage.ask("take over without recoveries left")

        assert isinstance(answer, Doubtful)
        assert answer.record.doubt_reason == "recoveries-used-up"

    def test_only_a_workers_take_over_counts_as_a_recovery(self, stage: Stage) -> None:
        stage.enter("lapsed")
        stage.ask("take over")
        stage.wait(LEASE_US)

        stage.ask("claim")

        assert (stage.record.attempts, stage.record.recoveries) == (3, 1)

    @pytest.mark.parametrize("reason", sorted(REFUSALS[TakeOver]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, TakeOver, reason)
