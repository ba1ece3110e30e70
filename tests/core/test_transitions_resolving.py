"""How a record leaves doubt without its owner, under a new fence and never on a mere absence (F063, F065)."""

from __future__ import annotations

from typing import Any

import pytest

from nebis.core.answers import Refusal, Refused
from nebis.core.owning import KEPT, KEPT_BEFORE
from nebis.core.record import (
    Effect,
    EffectClass,
    EffectsMode,
    EffectVerdict,
    Fence,
    Outcome,
    OutcomeKind,
    Record,
    State,
)
from nebis.core.resolving import resolve
from nebis.core.step import Edge
from nebis.core.verbs import AbsenceProof, CallAgain, DidNotHappen, EffectKnown, Ended, Verdict
from nebis.testing.conformance import specimens
from nebis.testing.conformance.specimens import NEVER_PROVED, PAID, RETENTION
from tests.core.records import (
    IN_EVERY_STATE,
    LAPSED,
    NEXT_FENCE,
    NOW,
    OTHER_LIFE,
    called,
    completed,
    done,
    doubted,
    voided,
)

HAPPENED = EffectKnown(verdict=EffectVerdict.HAPPENED, result=b"charge-1")
REJECTED = EffectKnown(verdict=EffectVerdict.REJECTED, result=b"no funds")
VOIDED = DidNotHappen(proof=AbsenceProof.VOIDED)
QUERYABLE = called(EffectClass.QUERYABLE)
SHIPPING = called(EffectClass.QUERYABLE, "ship")
UNDOING = {"rejection": b"out of stock"}


def settle(record: Record, verdict: Verdict, now: int = LAPSED, **changes: Any) -> tuple[Record, Edge]:
    """Resolve, expecting that it is accepted."""
    verb = specimens.resolve(record.ownership, verdict, **{"effect_seen": record.open_effect_name, **changes})
    step = resolve(record, verb, now, NEXT_FENCE)
    assert step.answer == KEPT
    assert step.record is not None
    assert (step.record.fence, step.record.nonce) == (NEXT_FENCE, verb.nonce)
    return step.record, step.edge


@pytest.mark.parametrize(("outcome", "factor"), [(PAID, 1), (NEVER_PROVED, 10)])
def test_an_end_is_stored_whatever_is_open(outcome: Any, factor: int) -> None:
    record, edge = settle(doubted(QUERYABLE, **UNDOING), Ended(outcome=outcome))

    assert edge is Edge.RESOLVED_ENDED
    assert (record.state, record.outcome_kind, record.outcome) == (State.COMPLETED, outcome.kind, outcome.body)
    assert (record.doubt_since, record.rejection, record.is_dirty) == (None, None, False)
    assert record.expires_at == LAPSED + RETENTION.outcome_us
    assert record.forget_at == record.expires_at + factor * RETENTION.metadata_us


@pytest.mark.parametrize("verdict", [HAPPENED, REJECTED])
def test_a_known_effect_lets_a_successor_go_on_at_once(verdict: EffectKnown) -> None:
    record, edge = settle(doubted(done("reserve"), QUERYABLE, recoveries=3), verdict)

    assert edge is Edge.RESOLVED_EFFECT_KNOWN
    assert [effect.verdict for effect in record.effects] == [EffectVerdict.HAPPENED, verdict.verdict]
    assert record.effects[1].result == verdict.result
    assert (record.state, record.lease_until, record.recoveries) == (State.IN_PROGRESS, LAPSED, 0)
    assert (record.doubt_since, record.doubt_reason, record.is_dirty) == (None, None, True)


@pytest.mark.parametrize("record", [doubted(QUERYABLE), doubted(), doubted(mode=EffectsMode.OPAQUE)])
@pytest.mark.parametrize("proof", list(AbsenceProof))
def test_what_cannot_have_happened_makes_the_key_available_for_a_whole_window(
    record: Record, proof: AbsenceProof
) -> None:
    after, edge = settle(record, DidNotHappen(proof=proof))

    assert edge is Edge.RESOLVED_DID_NOT_HAPPEN_AVAILABLE
    assert (after.state, after.open_effect, after.is_dirty) == (State.AVAILABLE, None, False)
    assert (after.doubt_since, after.doubt_reason) == (None, None)
    assert after.expires_at == LAPSED + RETENTION.outcome_us
    assert after.forget_at == after.expires_at + RETENTION.metadata_us


@pytest.mark.parametrize(
    ("record", "left"),
    [
        (doubted(done(), SHIPPING), (done(),)),
        (doubted(QUERYABLE, **UNDOING), ()),
        (doubted(done()), (done(),)),
        (doubted(voided(), done("reserve"), QUERYABLE), (voided(), done("reserve"))),
    ],
    ids=["after an effect", "while undoing", "nothing open", "after a voided one"],
)
def test_what_did_not_happen_is_dropped_and_the_rest_goes_on(record: Record, left: tuple[Effect, ...]) -> None:
    after, edge = settle(record, DidNotHappen(proof=AbsenceProof.OWNER_DEAD))

    assert edge is Edge.RESOLVED_DID_NOT_HAPPEN_GOES_ON
    assert (after.state, after.effects, after.is_dirty) == (State.IN_PROGRESS, left, True)


