"""Undoing what a rejected operation did."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nebis import EffectInDoubt, NotConfirmed, RecordCorrupt, Rejected, Retryable
from nebis.core.answers import Answer, Grant, Granted, Intended, Kept, Locked, Refusal, Refused, Running
from nebis.core.claiming import DOUBT_UNDO_FAILED
from nebis.core.record import Effect, EffectClass, EffectVerdict, Outcome, OutcomeKind, Record
from nebis.core.rejection import encode_rejection
from nebis.core.verbs import Checkpoint, Complete, Doubt, Intend, Release, Suspend, TurnBack, Verb
from nebis.flows.execute import attend
from nebis.flows.plan import EffectPlan
from nebis.flows.request import Disposition, Failed, Finished, Request
from nebis.flows.settle import DOUBT_CODE_CHANGED, DOUBT_EFFECT_OPEN
from nebis.flows.undo import conclude, undo
from nebis.ports.asks import Attend, CallEffect, Raised, Returned, TransactionCommit, TransactionHold
from nebis.ports.observer import Completed, TurnedBack
from nebis.ports.store import IndefiniteFailure
from tests.flows.scripted import Line, ScriptedWorld
from tests.flows.specimens import owned, quick
from tests.flows.test_effect import plan, raising

RESERVED = Effect(
    name="reserve",
    effect_class=EffectClass.TRANSACTIONAL,
    derived_key="",
    digest=bytes(32),
    is_outstanding=False,
    recall_until=None,
    verdict=EffectVerdict.HAPPENED,
    result=b"reserved",
)
CHARGED = replace(RESERVED, name="charge", effect_class=EffectClass.STICKY, derived_key="of the charge")
MAILED = replace(CHARGED, name="email")
NO = Rejected("out-of-stock")


def undoing(call: Callable[[Any], Any] = lambda _: b"undone", *names: str, **changes: Any) -> Request:
    """Make a request whose operation can undo these effects."""

    def planned(record: Record, effect: Effect) -> EffectPlan:
        return plan(call, **{"name": f"undo:{effect.name}", **changes})

    return replace(quick(), undoable=frozenset(names or ("reserve", "charge")), plan_undo=planned)


REQUEST = undoing()
RECORD = owned(REQUEST)


def store(verb: Verb) -> Answer | Locked:
    """Answer as a store does when nothing is wrong."""
    if isinstance(verb, Intend):
        return Intended(effect=replace(CHARGED, name=verb.name, derived_key=verb.derived_key, verdict=None))
    return Kept()


def unreadable(record: Record, effect: Effect) -> EffectPlan:
    raise RecordCorrupt("another shape")


def refused(reason: Refusal) -> Refused:
    return Refused(reason=reason, found=RECORD)


def kinds(world: ScriptedWorld) -> list[type]:
    return [type(verb) for verb in world.verbs]


def rejected(*effects: Effect, never_asked: str | None = None) -> Raised:
    return Raised(Rejected("out-of-stock"), never_asked, effects)


def turned_back(*effects: Effect) -> Record:
    return replace(RECORD, effects=effects, is_dirty=True, rejection=encode_rejection(NO))


def test_effects_are_undone_newest_first_and_then_the_rejection_is_stored() -> None:
    world = ScriptedWorld(store)

    ending = world.run(conclude(REQUEST, RECORD, rejected(RESERVED, MAILED, CHARGED)))

    told = encode_rejection(Rejected("out-of-stock", undone=("charge", "reserve")))
    assert ending == Finished(
        record_id=RECORD.record_id, outcome=Outcome(kind=OutcomeKind.REJECTED, body=told), is_replay=False
    )
    assert kinds(world) == [TurnBack, Intend, Checkpoint, Intend, Checkpoint, Complete]
    assert [verb.name for verb in world.verbs if isinstance(verb, Intend)] == ["undo:charge", "undo:reserve"]
    [first, *_] = world.told
    assert first == TurnedBack(operation="pay", operation_id=str(RECORD.record_id), effects=("charge", "reserve"))
    assert isinstance(world.told[-1], Completed)


@pytest.mark.parametrize(
    "end",
    [
        rejected(),
        rejected(MAILED),
        rejected(replace(CHARGED, verdict=EffectVerdict.REJECTED)),
        Raised(Rejected("no"), None, (MAILED, replace(CHARGED, name="undo:email"))),
    ],
)
def test_rejection_with_nothing_to_undo_is_stored_as_usual(end: Raised) -> None:
    world = ScriptedWorld(Kept())

    assert isinstance(world.run(conclude(REQUEST, RECORD, end)), Finished)
    assert kinds(world) == [Complete]


def test_result_undoes_nothing() -> None:
    world = ScriptedWorld(Kept())

    assert isinstance(world.run(conclude(REQUEST, RECORD, Returned("done", None, (CHARGED,)))), Finished)
    assert kinds(world) == [Complete]


def test_failure_that_is_no_rejection_undoes_nothing() -> None:
    world = ScriptedWorld(refused(Refusal.DIRTY), Kept())

    ending = world.run(conclude(REQUEST, RECORD, Raised(Retryable("busy"), None, (CHARGED,))))

    assert isinstance(ending, Failed)
    assert kinds(world) == [Release, Suspend]


def test_any_exception_that_the_operation_calls_a_rejection_undoes() -> None:
    world = ScriptedWorld(store)
    request = replace(REQUEST, classify=lambda _: Disposition.REJECT)

    ending = world.run(conclude(request, RECORD, Raised(KeyError("x"), None, (CHARGED,))))

    assert isinstance(ending, Finished)
    assert ending.outcome.body == request.encode_rejection(KeyError("x"))


def test_ambiguous_effect_is_settled_before_anything_is_undone() -> None:
    """Nobody can undo what may still happen: the attempt is suspended, and the next one asks again."""
    world = ScriptedWorld(Kept())
    open_charge = replace(CHARGED, verdict=None, result=None)

    ending = world.run(conclude(REQUEST, RECORD, rejected(RESERVED, open_charge)))

    assert isinstance(ending, Failed)
    assert isinstance(ending.error, EffectInDoubt)
    assert ending.error.reason == DOUBT_EFFECT_OPEN
    assert kinds(world) == [Suspend]


def test_changed_code_undoes_nothing() -> None:
    world = ScriptedWorld(Kept())

    world.run(conclude(REQUEST, RECORD, rejected(CHARGED, never_asked="charge")))

    assert world.verbs == [Doubt(ownership=RECORD.ownership, reason=DOUBT_CODE_CHANGED)]


def test_owner_that_was_fenced_before_it_turned_back_undoes_nothing() -> None:
    """F048."""
    world = ScriptedWorld(refused(Refusal.FENCED))

    assert isinstance(world.run(conclude(REQUEST, RECORD, rejected(CHARGED))), Running)
    assert kinds(world) == [TurnBack]


def test_successor_goes_on_with_the_undo_and_never_calls_the_handler() -> None:
    half = turned_back(RESERVED, CHARGED, replace(CHARGED, name="undo:charge", digest=bytes(32)))
    world = ScriptedWorld(store)

    ending = world.run(attend(REQUEST, Granted(record=half, how=Grant.RESUMED)))

    assert isinstance(ending, Finished)
    assert [verb.name for verb in world.verbs if isinstance(verb, Intend)] == ["undo:reserve"]
    assert len(world.of(Attend)) == 1


def test_record_that_is_not_being_undone_is_the_handlers() -> None:
    assert ScriptedWorld().run(attend(REQUEST, Granted(record=RECORD, how=Grant.NEW))) is RECORD


@pytest.mark.parametrize(
    ("request_", "script", "sent"),
    [
        (undoing(raising(Rejected("too-late"))), [store], [Intend, Checkpoint, Doubt]),
        (replace(REQUEST, plan_undo=unreadable), [store], [Doubt]),
        (
            undoing(raising(TimeoutError())),
            [store, refused(Refusal.NOT_RESUMABLE), Kept()],
            [Intend, Suspend, Doubt],
        ),
    ],
)
def test_undo_that_is_refused_is_in_doubt(request_: Request, script: list[Line], sent: list[type]) -> None:
    record = turned_back(CHARGED)
    world = ScriptedWorld(*script)

    ending = world.run(undo(request_, record))

    assert isinstance(ending, Failed)
    assert ending.doubt_reason == DOUBT_UNDO_FAILED
    assert kinds(world) == sent


def test_undo_whose_downstream_fails_is_asked_for_again_by_a_successor() -> None:
    error = TimeoutError()
    world = ScriptedWorld(store)

    ending = world.run(undo(undoing(raising(error)), turned_back(CHARGED)))

    assert isinstance(ending, Failed)
    assert ending.doubt_reason is None
    assert ending.error.__cause__ is error
    assert kinds(world) == [Intend, Suspend]


def test_undo_that_may_have_been_refused_earlier_is_in_doubt_for_its_own_reason() -> None:
    """F063: a downstream that forgets rejections."""
    world = ScriptedWorld(store, refused(Refusal.NOT_DEFINITE), Kept())

    ending = world.run(undo(undoing(raising(Rejected("no"))), turned_back(CHARGED)))

    assert isinstance(ending, Failed)
    assert ending.doubt_reason == "rejection-not-definite"


def test_undo_of_an_attempt_that_lost_its_record_answers_with_what_it_finds() -> None:
    world = ScriptedWorld(refused(Refusal.FENCED))

    assert isinstance(world.run(undo(REQUEST, turned_back(CHARGED))), Running)
    assert kinds(world) == [Intend, Suspend]


def test_undo_that_the_store_does_not_confirm_tells_nobody_that_all_is_undone() -> None:
    """I11."""
    world = ScriptedWorld(store, store, IndefiniteFailure("no answer"))

    with pytest.raises(NotConfirmed):
        world.run(undo(REQUEST, turned_back(CHARGED)))


def test_code_that_can_no_longer_undo_anything_is_in_doubt() -> None:
    world = ScriptedWorld(Kept())

    ending = world.run(undo(quick(), turned_back(CHARGED)))

    assert isinstance(ending, Failed)
    assert ending.doubt_reason == DOUBT_CODE_CHANGED


def test_local_undo_commits_with_its_checkpoint() -> None:
    request = undoing(lambda _: b"released", effect_class=EffectClass.TRANSACTIONAL)
    record = turned_back(RESERVED)
    world = ScriptedWorld(store, says={TransactionHold: [record]})

    assert isinstance(world.run(undo(request, record)), Finished)
    assert kinds(world) == [Checkpoint, Complete]
    assert len(world.of(TransactionCommit)) == 1
    assert [ask.is_local for ask in world.of(CallEffect)] == [True]
