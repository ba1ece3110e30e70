"""Ageing: expire, purge and forget, one record at a time or in sweeps."""

from __future__ import annotations

import pytest

from nebis.core.answers import Kept, Refusal
from nebis.core.record import Record, Resource, State
from nebis.core.verbs import Expire, Forget, Purge, Verb
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.situations import SITUATIONS
from nebis.testing.conformance.specimens import RETENTION
from nebis.testing.conformance.stage import Stage, check_refusal
from nebis.testing.conformance.twin import Twin

LONG_AFTER_US = 100 * (RETENTION.outcome_us + RETENTION.metadata_us)
UNSETTLED = ["running", "lapsed", "calling, sticky", "undoing", "in doubt, opaque", "in doubt after one effect"]


def _ends(record: Record) -> tuple[int, int]:
    return (record.expires_at, record.forget_at)


class TestAgeing:
    """Nothing in progress or in doubt is ever touched (I9)."""

    def test_an_expired_record_keeps_what_is_not_sensitive(self, stage: Stage) -> None:
        before = stage.enter("expired")

        assert before is not None
        assert (before.state, before.outcome, before.command, before.effects) == (State.EXPIRED, None, None, ())
        assert (before.outcome_kind, before.resource) == ("succeeded", Resource(type="payment", id="pay_1"))

    def test_a_purged_record_is_gone(self, stage: Stage) -> None:
        stage.enter("available past its window")

        assert stage.ask("purge") == Kept()
        assert stage.case.record is None

    def test_a_forgotten_record_is_gone(self, stage: Stage) -> None:
        stage.enter("expired past its metadata")

        assert stage.ask("forget") == Kept()
        assert stage.case.record is None

    @pytest.mark.parametrize("situation", UNSETTLED)
    def test_no_sweep_touches_what_is_unsettled_however_old_i9(self, stage: Stage, situation: str) -> None:
        stage.enter(situation)

        assert stage.twin.sweep(limit=10, now=stage.now + LONG_AFTER_US) == 0

    @pytest.mark.parametrize(
        "situation", ["completed past its window", "available past its window", "expired past its metadata"]
    )
    def test_a_sweep_ages_what_is_due_to_the_very_microsecond_and_at_most_its_limit(
        self, twin: Twin, situation: str
    ) -> None:
        stages = [Stage(twin, key=f"key-{number}") for number in range(5)]
        for stage in stages:
            stage.enter(situation)
        now = stages[0].now

        assert twin.sweep(limit=10, now=now - 1) == 0
        assert twin.sweep(limit=3, now=now) == 3
        assert twin.sweep(limit=3, now=now) == 2
        assert twin.sweep(limit=3, now=now) == 0

    def test_a_sweep_removes_what_is_over_without_making_a_tombstone_of_it_first(self, twin: Twin) -> None:
        stages = [Stage(twin, key=key) for key in "abc"]
        for stage in stages:
            stage.enter("completed")
        over = stages[0].record.forget_at

        assert [twin.sweep(limit=2, now=over), twin.sweep(limit=2, now=over)] == [2, 1]
        assert twin.records == {}

    def test_one_sweep_makes_tombstones_and_removes(self, twin: Twin) -> None:
        old, late, released = (Stage(twin, key=key) for key in ("old", "late", "released"))
        old.enter("expired")
        late.wait(RETENTION.metadata_us)
        late.enter("completed")
        released.enter("available")

        assert twin.sweep(limit=10, now=max(old.record.forget_at, late.record.expires_at)) == 3
        assert [record.state for record in twin.records.values()] == [State.EXPIRED]

    def test_sweeps_over_every_situation_agree_with_the_state_machine(self, twin: Twin) -> None:
        for situation in SITUATIONS:
            Stage(twin, key=situation).enter(situation)
        instants = sorted({instant for record in twin.records.values() for instant in _ends(record)})

        for now in (instants[0], instants[len(instants) // 2], instants[-1]):
            twin.sweep(limit=1_000, now=now)

        assert {record.state for record in twin.records.values()} == {State.IN_PROGRESS, State.IN_DOUBT}

    @pytest.mark.parametrize(("verb", "reason"), [(v, r) for v in (Expire, Purge, Forget) for r in sorted(REFUSALS[v])])
    def test_one_by_one_it_is_refused_when(self, twin: Twin, verb: type[Verb], reason: Refusal) -> None:
        check_refusal(twin, verb, reason)
