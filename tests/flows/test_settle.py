"""Ending an attempt."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest

from nebis import Disposition, InDoubt, Local, NotConfirmed, Opaque, Rejected, Retryable
from nebis.core.answers import Doubtful, Kept, Refusal, Refused, Running
from nebis.core.record import EffectsMode, Fence, Outcome, OutcomeKind, Record, RecordId, State
from nebis.core.verbs import Complete, Doubt, Release, Suspend, Verb, Withdraw
from nebis.flows.request import Failed, Finished, Request, Vanished
from nebis.flows.settle import DOUBT_CODE_CHANGED, DOUBT_HANDLER_RAISED, LONGEST_REASON, seen, settle
from nebis.ports.asks import KeepLate, KeepTrying, Raised, Returned, Settled
from nebis.ports.history import LateResult
from nebis.ports.observer import (
    Completed,
    DoubtRaised,
    OwnershipLost,
    Released,
    Suspended,
    Withdrawn,
)
from nebis.ports.observer import LateResult as CameLate
from nebis.ports.store import IndefiniteFailure
from tests.flows.scripted import Line, ScriptedWorld
from tests.flows.specimens import (
    Unwanted,
    classified,
    completed,
    declaration,
    owned,
    quick,
    rejection,
    request_of,
)

REQUEST = request_of()
RECORD = owned(REQUEST)
ABOUT = {"operation": "pay", "operation_id": str(RECORD.record_id)}
WINNER = completed(replace(RECORD, fence=Fence(9)), REQUEST.encode("the winner's"))


def refused(reason: Refusal, found: Record | None = RECORD) -> Refused:
    return Refused(reason=reason, found=found)


def kinds(world: ScriptedWorld) -> list[type[Verb]]:
    return [type(verb) for verb in world.verbs]


def test_result_is_stored_and_answered_with_the_very_bytes() -> None:
    world = ScriptedWorld(Kept())

    ending = world.run(settle(REQUEST, RECORD, Returned("done")))

    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=REQUEST.encode("done"))
    assert ending == Finished(record_id=RECORD.record_id, outcome=outcome, is_replay=False)
    [verb] = world.verbs
    assert verb == Complete(ownership=RECORD.ownership, outcome=outcome, retention=REQUEST.policy.kept)


def test_complete_whose_answer_was_lost_is_sent_again_and_answered() -> None:
    """F015."""
    world = ScriptedWorld(IndefiniteFailure("no answer"), Kept(is_repeated=True))

    ending = world.run(settle(REQUEST, RECORD, Returned("done")))

    assert isinstance(ending, Finished)
    assert kinds(world) == [Complete, Complete]
    assert world.told == [Completed(**ABOUT, kind=OutcomeKind.SUCCEEDED)]


def test_complete_that_is_never_confirmed_tells_nobody_anything() -> None:
    """I11: neither a result nor an event; the process goes on sending it."""
    world = ScriptedWorld(IndefiniteFailure("no answer"))

    with pytest.raises(NotConfirmed):
        world.run(settle(quick(), RECORD, Returned("done")))

    assert world.told == []
    assert [type(ask.verb) for ask in world.of(KeepTrying)] == [Complete]


def test_outcome_that_the_handlers_own_transaction_stored_is_answered_without_another_write() -> None:
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=REQUEST.encode("committed"))
    world = ScriptedWorld()

    ending = world.run(settle(REQUEST, RECORD, Settled(outcome)))

    assert ending == Finished(record_id=RECORD.record_id, outcome=outcome, is_replay=False)
    assert world.asked == []


@pytest.mark.parametrize("end", [Returned("done", never_asked="charge"), Raised(Rejected("no"), never_asked="charge")])
def test_end_of_an_attempt_that_never_asked_for_a_recorded_effect_is_in_doubt(end: Returned[object] | Raised) -> None:
    """The code changed between two attempts, and an effect that happened is not in the answer."""
    world = ScriptedWorld(Kept())

    ending = world.run(settle(REQUEST, RECORD, end))

    assert isinstance(ending, Failed)
    assert ending.doubt_reason == DOUBT_CODE_CHANGED
    assert world.verbs == [Doubt(ownership=RECORD.ownership, reason=DOUBT_CODE_CHANGED)]


def test_result_that_cannot_be_stored_is_a_final_outcome() -> None:
    """O6: the work was done, so it must never run again."""
    world = ScriptedWorld(Kept())

    ending = world.run(settle(REQUEST, RECORD, Returned(object())))

    assert isinstance(ending, Finished)
    assert ending.outcome.kind is OutcomeKind.UNSTORABLE
    assert kinds(world) == [Complete]


def test_rejection_is_an_outcome() -> None:
    world = ScriptedWorld(Kept())

    ending = world.run(settle(REQUEST, RECORD, Raised(Rejected("card-declined"))))

    outcome = Outcome(kind=OutcomeKind.REJECTED, body=rejection("card-declined"))
    assert ending == Finished(record_id=RECORD.record_id, outcome=outcome, is_replay=False)
    assert world.told == [Completed(**ABOUT, kind=OutcomeKind.REJECTED)]


@pytest.mark.parametrize(("error", "is_said"), [(Retryable("busy"), True), (ValueError("a bug"), False)])
def test_failure_before_any_effect_gives_the_key_back(error: Exception, is_said: bool) -> None:
    world = ScriptedWorld(Kept())

    assert world.run(settle(REQUEST, RECORD, Raised(error))) == Failed(record=RECORD, error=error)
    assert world.verbs == [Release(ownership=RECORD.ownership, nothing_happened=is_said)]
    assert world.told == [Released(**ABOUT)]


def test_unwanted_request_is_forgotten() -> None:
    error = Unwanted()
    world = ScriptedWorld(Kept())

    ending = world.run(settle(replace(REQUEST, classify=classified), RECORD, Raised(error)))

    assert ending == Failed(record=RECORD, error=error)
    assert world.verbs == [Withdraw(ownership=RECORD.ownership, nothing_happened=True)]
    assert world.told == [Withdrawn(**ABOUT)]


def test_hook_that_fails_says_nothing_and_its_own_error_is_told() -> None:
    error = ValueError("unknown to the hook")
    world = ScriptedWorld(Kept())

    ending = world.run(settle(replace(REQUEST, classify=classified), RECORD, Raised(error)))

    assert isinstance(ending, Failed)
    assert isinstance(ending.error, LookupError)
    assert ending.error.__cause__ is error
    assert kinds(world) == [Release]


def test_failure_after_an_effect_that_may_be_called_again_is_suspended() -> None:
    """F076: what is dirty is never released."""
    error = Retryable("busy")
    world = ScriptedWorld(refused(Refusal.DIRTY), Kept())

    assert world.run(settle(REQUEST, RECORD, Raised(error))) == Failed(record=RECORD, error=error)
    assert kinds(world) == [Release, Suspend]
    assert world.told == [Suspended(**ABOUT)]


def test_failure_after_an_effect_that_may_not_be_called_again_is_in_doubt() -> None:
    error = Retryable("timed out")
    world = ScriptedWorld(refused(Refusal.DIRTY), refused(Refusal.NOT_RESUMABLE), Kept())

    ending = world.run(settle(REQUEST, RECORD, Raised(error)))

    assert ending == Failed(record=RECORD, error=error, doubt_reason="timed out")
    assert kinds(world) == [Release, Suspend, Doubt]
    assert world.told == [DoubtRaised(**ABOUT, reason="timed out")]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InDoubt("gateway-timeout"), "gateway-timeout"),
        (InDoubt("zero\x00byte\ud800"), "zero?byte?"),
        (InDoubt("x" * 1000), "x" * LONGEST_REASON),
    ],
)
def test_handler_in_doubt_is_taken_at_its_word(error: InDoubt, reason: str) -> None:
    world = ScriptedWorld(Kept())

    ending = world.run(settle(REQUEST, RECORD, Raised(error)))

    assert ending == Failed(record=RECORD, error=error, doubt_reason=reason)
    assert world.verbs == [Doubt(ownership=RECORD.ownership, reason=reason)]
    assert world.told == [DoubtRaised(**ABOUT, reason=reason)]


def test_any_exception_of_an_opaque_operation_is_in_doubt_and_its_text_is_not_kept() -> None:
    """SEC24: what an exception carries may be somebody's payload."""

    class Declined(Exception):
        reason = "card 4111 1111 1111 1111"

    request = request_of(declaration(Opaque))
    world = ScriptedWorld(Kept())

    world.run(settle(request, owned(request), Raised(Declined())))

    [verb] = world.verbs
    assert isinstance(verb, Doubt)
    assert verb.reason == DOUBT_HANDLER_RAISED


