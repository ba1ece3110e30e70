"""How a record leaves doubt without its owner: by evidence, by a person, or at its deadline."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from nebis.core.answers import Kept, OwnerAnswer, Refusal
from nebis.core.owning import KEPT, KEPT_BEFORE, ended_with, is_definite, out_of_doubt
from nebis.core.record import Effect, EffectsMode, EffectVerdict, Fence, Record, State, name_of_voided
from nebis.core.step import Edge, Step, changed, refusal_of_state, refuse
from nebis.core.verbs import AbsenceProof, CallAgain, DidNotHappen, EffectKnown, Ended, Resolve


def resolve(record: Record | None, verb: Resolve, now: int, fence: Fence) -> Step[OwnerAnswer]:
    """Settle a record in doubt under a new fence, so that its old owner can no longer write."""
    if record is None:
        return refuse(None, Refusal.ABSENT)
    if record.record_id != verb.record_id:
        return refuse(record, Refusal.OTHER_LIFE)
    if record.nonce == verb.nonce:
        return Step(record=record, answer=KEPT_BEFORE, edge=Edge.RESOLVE_REPEATED)
    if record.state is not State.IN_DOUBT:
        return refuse(record, refusal_of_state(record))
    if record.fence != verb.fence_seen or record.open_effect_name != verb.effect_seen:
        # A late owner may have ended the doubt that the resolver saw and begun another: its fence is still the same.
        return refuse(record, Refusal.MOVED_ON)
    assert fence > record.fence  # I10
    settled = changed(record, fence=fence, nonce=verb.nonce)
    verdict = verb.verdict
    match verdict:
        case Ended():
            ended = ended_with(settled, verdict.outcome.kind, verdict.outcome.body, verb.retention, now)
            return Step(record=ended, answer=KEPT, edge=Edge.RESOLVED_ENDED)
        case EffectKnown():
            return _effect_known(record, settled, verdict, now)
        case DidNotHappen():
            return _did_not_happen(record, settled, verdict, now)
        case CallAgain():
            return _call_again(record, settled, now)
        case _:
            assert_never(verdict)


def _effect_known(record: Record, settled: Record, verdict: EffectKnown, now: int) -> Step[OwnerAnswer]:
    opened = record.open_effect
    if opened is None:
        return refuse(record, Refusal.EFFECT_NOT_OPEN)
    if verdict.verdict is EffectVerdict.DID_NOT_HAPPEN:
        return refuse(record, Refusal.NO_PROOF)
    if not is_definite(opened, verdict.verdict):
        return refuse(record, Refusal.NOT_DEFINITE)
    done = replace(opened, verdict=verdict.verdict, result=verdict.result)
    return _goes_on(settled, _replaced(settled, opened, done), now, Edge.RESOLVED_EFFECT_KNOWN)


def _did_not_happen(record: Record, settled: Record, verdict: DidNotHappen, now: int) -> Step[OwnerAnswer]:
    if verdict.proof is None:
        # "The bank shows nothing now" is no proof: the owner's call may still be on its way.
        return refuse(record, Refusal.NO_PROOF)
    effects = _without_the_open(settled, verdict.proof)
    if settled.is_undoing or not all(effect.is_voided for effect in effects):
        return _goes_on(settled, effects, now, Edge.RESOLVED_DID_NOT_HAPPEN_GOES_ON)
    available = changed(
        settled,
        state=State.AVAILABLE,
        is_dirty=False,
        doubt_since=None,
        doubt_reason=None,
        effects=effects,
        # The key stays usable for a whole window from now, however long the doubt lasted.
        expires_at=max(settled.expires_at, now + (settled.expires_at - settled.created_at)),
        forget_at=max(settled.forget_at, now + (settled.forget_at - settled.created_at)),
    )
    return Step(record=available, answer=KEPT, edge=Edge.RESOLVED_DID_NOT_HAPPEN_AVAILABLE)


def _without_the_open(settled: Record, proof: AbsenceProof) -> tuple[Effect, ...]:
    """Return what is left of the effects; a key that was burnt is remembered, since it is good for nothing any more."""
    effects: list[Effect] = []
    for effect in settled.effects:
        if effect.is_open and proof is AbsenceProof.VOIDED:
            name = name_of_voided(effect.purpose, settled.voided(effect.purpose) + 1)
            effects.append(replace(effect, name=name, verdict=EffectVerdict.DID_NOT_HAPPEN, result=b""))
        elif effect.is_voided or effect.verdict in (EffectVerdict.HAPPENED, EffectVerdict.REJECTED):
            effects.append(effect)
    return tuple(effects)


def _call_again(record: Record, settled: Record, now: int) -> Step[OwnerAnswer]:
    """Go on by calling the open effect again: for classes that may be, or after `recoveries-used-up`."""
    if record.mode is EffectsMode.OPAQUE or not settled.may_resume(now):
        return refuse(record, Refusal.NOT_RESUMABLE)
    effects = tuple(replace(effect, is_outstanding=True) if effect.is_open else effect for effect in settled.effects)
    return _goes_on(settled, effects, now, Edge.RESOLVED_CALL_AGAIN)


def _goes_on(settled: Record, effects: tuple[Effect, ...], now: int, edge: Edge) -> Step[OwnerAnswer]:
    going_on = out_of_doubt(settled, effects=effects, lease_until=now, recoveries=0)
    answer: Kept = KEPT
    return Step(record=going_on, answer=answer, edge=edge)


def _replaced(record: Record, old: Effect, new: Effect) -> tuple[Effect, ...]:
    return tuple(new if effect is old else effect for effect in record.effects)
