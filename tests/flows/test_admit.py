"""Taking a delivery in: what is run, what is parked, and what the reader of the broker is told."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from nebis import Done, InDoubt, Later, Local, Parked, ParkReason, Rejected, seconds
from nebis.core.answers import (
    Answer,
    Doubtful,
    Gone,
    Grant,
    Granted,
    Kept,
    Refusal,
    Refused,
    Replay,
    Reused,
    Running,
    Unreadable,
)
from nebis.core.record import Outcome, OutcomeKind, Record, State
from nebis.core.verbs import Claim, Release
from nebis.flow import drive
from nebis.flows.admit import Admission, AttemptsUsedUp, admit, park
from nebis.ports.asks import RunHandler, Settled, TransactionApply, TransactionSettle
from nebis.ports.inbox import AskInbox, Letter, ParkedLetter, Place, Progress
from nebis.ports.observer import GapFound, MessageIgnored, MessageParked
from nebis.ports.store import DefiniteFailure
from tests.flows.scripted import Line, ScriptedWorld
from tests.flows.specimens import completed, declaration, owned, rejection, request_of

REQUEST = request_of()
RECORD = owned(REQUEST)
DONE = completed(RECORD, REQUEST.encode("stored"))
GRANTED = Granted(record=RECORD, how=Grant.NEW)
PLACE = Place(consumer="pay", partition="payments/0", offset=7)
LETTER = Letter(
    parked_id=UUID(int=9),
    consumer="pay",
    topic="payments",
    message_id="m-1",
    partition="0",
    offset=7,
    content_type="application/json",
    headers=(),
    payload=b"{}",
    payload_bytes=2,
)


def admission(**changes: Any) -> Admission:
    return replace(Admission(request=REQUEST, letter=LETTER, attempts_limit=3), **changes)


def parked_in(world: ScriptedWorld) -> ParkedLetter | None:
    return drive(world.inbox.find_parked(LETTER.parked_id), world.inbox.perform)


def progress_in(world: ScriptedWorld) -> Progress | None:
    return drive(world.inbox.progress("pay", "payments/0"), world.inbox.perform)


def advanced(world: ScriptedWorld, *offsets: int) -> None:
    for offset in offsets:
        drive(world.inbox.advance(replace(PLACE, offset=offset)), world.inbox.perform)


def raising(error: Exception) -> Callable[[Record], object]:
    def handle(_: Record) -> object:
        raise error

    return handle


def granted(attempts: int) -> Granted:
    return Granted(record=replace(RECORD, attempts=attempts), how=Grant.AVAILABLE)


def test_first_delivery_is_run_and_done() -> None:
    world = ScriptedWorld(GRANTED, Kept())

    assert world.run(admit(admission())) == Done(is_duplicate=False)
    assert len(world.of(RunHandler)) == 1
    assert parked_in(world) is None


def test_redelivery_of_what_is_applied_is_done_without_running() -> None:
    """F111."""
    world = ScriptedWorld(Replay(record=DONE))

    assert world.run(admit(admission())) == Done(is_duplicate=True)
    assert not world.of(RunHandler)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Running(record=RECORD, lease_left_us=400_000), Later(after_seconds=0.4, reason="in-flight")),
        (Running(record=RECORD, lease_left_us=20_000_000), Later(after_seconds=2.0, reason="in-flight")),
        (Unreadable(record=RECORD), Later(after_seconds=300.0, reason="unreadable")),
    ],
)
def test_what_somebody_else_decides_comes_later(answer: Answer, verdict: Later) -> None:
    world = ScriptedWorld(answer)

    assert world.run(admit(admission())) == verdict
    assert parked_in(world) is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Reused(record=RECORD), ParkReason.ID_REUSED),
        (Doubtful(record=replace(RECORD, doubt_reason="owner-gone")), ParkReason.IN_DOUBT),
        (Doubtful(record=RECORD), ParkReason.IN_DOUBT),
        (Gone(record=replace(DONE, fingerprint=b"x" * 32, outcome=None)), ParkReason.AFTER_RETENTION),
        (Gone(record=replace(DONE, outcome_kind=OutcomeKind.REJECTED, outcome=None)), ParkReason.AFTER_RETENTION),
        (Replay(record=completed(RECORD, rejection("no"), OutcomeKind.REJECTED)), ParkReason.REJECTED),
        (Replay(record=completed(RECORD, rejection("?"), OutcomeKind.UNKNOWN)), ParkReason.OUTCOME_UNKNOWN),
    ],
)
def test_what_a_person_decides_is_kept_and_told(answer: Answer, reason: ParkReason) -> None:
    world = ScriptedWorld(answer)

    assert world.run(admit(admission())) == Parked(reason=reason, parked_id=str(LETTER.parked_id))

    found = parked_in(world)
    assert found is not None
    assert (found.letter, found.reason, found.record_id) == (LETTER, reason, RECORD.record_id)
    assert found.is_due is (reason is ParkReason.IN_DOUBT)
    assert world.told[-1] == MessageParked(operation="pay", operation_id=str(LETTER.parked_id), reason=reason.value)


def test_tombstone_of_this_very_message_is_proof_enough() -> None:
    """F113."""
    world = ScriptedWorld(Gone(record=replace(DONE, state=State.EXPIRED, outcome=None)))

    assert world.run(admit(admission(place=PLACE))) == Done(is_duplicate=True)
    assert not world.of(RunHandler)
    assert progress_in(world) is not None


def test_failure_comes_back_later_each_time_for_longer() -> None:
    first = ScriptedWorld(granted(1), Kept(), handler=raising(ValueError("a payload")))
    second = ScriptedWorld(granted(2), Kept(), handler=raising(ValueError("a payload")))

    assert first.run(admit(admission())) == Later(after_seconds=1.0, reason="ValueError")
    assert second.run(admit(admission())) == Later(after_seconds=2.0, reason="ValueError")
    assert parked_in(second) is None


def test_last_failure_parks_without_what_the_exception_said() -> None:
    """F108, SEC24."""
    world = ScriptedWorld(granted(3), Kept(), handler=raising(ValueError("a payload")))

    assert world.run(admit(admission())) == Parked(reason=ParkReason.ATTEMPTS_USED_UP, parked_id=str(LETTER.parked_id))
    found = parked_in(world)
    assert found is not None
    assert (found.attempts, found.detail) == (3, "ValueError")


def test_owner_that_lost_its_record_to_another_life_comes_back_later() -> None:
    world = ScriptedWorld(GRANTED, Refused(reason=Refusal.ABSENT, found=None))

    assert world.run(admit(admission())) == Later(after_seconds=1.0, reason="not-confirmed")


def test_doubt_that_the_attempt_itself_leaves_is_parked() -> None:
    world = ScriptedWorld(GRANTED, Kept(), handler=raising(InDoubt("the bank was silent")))

    assert world.run(admit(admission())) == Parked(reason=ParkReason.IN_DOUBT, parked_id=str(LETTER.parked_id))
    found = parked_in(world)
    assert found is not None
    assert (found.detail, found.is_due) == ("the bank was silent", True)


def test_rejection_parks_at_once() -> None:
    world = ScriptedWorld(GRANTED, Kept(), handler=raising(Rejected("unknown account")))

    assert world.run(admit(admission())) == Parked(reason=ParkReason.REJECTED, parked_id=str(LETTER.parked_id))


@pytest.mark.parametrize(
    ("script", "says", "verdict"),
    [
        ((DefiniteFailure("down"),), {}, Later(after_seconds=1.0, reason="store-unavailable")),
        (
            (Reused(record=RECORD),),
            {AskInbox: [DefiniteFailure("down")]},
            Later(after_seconds=1.0, reason="store-unavailable"),
        ),
    ],
)
def test_store_that_is_down_makes_it_later(script: tuple[Line, ...], says: Any, verdict: Later) -> None:
    world = ScriptedWorld(*script, says=says)

    assert world.run(admit(admission())) == verdict


def test_progress_that_cannot_be_read_makes_it_later() -> None:
    world = ScriptedWorld(GRANTED, says={AskInbox: [DefiniteFailure("down")]})

    assert world.run(admit(admission(place=PLACE))) == Later(after_seconds=1.0, reason="store-unavailable")
    assert not world.of(RunHandler)


def test_payload_that_is_too_large_is_shown_and_stays_with_the_broker() -> None:
    world = ScriptedWorld()
    letter = replace(LETTER, payload=None, payload_bytes=20_000_000)

    verdict = world.run(park(letter, ParkReason.TOO_LARGE, place=PLACE))

    assert verdict == Later(after_seconds=300.0, reason="too-large")
    assert parked_in(world) is not None
    assert progress_in(world) is None


class TestSequence:
    def test_offset_at_or_below_the_last_is_ignored(self) -> None:
        world = ScriptedWorld(GRANTED, Kept())
        advanced(world, 6, 7)

        assert world.run(admit(admission(place=PLACE))) == Done(is_duplicate=True)
        assert not world.verbs
        assert world.told == [MessageIgnored(operation="pay", operation_id=str(LETTER.parked_id))]

    def test_next_offset_is_applied_and_written_down_after_an_outcome_of_its_own(self) -> None:
        world = ScriptedWorld(GRANTED, Kept())
        advanced(world, 6)

        assert world.run(admit(admission(place=PLACE))) == Done(is_duplicate=False)
        found = progress_in(world)
        assert found is not None
        assert (found.last_offset, found.gaps, found.gap) == (7, 0, None)
        assert not [event for event in world.told if isinstance(event, GapFound)]

    def test_first_offset_of_all_is_no_gap(self) -> None:
        world = ScriptedWorld(GRANTED, Kept())

        world.run(admit(admission(place=PLACE)))

        assert not [event for event in world.told if isinstance(event, GapFound)]

    def test_offset_is_left_to_the_handlers_own_transaction(self) -> None:
        outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=REQUEST.encode("done"))
        world = ScriptedWorld(GRANTED, Kept(), handler=lambda _: Settled(outcome))

        assert world.run(admit(admission(place=PLACE))) == Done(is_duplicate=False)
        assert progress_in(world) is None

    def test_gap_is_told_and_written_down(self) -> None:
        world = ScriptedWorld(GRANTED, Kept())
        advanced(world, 3)

        assert world.run(admit(admission(place=PLACE))) == Done(is_duplicate=False)
        assert world.told[-1] == GapFound(
            operation="pay", operation_id=str(LETTER.parked_id), partition="payments/0", first=4, last=6
        )
        found = progress_in(world)
        assert found is not None
        assert (found.gaps, found.gap) == (1, (4, 6))

    def test_gap_is_not_told_of_a_message_that_comes_again(self) -> None:
        world = ScriptedWorld(Running(record=RECORD, lease_left_us=5))
        advanced(world, 3)

        world.run(admit(admission(place=PLACE)))

        assert not [event for event in world.told if isinstance(event, GapFound)]

    def test_message_that_a_gap_had_skipped_is_parked(self) -> None:
        world = ScriptedWorld(GRANTED, Kept())
        advanced(world, 6, 8)

        assert world.run(admit(admission(place=PLACE))) == Parked(
            reason=ParkReason.OFFSET_SKIPPED, parked_id=str(LETTER.parked_id)
        )
        assert not world.verbs

    def test_message_outside_the_only_gap_was_applied(self) -> None:
        world = ScriptedWorld()
        advanced(world, 7, 10)

        assert world.run(admit(admission(place=PLACE))) == Done(is_duplicate=True)

    @pytest.mark.parametrize(("found", "is_parked"), [(None, True), (RECORD, True), (DONE, False)])
    def test_record_decides_where_several_gaps_leave_a_doubt(self, found: Record | None, *, is_parked: bool) -> None:
        world = ScriptedWorld(found=found)
        advanced(world, 4, 8, 10)

        assert isinstance(world.run(admit(admission(place=PLACE))), Parked) is is_parked

    def test_parked_message_is_gone_past(self) -> None:
        world = ScriptedWorld(Reused(record=RECORD))
        advanced(world, 6)

        world.run(admit(admission(place=PLACE)))

        found = progress_in(world)
        assert found is not None
        assert found.last_offset == 7


class TestRedrive:
    def test_success_takes_it_out(self) -> None:
        world = ScriptedWorld(granted(9), Kept())
        advanced(world, 9)
        world.run(park(LETTER, ParkReason.ATTEMPTS_USED_UP))

        assert world.run(admit(admission(place=PLACE, is_redrive=True))) == Done(is_duplicate=False)
        assert parked_in(world) is None

    def test_failure_parks_it_again_after_one_try(self) -> None:
        world = ScriptedWorld(granted(1), Kept(), handler=raising(ValueError()))

        assert world.run(admit(admission(place=PLACE, is_redrive=True))) == Parked(
            reason=ParkReason.ATTEMPTS_USED_UP, parked_id=str(LETTER.parked_id)
        )
        assert progress_in(world) is None

    def test_doubt_that_lasts_is_not_told_again(self) -> None:
        world = ScriptedWorld(Doubtful(record=RECORD))

        assert world.run(admit(admission(is_redrive=True))) == Later(after_seconds=300.0, reason="in-doubt")
        assert parked_in(world) is None


class TestSingleTransaction:
    single = request_of(declaration(Local, single_transaction=True))

    def admission(self) -> Admission:
        return admission(request=self.single, is_single=True)

    def test_everything_is_one_commit(self) -> None:
        world = ScriptedWorld(GRANTED, Kept())

        assert world.run(admit(self.admission())) == Done(is_duplicate=False)
        about_records = [type(ask) for ask in world.asked if getattr(ask, "verb", None)]
        assert about_records == [TransactionApply, TransactionSettle]

    def test_failure_is_counted_outside_the_transaction_that_is_undone(self) -> None:
        world = ScriptedWorld(granted(1), granted(3), Kept(), handler=raising(ValueError()))

        assert world.run(admit(self.admission())) == Parked(
            reason=ParkReason.ATTEMPTS_USED_UP, parked_id=str(LETTER.parked_id)
        )
        assert [type(verb) for verb in world.verbs] == [Claim, Claim, Release]

    def test_attempts_that_are_used_up_are_not_counted_again(self) -> None:
        world = ScriptedWorld(granted(4), handler=raising(AttemptsUsedUp()))

        assert isinstance(world.run(admit(self.admission())), Parked)
        assert [type(verb) for verb in world.verbs] == [Claim]

    def test_failure_that_cannot_be_counted_comes_back_later(self) -> None:
        running = Running(record=RECORD, lease_left_us=5)
        world = ScriptedWorld(granted(1), running, handler=raising(ValueError()))

        assert world.run(admit(self.admission())) == Later(after_seconds=1.0, reason="ValueError")

    def test_transaction_that_somebody_ended_inside_is_in_doubt(self) -> None:

        world = ScriptedWorld(GRANTED, GRANTED, Kept(), says={TransactionSettle: [None]})

        assert world.run(admit(self.admission())) == Parked(reason=ParkReason.IN_DOUBT, parked_id=str(LETTER.parked_id))


def test_backoff_is_bounded_by_the_policy() -> None:
    request = request_of(declaration(backoff_first=seconds(5), backoff_longest=seconds(7)))
    world = ScriptedWorld(granted(2), Kept(), handler=raising(ValueError()))

    assert world.run(admit(admission(request=request))) == Later(after_seconds=7.0, reason="ValueError")