@pytest.mark.parametrize(
    ("end", "script", "sent"),
    [
        (Returned("mine"), [], [Complete]),
        (Raised(Rejected("no")), [], [Complete]),
        (Raised(Retryable("busy")), [], [Release]),
        (Raised(Retryable("busy")), [refused(Refusal.DIRTY)], [Release, Suspend]),
        (Raised(InDoubt("timeout")), [], [Doubt]),
    ],
)
def test_fenced_owner_answers_with_the_winners_bytes(
    end: Returned[object] | Raised, script: list[Line], sent: list[type[Verb]]
) -> None:
    """F050, I2, I11: never with its own."""
    world = ScriptedWorld(*script, refused(Refusal.FENCED, WINNER))

    ending = world.run(settle(REQUEST, RECORD, end))

    assert isinstance(ending, Finished)
    assert ending.is_replay
    assert ending.outcome.body == REQUEST.encode("the winner's")
    assert kinds(world) == sent
    assert world.told[-1] == OwnershipLost(**ABOUT, reason=Refusal.FENCED)


@pytest.mark.parametrize("end", [Returned("mine"), Raised(Rejected("no"))])
def test_outcome_that_comes_too_late_is_kept_for_people(end: Returned[object] | Raised) -> None:
    """F050: what a fenced owner brings is no outcome, but may be the only trace of what it did."""
    world = ScriptedWorld(refused(Refusal.FENCED, WINNER))

    world.run(settle(REQUEST, RECORD, end))

    [complete] = world.verbs
    assert isinstance(complete, Complete)
    late = LateResult(record_id=RECORD.record_id, fence=RECORD.fence, effect=None, body=complete.outcome.body)
    assert world.of(KeepLate) == [KeepLate(late, REQUEST.policy.kept.outcome_us)]
    assert world.told[0] == CameLate(**ABOUT, effect=None, reason=Refusal.FENCED)


