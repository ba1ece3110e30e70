"""Intend: what may happen outside is written down before it is called."""

from __future__ import annotations

import pytest

from nebis.core.answers import Intended, Refusal, Refused
from nebis.core.record import EffectClass
from nebis.core.verbs import Intend
from nebis.testing.conformance.moves import by, checkpointing, intending, owner
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.specimens import LEASE_US, RECALL_US
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestIntend:
    """One effect is open at a time, and its derived key never changes."""

    @pytest.mark.parametrize("effect_class", list(EffectClass))
    def test_an_effect_of_any_class_is_opened_and_the_record_dirty(
        self, stage: Stage, effect_class: EffectClass
    ) -> None:
        stage.enter("running")

        answer = stage.ask(by(owner, intending(effect_class=effect_class)))

        assert isinstance(answer, Intended)
        assert answer.effect == stage.record.open_effect
        assert stage.record.is_dirty

    def test_the_intent_makes_the_lease_outlive_the_call_f066(self, stage: Stage) -> None:
        stage.enter("running")
        stage.wait(LEASE_US - 1)

        stage.ask("intend")

        assert stage.record.lease_until == stage.now + LEASE_US

    def test_a_repeated_intent_is_told_so(self, stage: Stage) -> None:
        stage.enter("running")
        first = stage.ask("intend")

        again = stage.ask("intend")

        assert isinstance(first, Intended)
        assert again == Intended(effect=first.effect, is_repeated=True)

    def test_a_successor_gets_the_derived_key_that_was_stored_first_f064(self, stage: Stage) -> None:
        stage.enter("calling again, sticky")
        stored = stage.record.effects[0].derived_key

        answer = stage.ask(by(owner, intending(derived_key="another", is_again=True)))

        assert isinstance(answer, Intended)
        assert answer.effect.derived_key == stored

    def test_the_downstreams_memory_is_counted_from_the_first_intent_f062(self, stage: Stage) -> None:
        stage.enter("calling, sticky")
        stage.wait(RECALL_US - 1)
        last = stage.ask("intend again")
        stage.wait(1)

        after = stage.ask("intend again")

        assert isinstance(last, Intended)
        assert isinstance(after, Refused)
        assert after.reason is Refusal.RECALL_OVER

    def test_effects_keep_the_order_in_which_they_were_intended(self, stage: Stage) -> None:
        stage.enter("running")
        names = ["zebra", "apple", "mango"]

        for name in names:
            stage.ask(by(owner, intending(name)))
            stage.ask(by(owner, checkpointing(name)))

        assert [effect.name for effect in stage.record.effects] == names

    @pytest.mark.parametrize("reason", sorted(REFUSALS[Intend]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, Intend, reason)
