"""What is kept for people: attempts, late results, and an audit that nobody can rewrite."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nebis.core.answers import Doubtful, Grant, Kept, Locked, Refusal, Refused
from nebis.core.record import Fence, Record, State
from nebis.core.verbs import AbsenceProof, DidNotHappen
from nebis.ports.history import ATTEMPTS_KEPT, AttemptNote, AuditLine, LateResult, Signed
from nebis.testing.conformance.harness import Connection, Harness
from nebis.testing.conformance.moves import claiming
from nebis.testing.conformance.specimens import LEASE_US, START_US, record_id_of, resolve, take_over
from nebis.testing.conformance.stage import Stage

VOIDED = DidNotHappen(proof=AbsenceProof.VOIDED)


def note_of(record: Record, **changes: object) -> AttemptNote:
    """Return what the owner of a record writes down about itself."""
    note = AttemptNote(
        record_id=record.record_id,
        fence=record.fence,
        started_at=record.created_at,
        lease_us=LEASE_US,
        host="shop-1",
        pid=4711,
        how=Grant.NEW,
    )
    return replace(note, **changes)  # type: ignore[arg-type]  # Any field of it.


def signed_for(record: Record, **changes: object) -> Signed:
    """Return what a person asks for about a record."""
    signed = Signed(
        who="ann@shop-1",
        what="resolve --did-not-happen",
        reason="the bank's statement of the day",
        record_id=record.record_id,
        fence_seen=record.fence,
    )
    return replace(signed, **changes)  # type: ignore[arg-type]  # Any field of it.


class TestAttempts:
    """A bounded list, which leaves with its record."""

    def test_what_was_noted_is_read_back_by_fence_and_once(self, stage: Stage) -> None:
        connection = stage.twin.connection
        stage.enter("lapsed")
        first = note_of(stage.record)
        stage.ask(claiming("second"))
        second = note_of(stage.record, started_at=stage.now, host="shop-2 \u2603", how=Grant.TAKEN_OVER)

        connection.run(connection.store.note_attempts([second, first]))
        connection.run(connection.store.note_attempts([replace(first, pid=1)]))

        assert connection.run(connection.store.attempts_of(stage.record.record_id)) == [first, second]

    def test_of_a_record_that_is_gone_nothing_is_noted(self, stage: Stage) -> None:
        connection = stage.twin.connection
        stage.enter("running")
        gone = note_of(stage.record, record_id=record_id_of("nobody"))

        connection.run(connection.store.note_attempts([gone]))

        assert connection.run(connection.store.attempts_of(gone.record_id)) == []

    def test_only_the_newest_are_kept(self, stage: Stage) -> None:
        connection = stage.twin.connection
        stage.enter("running")
        notes = [note_of(stage.record, fence=Fence(number)) for number in range(1, ATTEMPTS_KEPT + 4)]

        for note in notes:
            connection.run(connection.store.note_attempts([note]))

        assert connection.run(connection.store.attempts_of(stage.record.record_id)) == notes[3:]

    def test_they_leave_with_their_record(self, stage: Stage) -> None:
        connection = stage.twin.connection
        stage.enter("running")
        record_id = stage.record.record_id
        connection.run(connection.store.note_attempts([note_of(stage.record)]))

        stage.ask("withdraw")

        assert connection.run(connection.store.attempts_of(record_id)) == []

    def test_they_are_not_in_the_way_of_a_new_life_and_do_not_show_in_it(self, stage: Stage) -> None:
        connection = stage.twin.connection
        stage.enter("expired")
        old = stage.record
        connection.run(connection.store.note_attempts([note_of(old)]))

        stage.ask(claiming("second"))

        assert stage.record.record_id != old.record_id
        for record_id in (old.record_id, stage.record.record_id):
            assert connection.run(connection.store.attempts_of(record_id)) == []


class TestLateResults:
    """Evidence that outlives the record, and is never an outcome."""

    def test_each_is_kept_once_even_if_there_is_no_record(self, store: Connection) -> None:
        record_id = record_id_of("kept once")
        whole = LateResult(record_id=record_id, fence=Fence(7), effect=None, body=b"\x00paid\xff")
        charge = replace(whole, effect="charge", body=b"")

        for late in (whole, charge, replace(whole, body=b"a second copy")):
            store.run(store.store.keep_late_result(late, keep_us=10, now=START_US))

        found = store.run(store.store.late_results_of(record_id))
        assert found == [replace(whole, kept_at=START_US), replace(charge, kept_at=START_US)]

    def test_it_is_kept_for_as_long_as_was_asked(self, store: Connection) -> None:
        record_id = record_id_of("kept as long")
        late = LateResult(record_id=record_id, fence=Fence(7), effect=None, body=b"paid")
        store.run(store.store.keep_late_result(late, keep_us=10, now=START_US))

        store.run(store.store.sweep(limit=10, now=START_US + 9))
        before = store.run(store.store.late_results_of(record_id))
        store.run(store.store.sweep(limit=10, now=START_US + 10))
        after = store.run(store.store.late_results_of(record_id))

        assert (len(before), after) == (1, [])

    def test_its_body_does_not_show_in_its_repr_sec24(self) -> None:
        late = LateResult(record_id=record_id_of("x"), fence=Fence(7), effect=None, body=b"canary")

        assert "canary" not in repr(late)


class TestWorkers:
    """That a worker is alive is known from its last sign, whichever it was."""

    def test_the_latest_sign_is_the_one_that_is_read(self, store: Connection) -> None:
        for now in (START_US, START_US + 60_000_000):
            store.run(store.store.note_worker(now=now))

        assert store.run(store.store.worker_seen_at()) == START_US + 60_000_000

    def test_a_sign_has_the_time_of_the_store(self, store: Connection) -> None:
        before = store.run(store.store.clock())
        store.run(store.store.note_worker())
        seen_at = store.run(store.store.worker_seen_at())
        after = store.run(store.store.clock())

        assert seen_at is not None
        assert before <= seen_at <= after


class TestAudit:
    """Whatever a person does to a record is written down with it, and so is what was refused (SEC30)."""

    def test_a_verdict_and_its_line_come_together(self, stage: Stage) -> None:
        connection = stage.twin.connection
        stage.enter("in doubt, queryable")
        before = stage.record
        signed = signed_for(before)

        verb = resolve(before.ownership, VOIDED, effect_seen=before.open_effect_name)
        answer = connection.run(connection.store.decide(verb, signed, now=stage.now))

        found = connection.find(before.identity)
        assert answer == Kept()
        assert found is not None
        assert (found.state, found.open_effect) == (State.AVAILABLE, None)
        assert found.fence > before.fence
        # Lines of earlier tests may be left: nothing can empty an audit.
        [line] = connection.run(connection.store.audits_of(before.record_id))[-1:]
        assert line == AuditLine(at=stage.now, signed=signed, answer="done")

    def test_a_verdict_on_a_record_that_moved_on_changes_nothing_and_leaves_a_line_sec30(self, stage: Stage) -> None:
        connection = stage.twin.connection
        stage.enter("in doubt, sticky")
        before = stage.record
        verb = resolve(before.ownership, VOIDED, fence_seen=before.fence - 1)
        signed = signed_for(before, fence_seen=before.fence - 1)

        answer = connection.run(connection.store.decide(verb, signed, now=stage.now))

        assert answer == Refused(reason=Refusal.MOVED_ON, found=before)
        assert connection.find(before.identity) == before
        [line] = connection.run(connection.store.audits_of(before.record_id))[-1:]
        assert line == AuditLine(at=stage.now, signed=signed, answer="moved_on")

    def test_a_lapsed_record_can_be_put_in_doubt(self, stage: Stage) -> None:
        connection = stage.twin.connection
        stage.enter("lapsed, opaque")
        before = stage.record

        verb = take_over(before.ownership, recoveries_limit=0)
        answer = connection.run(connection.store.decide(verb, signed_for(before), now=stage.now))

        assert isinstance(answer, Doubtful)
        assert connection.find(before.identity) == answer.record
        assert connection.run(connection.store.audits_of(before.record_id))[-1].answer == "in_doubt"

    def test_what_was_not_even_tried_is_written_down(self, store: Connection) -> None:
        record_id = record_id_of("not tried")
        signed = Signed(who="ann", what="resolve --retry", reason="it is \u2603 late", record_id=record_id)

        store.run(store.store.audit(signed, "absent", now=START_US))
        store.run(store.store.audit(replace(signed, record_id=None), "done", now=START_US))

        lines = store.run(store.store.audits_of(record_id))
        assert set(lines) == {AuditLine(at=START_US, signed=signed, answer="absent")}

    def test_where_somebody_holds_the_record_nothing_is_decided_or_written(
        self, harness: Harness, stage: Stage
    ) -> None:
        connection = stage.twin.connection
        if not (connection.store.capabilities.joins_transactions and harness.locks_single_records):
            pytest.skip("nobody can hold a single record of this store")
        stage.enter("in doubt without an effect")
        before = stage.record
        verb = resolve(before.ownership, VOIDED, effect_seen=before.open_effect_name)
        lines = connection.run(connection.store.audits_of(before.record_id))

        with connection.transaction() as held:
            held.run(connection.store.hold(before.identity))
            answer = connection.run(connection.store.decide(verb, signed_for(before), now=stage.now))

        assert isinstance(answer, Locked)
        assert connection.find(before.identity) == before
        assert connection.run(connection.store.audits_of(before.record_id)) == lines
