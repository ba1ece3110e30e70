"""Renew: the owner says that it is alive."""

from __future__ import annotations

import pytest

from nebis.core.answers import Kept, Refusal, Refused
from nebis.core.verbs import Renew
from nebis.testing.conformance.moves import by, first_owner, renewing
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.specimens import LEASE_US
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin


class TestRenew:
    """A lease only ever grows, and only for its owner."""

    def test_the_lease_begins_anew(self, stage: Stage) -> None:
        stage.enter("running")
        stage.wait(LEASE_US // 2)

        answer = stage.ask("renew")

        assert answer == Kept()
        assert stage.record.lease_until == stage.now + LEASE_US

    def test_a_lapsed_lease_is_renewed_if_nobody_took_over(self, stage: Stage) -> None:
        stage.enter("lapsed")
        stage.wait(LEASE_US)

        answer = stage.ask("renew")

        assert answer == Kept()
        assert stage.record.lease_until == stage.now + LEASE_US

    def test_a_shorter_renewal_does_not_shorten_the_lease(self, stage: Stage) -> None:
        before = stage.enter("running")

        stage.ask("renew for no time")

        assert stage.record == before

    def test_a_zombies_renewal_does_not_touch_its_successors_lease_f056(self, stage: Stage) -> None:
        before = stage.enter("taken over by a request")

        answer = stage.ask(by(first_owner, renewing(10 * LEASE_US)))

        assert answer == Refused(reason=Refusal.FENCED, found=before)

    @pytest.mark.parametrize("reason", sorted(REFUSALS[Renew]))
    def test_it_is_refused_when(self, twin: Twin, reason: Refusal) -> None:
        check_refusal(twin, Renew, reason)
