"""Claim: who may run, who gets the stored answer, and who is told to wait."""

from __future__ import annotations

import pytest

from nebis.core.answers import Doubtful, Gone, Grant, Granted, Replay, Reused, Running, Unreadable
from nebis.core.claiming import first_life
from nebis.core.record import EffectsMode, State
from nebis.testing.conformance.moves import by, claiming, completing, owner
from nebis.testing.conformance.specimens import LEASE_US, OTHER_FINGERPRINT, RETENTION, START_US, claim
from nebis.testing.conformance.stage import Stage
from nebis.testing.conformance.twin import Twin


class TestClaim:
    """One atomic act (I6) whose answer says all that a request needs to know."""

    def test_a_new_key_is_granted_and_written_exactly_as_the_core_says(self, twin: Twin) -> None:
        verb = claim()

        answer = twin.ask(verb, now=START_US)

        assert isinstance(answer, Granted)
        assert answer.how is Grant.NEW
        assert answer.record == first_life(verb, START_US, answer.record.fence)

    @pytest.mark.parametrize("mode", list(EffectsMode))
    def test_only_an_opaque_claim_is_dirty_from_the_start(self, stage: Stage, mode: EffectsMode) -> None:
        stage.ask(claiming(mode=mode))

        assert stage.record.is_dirty is (mode is EffectsMode.OPAQUE)

    def test_a_repeated_claim_recognises_itself_f014(self, stage: Stage) -> None:
        verb = claim()
        first = stage.send(verb)

        again = stage.send(verb)

        assert isinstance(first, Granted)
        assert again == Granted(record=first.record, how=Grant.OWN)

    def test_a_second_claim_is_told_how_long_the_lease_still_runs(self, stage: Stage) -> None:
        stage.enter("running")
        stage.wait(LEASE_US // 3)

        answer = stage.ask("claim")

        assert answer == Running(record=stage.record, lease_left_us=LEASE_US - LEASE_US // 3)

    def test_a_waiting_claim_leaves_a_mark_once(self, stage: Stage) -> None:
        stage.enter("running")

        answer = stage.ask("claim and wait")

        assert isinstance(answer, Running)
        assert answer.record.is_awaited
        assert stage.ask("claim and wait") == answer

    def test_the_lease_lapses_at_its_very_end_and_not_before_i7(self, stage: Stage) -> None:
        stage.enter("running")
        stage.wait(LEASE_US - 1)
        early = stage.ask("claim")
        stage.wait(1)

        late = stage.ask("claim")

        assert isinstance(early, Running)
        assert isinstance(late, Granted)
        assert late.how is Grant.TAKEN_OVER

    def test_a_lapsed_clean_record_goes_to_a_successor_under_a_higher_fence_i2(self, stage: Stage) -> None:
        before = stage.enter("lapsed")

        answer = stage.ask("claim opaquely")

        assert isinstance(answer, Granted)
        assert before is not None
        assert answer.record.fence > before.fence
        assert answer.record.attempts == 2
        assert (answer.record.mode, answer.record.is_dirty) == (EffectsMode.OPAQUE, True)

    @pytest.mark.parametrize("situation", ["calling, sticky, lapsed", "calling, fenced, lapsed", "suspended"])
    def test_a_lapsed_call_that_may_be_repeated_is_resumed_as_outstanding(self, stage: Stage, situation: str) -> None:
        stage.enter(situation)

        answer = stage.ask("claim")

        assert isinstance(answer, Granted)
        assert answer.how is Grant.RESUMED
        assert [effect.is_outstanding for effect in answer.record.effects] == [True]

    @pytest.mark.parametrize(
        "situation",
        [
            "lapsed, opaque",
            "calling, queryable, lapsed",
            "calling, opaque, lapsed",
            "calling, sticky, downstream forgot",
        ],
    )
    def test_a_lapsed_call_that_may_not_be_repeated_goes_in_doubt_f049(self, stage: Stage, situation: str) -> None:
        before = stage.enter(situation)

        answer = stage.ask("claim")

        assert isinstance(answer, Doubtful)
        assert before is not None
        assert (answer.record.state, answer.record.fence) == (State.IN_DOUBT, before.fence)

    def test_an_available_key_runs_under_the_same_record(self, stage: Stage) -> None:
        before = stage.enter("available")

        answer = stage.ask("claim")

        assert isinstance(answer, Granted)
        assert answer.how is Grant.AVAILABLE
        assert before is not None
        assert answer.record.record_id == before.record_id

    def test_a_completed_key_is_replayed_byte_for_byte_i4(self, stage: Stage) -> None:
        stage.enter("completed")

        answer = stage.ask("claim")

        assert isinstance(answer, Replay)
        assert answer.record.outcome == b"\x00paid\xff"

    @pytest.mark.parametrize(
        "situation", ["running", "lapsed", "calling, sticky", "available", "in doubt, opaque", "completed"]
    )
    def test_another_command_is_found_out_in_every_state_and_changes_nothing_i5(
        self, stage: Stage, situation: str
    ) -> None:
        before = stage.enter(situation)

        answer = stage.ask("claim for another command")

        assert before is not None
        assert answer == Reused(record=before)

    def test_a_fingerprint_version_that_nobody_knows_fails_closed_f118(self, stage: Stage) -> None:
        before = stage.enter("running")

        answer = stage.ask("claim with only an unknown fingerprint version")

        assert before is not None
        assert answer == Unreadable(record=before)

    def test_an_old_record_is_compared_with_the_version_that_it_was_made_with(self, stage: Stage) -> None:
        stage.enter("completed")

        assert isinstance(stage.ask("claim with two fingerprint versions"), Replay)

    def test_an_expired_key_begins_a_new_life_and_forgets_its_command(self, stage: Stage) -> None:
        before = stage.enter("expired")

        answer = stage.ask(claiming(fingerprints=(OTHER_FINGERPRINT,)))

        assert isinstance(answer, Granted)
        assert answer.how is Grant.RUN_AGAIN
        assert before is not None
        assert answer.record.record_id != before.record_id
        assert answer.record.fence > before.fence
        assert (answer.record.resource, answer.record.outcome_kind, answer.record.attempts) == (None, None, 1)

    @pytest.mark.parametrize("situation", ["expired", "completed past its window"])
    def test_the_window_does_not_depend_on_when_somebody_purges_f068(self, stage: Stage, situation: str) -> None:
        before = stage.enter(situation)

        answer = stage.ask("claim, or refuse if expired")

        assert before is not None
        assert answer == Gone(record=before)

    @pytest.mark.parametrize(
        "situation", ["available past its window", "completed past its metadata", "expired past its metadata"]
    )
    def test_a_record_past_all_its_times_is_as_good_as_gone(self, stage: Stage, situation: str) -> None:
        stage.enter(situation)

        answer = stage.ask("claim, or refuse if expired")

        assert isinstance(answer, Granted)
        assert answer.how is Grant.NEW

    def test_an_outcome_is_replayed_until_its_window_ends(self, stage: Stage) -> None:
        stage.enter("completed")
        stage.wait(RETENTION.outcome_us - 1)
        last = stage.ask("claim")
        stage.wait(1)

        after = stage.ask("claim")

        assert isinstance(last, Replay)
        assert isinstance(after, Granted)

    def test_the_same_key_of_another_tenant_is_another_record_i12(self, twin: Twin) -> None:
        twin.ask(claim("tenant-a/key", tenant="a"), now=START_US)

        other = twin.ask(claim("tenant-b/key", tenant="b"), now=START_US)

        assert isinstance(other, Granted)
        assert other.record.tenant == "b"

    def test_text_and_bytes_come_back_as_they_were_given(self, stage: Stage) -> None:
        stage.ask(
            claiming(
                "first",
                tenant="Müller & Söhne 🧾 '\"%s:name$1\\",
                scope="a:b",
                operation="zahlen!",
                command=bytes(range(256)) * 40,
            )
        )
        stage.ask(by(owner, completing()))

        answer = stage.ask("claim")

        assert isinstance(answer, Replay)
        assert stage.record.tenant == "Müller & Söhne 🧾 '\"%s:name$1\\"
