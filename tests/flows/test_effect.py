"""One external effect: intent, call, checkpoint."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nebis import ClaimLost, EffectInDoubt, EffectTimedOut, MisuseError, Rejected, ResultUnstorable, Retryable
from nebis.core.answers import Intended, Kept, Refusal, Refused
from nebis.core.record import Effect, EffectClass, EffectVerdict, Record
from nebis.core.verbs import Checkpoint, Doubt, Intend, Release, Suspend, Verb
from nebis.flows.effect import (
    DOUBT_RECALL_OVER,
    DOUBT_REJECTION_NOT_DEFINITE,
    DOUBT_UNSTORABLE,
    run_effect,
)
from nebis.flows.ledger import Ledger
from nebis.flows.plan import EffectPlan
from nebis.flows.request import Failed
from nebis.flows.settle import DOUBT_CODE_CHANGED, DOUBT_EFFECT_TIMED_OUT, settle
from nebis.ports.asks import CallEffect, KeepLate, Raised, Returned
from nebis.ports.history import LateResult as KeptLate
from nebis.ports.observer import DoubtRaised, EffectIntended, EffectKnown, EffectReplayed, LateResult
from tests.flows.scripted import Line, ScriptedWorld
from tests.flows.specimens import owned, quick

REQUEST = quick()
RECORD = owned(REQUEST)
OPEN = Effect(
    name="charge",
    effect_class=EffectClass.STICKY,
    derived_key="the key that was stored first",
    digest=bytes(32),
    is_outstanding=False,
    recall_until=None,
)
DONE = replace(OPEN, verdict=EffectVerdict.HAPPENED, result=b"charged")
INTENDED = Intended(effect=OPEN)


def encoded(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ResultUnstorable("not bytes")
    return value


def plan(call: Callable[[Effect], Any] = lambda _: b"charged", **changes: Any) -> EffectPlan:
    made = EffectPlan(
        name="charge",
        effect_class=EffectClass.STICKY,
        derived_key="a key of this attempt",
        digest=bytes(32),
        recall_us=None,
        call=call,
        encode=encoded,
        encode_rejection=lambda error: str(error).encode(),
        decode_rejection=lambda body: Rejected(body.decode()),
    )
    return replace(made, **changes)


def raising(error: Exception) -> Callable[[Effect], Any]:
    def call(effect: Effect) -> Any:
        raise error

    return call


def run(world: ScriptedWorld, made: EffectPlan, *known: Effect) -> bytes:
    record: Record = replace(RECORD, effects=known)
    return world.run(run_effect(record, REQUEST.policy, Ledger(record), made))


def refused(reason: Refusal) -> Refused:
    return Refused(reason=reason, found=RECORD)


def opening(verb: Verb) -> Intended:
    """Accept an intent as the store does."""
    assert isinstance(verb, Intend)
    return Intended(effect=replace(OPEN, name=verb.name, derived_key=verb.derived_key))


def kinds(world: ScriptedWorld) -> list[type]:
    return [type(verb) for verb in world.verbs]


def test_intent_is_durable_before_the_call_and_the_result_after_it() -> None:
    """The downstream is called under the key that was stored first, never under one made now."""
    keys = []

    def call(effect: Effect) -> bytes:
        keys.append((effect.derived_key, kinds(world)))
        return b"charged"

    world = ScriptedWorld(INTENDED, Kept())

    assert run(world, plan(call)) == b"charged"
    assert keys == [("the key that was stored first", [Intend])]
    intend, checkpoint = world.verbs
    assert isinstance(intend, Intend)
    assert not intend.is_again
    assert isinstance(checkpoint, Checkpoint)
    assert (checkpoint.verdict, checkpoint.result) == (EffectVerdict.HAPPENED, b"charged")
    assert [type(event) for event in world.told] == [EffectIntended, EffectKnown]


def test_effect_that_an_earlier_attempt_knows_is_not_called() -> None:
    world = ScriptedWorld()

    assert run(world, plan(), DONE) == b"charged"
    assert not world.of(CallEffect)
    assert [type(event) for event in world.told] == [EffectReplayed]


def test_rejection_that_an_earlier_attempt_knows_is_raised_again() -> None:
    known = replace(OPEN, verdict=EffectVerdict.REJECTED, result=b"declined")

    with pytest.raises(Rejected, match="declined"):
        run(ScriptedWorld(), plan(), known)


def test_open_effect_of_an_earlier_attempt_is_intended_before_it_is_called() -> None:
    """The takeover marked it as outstanding already; it is no call of this attempt."""
    world = ScriptedWorld(INTENDED, Kept())

    run(world, plan(), OPEN)

    intend = world.verbs[0]
    assert isinstance(intend, Intend)
    assert not intend.is_again


def test_own_call_without_an_answer_is_intended_again_before_the_next_one() -> None:
    """Its first call may still land, so a rejection of the second may prove nothing (F063)."""
    world, ledger = ScriptedWorld(INTENDED, INTENDED, Kept()), Ledger(RECORD)

    with pytest.raises(ConnectionError):
        world.run(run_effect(RECORD, REQUEST.policy, ledger, plan(raising(ConnectionError()))))
    world.run(run_effect(RECORD, REQUEST.policy, ledger, plan()))

    assert [verb.is_again for verb in world.verbs if isinstance(verb, Intend)] == [False, True]


def test_fenced_effect_is_called_again_only_by_the_next_attempt() -> None:
    fenced = plan(raising(ConnectionError()), effect_class=EffectClass.FENCED)
    opened = Intended(effect=replace(OPEN, effect_class=EffectClass.FENCED))
    world, ledger = ScriptedWorld(opened, refused(Refusal.NOT_RESUMABLE)), Ledger(RECORD)

    with pytest.raises(ConnectionError):
        world.run(run_effect(RECORD, REQUEST.policy, ledger, fenced))
    with pytest.raises(MisuseError, match="higher fence"):
        world.run(run_effect(RECORD, REQUEST.policy, ledger, fenced))


def test_rejection_of_the_downstream_is_checkpointed_and_raised() -> None:
    world = ScriptedWorld(INTENDED, Kept())

    with pytest.raises(Rejected):
        run(world, plan(raising(Rejected("declined"))))

    checkpoint = world.verbs[1]
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.verdict is EffectVerdict.REJECTED


def test_call_that_says_nothing_happened_is_written_down_as_that() -> None:
    world = ScriptedWorld(INTENDED, Kept())

    with pytest.raises(Retryable):
        run(world, plan(raising(Retryable("no connection"))))

    checkpoint = world.verbs[1]
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.verdict is EffectVerdict.DID_NOT_HAPPEN


def test_call_that_says_nothing_happened_after_one_that_may_still_land_stays_open() -> None:
    """F063."""
    world = ScriptedWorld(INTENDED, refused(Refusal.NOT_DEFINITE))

    with pytest.raises(Retryable):
        run(world, plan(raising(Retryable("no connection"))))


def test_call_that_never_left_is_made_again_by_the_same_attempt_under_the_same_key() -> None:
    """A retry loop in a handler: the second intent says nothing about an earlier call, for there was none."""
    world, ledger, keys = ScriptedWorld(opening, Kept(), opening, Kept()), Ledger(RECORD), []

    def call(effect: Effect) -> bytes:
        keys.append(effect.derived_key)
        if len(keys) == 1:
            raise Retryable("no connection")
        return b"charged"

    with pytest.raises(Retryable):
        world.run(run_effect(RECORD, REQUEST.policy, ledger, plan(call)))
    result = world.run(run_effect(RECORD, REQUEST.policy, ledger, plan(call)))

    assert result == b"charged"
    assert keys == ["a key of this attempt"] * 2
    assert [(type(verb), getattr(verb, "name", "")) for verb in world.verbs] == [
        (Intend, "charge"),
        (Checkpoint, "charge"),
        (Intend, "charge (call 2)"),
        (Checkpoint, "charge (call 2)"),
    ]
    assert not any(verb.is_again for verb in world.verbs if isinstance(verb, Intend))
    assert [event.effect for event in world.told if isinstance(event, EffectKnown)] == ["charge"]
    with pytest.raises(MisuseError, match="twice"):
        ledger.start("charge")


def test_effect_that_did_not_happen_is_not_missed_by_a_handler_that_goes_another_way() -> None:
    """A fallback: the first gateway cannot be reached, the handler catches it and uses the second."""
    ledger = Ledger(RECORD)
    world = ScriptedWorld(INTENDED, Kept())

    with pytest.raises(Retryable):
        world.run(run_effect(RECORD, REQUEST.policy, ledger, plan(raising(Retryable("no connection")))))

    assert ledger.never_asked() is None


def test_any_other_exception_leaves_the_effect_open() -> None:
    world = ScriptedWorld(INTENDED)

    with pytest.raises(TimeoutError):
        run(world, plan(raising(TimeoutError())))

    assert kinds(world) == [Intend]


@pytest.mark.parametrize(
    ("script", "made", "known", "reason"),
    [
        ([Kept()], plan(digest=b"x" * 32), [OPEN], DOUBT_CODE_CHANGED),
        ([Kept()], plan(effect_class=EffectClass.FENCED), [DONE], DOUBT_CODE_CHANGED),
        ([refused(Refusal.CODE_CHANGED), Kept()], plan(), [], DOUBT_CODE_CHANGED),
        ([refused(Refusal.RECALL_OVER), Kept()], plan(), [OPEN], DOUBT_RECALL_OVER),
        ([refused(Refusal.NOT_RESUMABLE), Kept()], plan(), [OPEN], DOUBT_RECALL_OVER),
        (
            [INTENDED, refused(Refusal.NOT_DEFINITE), Kept()],
            plan(raising(Rejected("no"))),
            [],
            DOUBT_REJECTION_NOT_DEFINITE,
        ),
        ([INTENDED, Kept()], plan(lambda _: "not bytes"), [], DOUBT_UNSTORABLE),
    ],
)
def test_effect_that_nobody_may_go_on_with_is_in_doubt(
    script: list[Line], made: EffectPlan, known: list[Effect], reason: str
) -> None:
    world = ScriptedWorld(*script)

    with pytest.raises(EffectInDoubt) as raised:
        run(world, made, *known)

    assert raised.value.reason == reason
    assert world.verbs[-1] == Doubt(ownership=RECORD.ownership, reason=reason)
    assert isinstance(world.told[-1], DoubtRaised)


@pytest.mark.parametrize(
    "script",
    [
        [refused(Refusal.FENCED)],
        [INTENDED, refused(Refusal.FENCED)],
    ],
)
@pytest.mark.parametrize("call", [lambda _: b"charged", raising(Retryable("no connection"))])
def test_effect_of_an_attempt_that_lost_its_record_stops_it(script: list[Line], call: Callable[[Effect], Any]) -> None:
    """F048."""
    with pytest.raises(ClaimLost):
        run(ScriptedWorld(*script), plan(call))


def test_doubt_of_an_attempt_that_lost_its_record_stops_it_too() -> None:
    with pytest.raises(ClaimLost):
        run(ScriptedWorld(refused(Refusal.FENCED)), plan(digest=b"x" * 32), OPEN)


@pytest.mark.parametrize(
    "reason",
    [Refusal.NOT_DECLARED, Refusal.EFFECT_OPEN, Refusal.NAME_USED, Refusal.NOT_UNDOING, Refusal.UNDOING],
)
def test_effect_out_of_place_is_a_fault_of_the_code(reason: Refusal) -> None:
    world = ScriptedWorld(refused(reason))

    with pytest.raises(MisuseError):
        run(world, plan())

    assert not world.of(CallEffect)


def test_one_effect_is_open_at_a_time() -> None:
    ledger = Ledger(RECORD)
    ledger.start("charge")

    with pytest.raises(MisuseError, match="still open"):
        ledger.start("email")


def test_name_is_used_once_in_an_attempt() -> None:
    ledger = Ledger(RECORD)
    ledger.start("charge")
    ledger.end(is_known=True)

    with pytest.raises(MisuseError, match="twice"):
        ledger.start("charge")


def test_effect_that_stayed_open_may_be_asked_for_again() -> None:
    ledger = Ledger(RECORD)
    ledger.start("charge")
    ledger.end(is_known=False)

    assert ledger.start("charge") is None
    ledger.end(is_known=False)
    ledger.end(is_known=True)


def test_recorded_effect_that_nobody_asked_for_is_noticed() -> None:
    undo = replace(DONE, name="undo:charge")
    ledger = Ledger(replace(RECORD, effects=(DONE, undo)))

    assert ledger.never_asked() == "charge"
    ledger.start("charge")
    ledger.end(is_known=True)
    assert ledger.never_asked() is None


def test_outstanding_call_is_known_by_name() -> None:
    ledger = Ledger(replace(RECORD, effects=(OPEN, replace(DONE, name="email"))))

    assert ledger.has_outstanding("charge")
    assert not ledger.has_outstanding("email")
    assert not ledger.has_outstanding("nothing")


@pytest.mark.parametrize(("own", "seconds"), [(None, REQUEST.policy.effect_timeout.total_seconds()), (90.0, 90.0)])
def test_downstream_is_waited_for_as_long_as_the_effect_or_else_the_policy_says(
    own: float | None, seconds: float
) -> None:
    """F066: the lease outlives the call, so that nobody takes over while it is still waited for."""
    world = ScriptedWorld(INTENDED, Kept())

    run(world, plan(timeout_seconds=own))

    assert [ask.timeout_seconds for ask in world.of(CallEffect)] == [seconds]
    intend = world.verbs[0]
    assert isinstance(intend, Intend)
    assert intend.lease_us > seconds * 1_000_000


def test_effect_that_timed_out_stays_open_and_is_asked_for_again_at_once() -> None:
    timed_out = EffectTimedOut("charge", 20.0)
    world = ScriptedWorld(INTENDED, refused(Refusal.DIRTY), Kept())

    with pytest.raises(EffectTimedOut):
        run(world, plan(raising(timed_out)))
    ending = world.run(settle(REQUEST, RECORD, Raised(timed_out, None, (OPEN,))))

    assert ending == Failed(record=RECORD, error=timed_out)
    assert kinds(world) == [Intend, Release, Suspend]


def test_effect_that_timed_out_and_may_not_be_called_again_is_in_doubt() -> None:
    world = ScriptedWorld(refused(Refusal.DIRTY), refused(Refusal.NOT_RESUMABLE), Kept())

    world.run(settle(REQUEST, RECORD, Raised(EffectTimedOut("charge", 20.0), None, (OPEN,))))

    assert world.verbs[-1] == Doubt(ownership=RECORD.ownership, reason=DOUBT_EFFECT_TIMED_OUT)


@pytest.mark.parametrize("end", [Returned("done", None, (OPEN,)), Raised(Rejected("no"), None, (OPEN,))])
def test_handler_that_goes_on_after_an_effect_without_an_answer_has_no_outcome_yet(
    end: Returned[object] | Raised,
) -> None:
    """F085: it would be acknowledged while the effect may still land."""
    world = ScriptedWorld(Kept())

    ending = world.run(settle(REQUEST, RECORD, end))

    assert isinstance(ending, Failed)
    assert isinstance(ending.error, EffectInDoubt)
    assert world.verbs == [Suspend(ownership=RECORD.ownership)]


def test_result_that_comes_after_the_record_was_lost_is_kept_and_told() -> None:
    """F050: it is no outcome any more, and must not vanish."""
    world = ScriptedWorld(INTENDED, refused(Refusal.FENCED))

    with pytest.raises(ClaimLost):
        run(world, plan())

    assert world.told[-1] == LateResult(
        operation="pay", operation_id=str(RECORD.record_id), effect="charge", reason=Refusal.FENCED
    )
    late = KeptLate(record_id=RECORD.record_id, fence=RECORD.fence, effect="charge", body=b"charged")
    assert world.of(KeepLate) == [KeepLate(late, REQUEST.policy.kept.outcome_us)]


def test_effect_under_a_new_name_before_the_recorded_one_is_in_doubt_and_not_called() -> None:
    """Renamed between two attempts: the charge that happened would be made again."""
    world = ScriptedWorld(Kept())

    with pytest.raises(EffectInDoubt):
        run(world, plan(name="charge-renamed"), DONE)

    assert world.verbs == [Doubt(ownership=RECORD.ownership, reason=DOUBT_CODE_CHANGED)]
    assert not world.of(CallEffect)


def test_request_without_undos_plans_none() -> None:
    with pytest.raises(AssertionError):
        REQUEST.plan_undo(RECORD, DONE)