@pytest.mark.parametrize(
    ("found", "means"),
    [
        (WINNER, lambda ending: isinstance(ending, Finished) and ending.is_replay),
        (replace(RECORD, state=State.IN_DOUBT), lambda ending: isinstance(ending, Doubtful)),
        (replace(RECORD, fence=Fence(9)), lambda ending: isinstance(ending, Running)),
        (replace(RECORD, state=State.AVAILABLE), lambda ending: ending == Vanished()),
        (replace(RECORD, state=State.EXPIRED), lambda ending: ending == Vanished()),
        (None, lambda ending: ending == Vanished()),
        # F071: another life of the key holds another caller's answer.
        (replace(WINNER, record_id=RecordId(UUID(int=8))), lambda ending: ending == Vanished()),
    ],
)
def test_what_a_fenced_owner_finds_decides_its_answer(found: Record | None, means: Callable[[object], bool]) -> None:
    assert means(seen(RECORD, found))


@pytest.mark.parametrize("mode", [Local, Opaque])
def test_every_disposition_ends_the_attempt(mode: EffectsMode) -> None:
    request: Request = request_of(declaration(mode))
    record = owned(request)
    for disposition in Disposition:
        world = ScriptedWorld(Kept())

        world.run(settle(replace(request, classify=partial(told, disposition)), record, Raised(KeyError("x"))))

        assert len(world.verbs) == 1
        assert len(world.told) == 1


def told(disposition: Disposition, _: Exception) -> Disposition:
    return disposition
