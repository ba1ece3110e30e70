"""Release: a definite failure before any effect gives the key back."""

from __future__ import annotations

import pytest

from nebis.core.answers import Kept, Refusal, Refused
from nebis.core.record import State
from nebis.core.verbs import Release
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestRelease:
    """Never when dirty, not even from an exception handler (F076)."""

    def test_the_key_becomes_available_and_stays_bound_to_its_command(self, stage: Stage) -> None:
        before = stage.enter("running")

        answer = stage.ask("release")

        assert answer == Kept()
        assert before is not None
        assert (stage.record.state, stage.record.fingerprint) == (State.AVAILABLE, before.fingerprint)

    def test_a_repeated_release_is_told_so(self, stage: Stage) -> None:
        stage.enter("available")

        assert stage.ask("release") == Kept(is_repeated=True)

    @pytest.mark.parametrize("situation", ["calling, sticky", "one effect done", "running opaquely", "suspended"])
    def test_a_dirty_record_is_never_released_f076(self, stage: Stage, situation: str) -> None:
        before = stage.enter(situation)

        assert stage.ask("release") == Refused(reason=Refusal.DIRTY, found=before)

    @pytest.mark.parametrize("reason", sorted(REFUSALS[Release]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, Release, reason)
