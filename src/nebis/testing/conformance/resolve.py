"""Resolve: the way out of doubt by evidence, by a person, or at the deadline."""

from __future__ import annotations

import pytest

from nebis.core.answers import Grant, Granted, Kept, Refusal, Refused
from nebis.core.record import State
from nebis.core.verbs import AbsenceProof, DidNotHappen, Resolve
from nebis.testing.conformance.moves import by, completing, first_owner, resolving
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.specimens import LEASE_US, RETENTION
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestResolve:
    """A verdict fences the old owner, so that its late word no longer counts."""

    def test_the_end_is_stored_under_a_new_fence_and_the_old_owner_is_out(self, stage: Stage) -> None:
        before = stage.enter("in doubt, opaque")

        answer = stage.ask("resolve: ended")
        late = stage.ask(by(first_owner, completing()))

        assert answer == Kept()
        assert before is not None
        assert stage.record.fence > before.fence
        assert late == Refused(reason=Refusal.FENCED, found=stage.record)

    def test_a_known_effect_lets_the_next_attempt_go_on_at_once(self, stage: Stage) -> None:
        stage.enter("in doubt, queryable")
        stage.ask("resolve: effect happened")

        answer = stage.ask("claim")

        assert isinstance(answer, Granted)
        assert answer.how is Grant.RESUMED
        assert answer.record.open_effect is None

    @pytest.mark.parametrize("proof", list(AbsenceProof))
    def test_what_did_not_and_cannot_happen_makes_the_key_available_for_a_whole_window(
        self, stage: Stage, proof: AbsenceProof
    ) -> None:
        stage.enter("in doubt, queryable")
        stage.wait(5 * LEASE_US)

        answer = stage.ask(resolving(DidNotHappen(proof=proof)))

        assert answer == Kept()
        assert (stage.record.state, stage.record.open_effect, stage.record.is_dirty) == (State.AVAILABLE, None, False)
        is_burnt = proof is AbsenceProof.VOIDED
        assert [effect.is_voided for effect in stage.record.effects] == [True] * is_burnt
        assert stage.record.expires_at == stage.now + RETENTION.outcome_us

    def test_that_nothing_is_seen_now_is_no_proof_f065(self, stage: Stage) -> None:
        before = stage.enter("in doubt, queryable")

        answer = stage.ask("resolve: did not happen, without proof")

        assert answer == Refused(reason=Refusal.NO_PROOF, found=before)

    def test_an_effect_that_did_not_happen_is_dropped_and_the_earlier_ones_are_kept(self, stage: Stage) -> None:
        stage.enter("in doubt after one effect")

        stage.ask("resolve: did not happen")

        assert stage.record.state is State.IN_PROGRESS
        assert [effect.name for effect in stage.record.effects] == ["charge"]

    def test_a_repeatable_call_may_be_made_again(self, stage: Stage) -> None:
        stage.enter("in doubt, recoveries used up")

        answer = stage.ask("resolve: call again")

        assert answer == Kept()
        assert (stage.record.recoveries, stage.record.lease_until) == (0, stage.now)
        assert stage.record.effects[0].is_outstanding

    def test_a_repeated_verdict_is_told_so(self, stage: Stage) -> None:
        stage.enter("completed by a verdict")
        before = stage.record

        assert stage.ask("resolve again") == Kept(is_repeated=True)
        assert stage.record == before

    @pytest.mark.parametrize("reason", sorted(REFUSALS[Resolve]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, Resolve, reason)
