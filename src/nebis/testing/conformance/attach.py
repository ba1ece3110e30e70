"""Attach: the resource that the operation works on, and a longer memory."""

from __future__ import annotations

import pytest

from nebis.core.answers import Kept, Refusal
from nebis.core.record import Resource
from nebis.core.verbs import Attach
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.specimens import RETENTION
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestAttach:
    """Names are replaced, retention is only ever prolonged (F073)."""

    def test_the_resource_is_named(self, stage: Stage) -> None:
        stage.enter("running")

        answer = stage.ask("attach")

        assert answer == Kept()
        assert stage.record.resource == Resource(type="payment", id="pay_1")

    def test_a_longer_retention_prolongs_both_times_and_keeps_the_resource(self, stage: Stage) -> None:
        stage.enter("running, with a resource")

        stage.ask("attach a longer retention")

        assert stage.record.expires_at == stage.now + 3 * RETENTION.outcome_us
        assert stage.record.forget_at == stage.record.expires_at + 3 * RETENTION.metadata_us
        assert stage.record.resource is not None

    def test_a_shorter_retention_changes_nothing_f073(self, stage: Stage) -> None:
        before = stage.enter("running")

        assert stage.ask("attach a shorter retention") == Kept()
        assert stage.record == before

    @pytest.mark.parametrize("reason", sorted(REFUSALS[Attach]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, Attach, reason)
