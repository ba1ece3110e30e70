"""Complete: the one outcome."""

from __future__ import annotations

import pytest

from nebis.core.answers import Kept, Refusal, Refused
from nebis.core.record import Outcome, OutcomeKind, Resource, State
from nebis.core.verbs import Complete
from nebis.testing.conformance.moves import by, completing, first_owner, impostor, owner
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.specimens import DECLINED, LEASE_US, RETENTION
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestComplete:
    """At most one outcome, from the newest owner, and it never changes (I1, I2)."""

    @pytest.mark.parametrize("kind", list(OutcomeKind))
    def test_every_kind_of_outcome_is_stored_byte_for_byte(self, stage: Stage, kind: OutcomeKind) -> None:
        stage.enter("running")
        body = bytes(range(256)) * 300

        answer = stage.ask(by(owner, completing(Outcome(kind=kind, body=body))))

        assert answer == Kept()
        assert (stage.record.state, stage.record.outcome_kind) == (State.COMPLETED, kind)
        assert stage.record.outcome == body

    def test_an_empty_outcome_is_an_outcome_i3(self, stage: Stage) -> None:
        stage.enter("running")

        stage.ask(by(owner, completing(Outcome(kind=OutcomeKind.SUCCEEDED, body=b""))))

        assert stage.record.outcome == b""

    def test_the_command_is_erased_and_the_window_begins(self, stage: Stage) -> None:
        stage.enter("running")
        stage.wait(LEASE_US // 2)

        stage.ask("complete")

        assert stage.record.command is None
        assert stage.record.completed_at == stage.now
        assert stage.record.expires_at == stage.now + RETENTION.outcome_us

    def test_a_late_owner_completes_as_long_as_nobody_fenced_it(self, stage: Stage) -> None:
        stage.enter("lapsed")

        assert stage.ask("complete") == Kept()

    def test_a_zombie_cannot_complete_after_a_takeover_f050(self, stage: Stage) -> None:
        before = stage.enter("taken over by a request")

        answer = stage.ask(by(first_owner, completing()))

        assert answer == Refused(reason=Refusal.FENCED, found=before)

    def test_a_zombie_cannot_complete_the_next_life_of_its_key_f057(self, stage: Stage) -> None:
        before = stage.enter("in its second life")

        answer = stage.ask(by(first_owner, completing()))

        assert answer == Refused(reason=Refusal.OTHER_LIFE, found=before)

    def test_a_fence_without_its_nonce_proves_nothing(self, stage: Stage) -> None:
        before = stage.enter("running")

        answer = stage.ask(by(impostor, completing()))

        assert answer == Refused(reason=Refusal.FENCED, found=before)

    def test_a_repeated_completion_keeps_the_first_outcome_i1(self, stage: Stage) -> None:
        before = stage.enter("completed")

        answer = stage.ask(by(owner, completing(DECLINED)))

        assert answer == Kept(is_repeated=True)
        assert stage.record == before

    @pytest.mark.parametrize("situation", ["in doubt, opaque", "in doubt without an effect"])
    def test_a_late_owner_ends_the_doubt_with_the_truth(self, stage: Stage, situation: str) -> None:
        stage.enter(situation)

        assert stage.ask("complete") == Kept()
        assert (stage.record.doubt_since, stage.record.doubt_reason) == (None, None)

    def test_the_resource_stays_unless_a_newer_one_is_named(self, stage: Stage) -> None:
        stage.enter("running, with a resource")

        stage.ask("complete")

        assert stage.record.resource == Resource(type="payment", id="pay_1")

    def test_an_unproved_outcome_keeps_its_tombstone_ten_times_longer(self, stage: Stage) -> None:
        stage.enter("running opaquely")

        stage.ask(by(owner, completing(Outcome(kind=OutcomeKind.UNKNOWN, body=b""))))

        assert stage.record.forget_at == stage.record.expires_at + 10 * RETENTION.metadata_us

    @pytest.mark.parametrize("reason", sorted(REFUSALS[Complete]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, Complete, reason)
