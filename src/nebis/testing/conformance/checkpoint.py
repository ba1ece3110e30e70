"""Checkpoint: how an effect ended, once somebody knows."""

from __future__ import annotations

import pytest

from nebis.core.answers import Kept, Refusal, Refused
from nebis.core.record import EffectClass, EffectVerdict, State
from nebis.core.verbs import Checkpoint
from nebis.testing.conformance.moves import by, checkpointing, intending, owner
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.specimens import DIGEST
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestCheckpoint:
    """What is known of an effect is stored once and never changes."""

    def test_the_result_is_kept_with_the_effect(self, stage: Stage) -> None:
        stage.enter("calling, sticky")

        answer = stage.ask(by(owner, checkpointing(result=b"\x00\xff")))

        assert answer == Kept()
        (effect,) = stage.record.effects
        assert (effect.verdict, effect.result) == (EffectVerdict.HAPPENED, b"\x00\xff")

    def test_a_repeated_checkpoint_is_told_so(self, stage: Stage) -> None:
        stage.enter("one effect done")

        assert stage.ask("checkpoint") == Kept(is_repeated=True)

    def test_a_known_result_never_changes(self, stage: Stage) -> None:
        before = stage.enter("one effect done")

        answer = stage.ask("checkpoint another result")

        assert answer == Refused(reason=Refusal.NAME_USED, found=before)

    def test_an_empty_result_is_not_the_same_as_none(self, stage: Stage) -> None:
        stage.enter("calling, sticky")

        stage.ask(by(owner, checkpointing(result=b"")))

        assert stage.record.effects[0].result == b""

    def test_a_rejection_after_an_earlier_call_proves_nothing_where_it_is_forgotten_f063(self, stage: Stage) -> None:
        before = stage.enter("calling again, success-only")

        answer = stage.ask("checkpoint a rejection")

        assert answer == Refused(reason=Refusal.NOT_DEFINITE, found=before)
        assert stage.ask("checkpoint") == Kept()

    def test_a_late_owner_ends_the_doubt(self, stage: Stage) -> None:
        stage.enter("in doubt, queryable")

        answer = stage.ask("checkpoint")

        assert answer == Kept()
        assert (stage.record.state, stage.record.doubt_since) == (State.IN_PROGRESS, None)

    def test_a_local_step_needs_no_intent_and_makes_the_record_dirty(self, stage: Stage) -> None:
        stage.enter("running")

        answer = stage.ask(by(owner, checkpointing("reserve", transactional_digest=DIGEST)))

        assert answer == Kept()
        assert stage.record.is_dirty
        assert stage.record.effects[0].effect_class is EffectClass.TRANSACTIONAL

    def test_only_the_open_effect_is_changed(self, stage: Stage) -> None:
        stage.enter("one effect done")
        first = stage.record.effects[0]
        stage.ask(by(owner, intending("ship")))

        stage.ask(by(owner, checkpointing("ship", result=b"parcel-1")))

        assert [effect.result for effect in stage.record.effects] == [first.result, b"parcel-1"]

    @pytest.mark.parametrize("reason", sorted(REFUSALS[Checkpoint]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, Checkpoint, reason)