@pytest.mark.parametrize(
    ("record", "kept", "edge"),
    [
        (doubted(QUERYABLE), (voided(),), Edge.RESOLVED_DID_NOT_HAPPEN_AVAILABLE),
        (doubted(voided(), QUERYABLE), (voided(), voided(2)), Edge.RESOLVED_DID_NOT_HAPPEN_AVAILABLE),
        (doubted(done("reserve"), QUERYABLE), (done("reserve"), voided()), Edge.RESOLVED_DID_NOT_HAPPEN_GOES_ON),
        (doubted(QUERYABLE, **UNDOING), (voided(),), Edge.RESOLVED_DID_NOT_HAPPEN_GOES_ON),
        (
            doubted(called(EffectClass.QUERYABLE, "charge (call 2)")),
            (voided(),),
            Edge.RESOLVED_DID_NOT_HAPPEN_AVAILABLE,
        ),
    ],
    ids=["first", "second", "after an effect", "while undoing", "later call"],
)
def test_a_key_that_was_burnt_is_remembered_so_that_nobody_asks_under_it_again_f065(
    record: Record, kept: tuple[Effect, ...], edge: Edge
) -> None:
    after, taken = settle(record, VOIDED)

    assert (after.effects, taken) == (kept, edge)
    assert after.effect("charge") is None, "its name is free for the next intent"


def test_a_call_that_may_be_repeated_is_repeated_as_outstanding() -> None:
    record, edge = settle(doubted(done("reserve"), called(), recoveries=10), CallAgain())

    assert edge is Edge.RESOLVED_CALL_AGAIN
    assert [effect.is_outstanding for effect in record.effects] == [False, True]
    assert (record.state, record.recoveries) == (State.IN_PROGRESS, 0)


@pytest.mark.parametrize("record", [doubted(), completed()])
def test_a_repeated_verdict_is_recognised_by_its_nonce(record: Record) -> None:
    verb = specimens.resolve(record.ownership, Ended(outcome=PAID), nonce=record.nonce, fence_seen=1)

    step = resolve(record, verb, NOW, NEXT_FENCE)

    assert (step.record, step.answer, step.edge) == (record, KEPT_BEFORE, Edge.RESOLVE_REPEATED)


FORGETFUL = called(EffectClass.SUCCESS_ONLY, is_outstanding=True)
REFUSED: list[tuple[Refusal, Record | None, Verdict, dict[str, Any]]] = [
    (Refusal.ABSENT, None, Ended(outcome=PAID), {}),
    (Refusal.OTHER_LIFE, doubted(), Ended(outcome=PAID), {"record_id": OTHER_LIFE}),
    *[
        (Refusal(state.value), IN_EVERY_STATE[state], Ended(outcome=PAID), {})
        for state in State
        if state is not State.IN_DOUBT
    ],
    (Refusal.MOVED_ON, doubted(), Ended(outcome=PAID), {"fence_seen": 4}),
    (Refusal.EFFECT_NOT_OPEN, doubted(done()), HAPPENED, {}),
    (Refusal.NOT_DEFINITE, doubted(FORGETFUL), REJECTED, {}),
    (Refusal.NO_PROOF, doubted(QUERYABLE), DidNotHappen(proof=None), {}),
    (Refusal.NOT_RESUMABLE, doubted(QUERYABLE), CallAgain(), {}),
    (Refusal.NOT_RESUMABLE, doubted(called(recall_until=LAPSED)), CallAgain(), {}),
    (Refusal.NOT_RESUMABLE, doubted(mode=EffectsMode.OPAQUE), CallAgain(), {}),
]


@pytest.mark.parametrize(("reason", "record", "verdict", "changes"), REFUSED)
def test_a_verdict_is_refused(
    reason: Refusal, record: Record | None, verdict: Verdict, changes: dict[str, Any]
) -> None:
    seen = None if record is None else record.open_effect_name
    verb = specimens.resolve((record or doubted()).ownership, verdict, **{"effect_seen": seen, **changes})

    step = resolve(record, verb, LAPSED, NEXT_FENCE)

    assert step.record is record
    assert step.answer == Refused(reason=reason, found=record)


def test_a_fence_that_does_not_grow_is_never_given_i10() -> None:
    with pytest.raises(AssertionError):
        resolve(doubted(), specimens.resolve(doubted().ownership, Ended(outcome=PAID)), NOW, Fence(5))


def test_something_that_is_no_verdict_is_an_error_and_not_an_answer() -> None:
    with pytest.raises(AssertionError):
        resolve(doubted(), specimens.resolve(doubted().ownership, "perhaps"), NOW, NEXT_FENCE)  # type: ignore[arg-type]


def test_every_kind_of_outcome_can_be_a_verdict() -> None:
    for kind in OutcomeKind:
        record, _ = settle(doubted(), Ended(outcome=Outcome(kind=kind, body=b"")))
        assert record.outcome_kind is kind


def test_a_resolver_cannot_pass_off_did_not_happen_as_the_result_of_the_effect_f065() -> None:
    verdict = EffectKnown(verdict=EffectVerdict.DID_NOT_HAPPEN, result=b"")
    record = doubted(called(EffectClass.QUERYABLE))

    step = resolve(record, specimens.resolve(record.ownership, verdict, effect_seen="charge"), NOW, NEXT_FENCE)

    assert step.answer == Refused(reason=Refusal.NO_PROOF, found=record)


def test_evidence_about_one_effect_never_settles_another() -> None:
    """Under one fence a late owner can end the doubt that was seen and begin another, about its next effect."""
    record = doubted(done(), SHIPPING)

    verb = specimens.resolve(record.ownership, HAPPENED, effect_seen="charge")
    step = resolve(record, verb, LAPSED, NEXT_FENCE)

    assert step.answer == Refused(reason=Refusal.MOVED_ON, found=record)
