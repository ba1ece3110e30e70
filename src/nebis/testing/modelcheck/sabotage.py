"""The state machine with one mistake each, as a wrapper around the true one."""

from __future__ import annotations

from dataclasses import replace

from nebis.core.answers import Answer, Grant, Granted, Intended, Kept, Refused, Running
from nebis.core.record import Effect, EffectClass, EffectVerdict, Fence, Nonce, Record, State
from nebis.core.step import Edge, Step
from nebis.core.transitions import transition
from nebis.core.verbs import (
    AbsenceProof,
    Attach,
    Checkpoint,
    Claim,
    Complete,
    DidNotHappen,
    Doubt,
    Intend,
    Purge,
    Release,
    Renew,
    Resolve,
    Suspend,
    TakeOver,
    TurnBack,
    Verb,
    Withdraw,
)

OWNERS = (Renew, Intend, Checkpoint, Complete, Suspend, Release, Withdraw, Doubt, TurnBack, Attach)


def blind_takeover(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Resume what may have happened already."""
    step = transition(record, verb, now, fence)
    if record is None or step.edge not in (Edge.CLAIM_DOUBTED, Edge.TAKE_OVER_DOUBTED):
        return step
    assert isinstance(verb, Claim | TakeOver)
    effects = tuple(effect for effect in record.effects if not effect.is_open)
    owned = replace(record, fence=fence, nonce=verb.nonce, lease_until=now + verb.lease_us, effects=effects)
    return Step(record=owned, answer=Granted(record=owned, how=Grant.RESUMED), edge=Edge.CLAIM_RESUMED)


def no_intent_mark(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Allow a call without writing anything down."""
    if isinstance(verb, Checkpoint) and record is not None and record.effect(verb.name) is None:
        owned = transition(record, Renew(ownership=verb.ownership, lease_us=1), now, fence)
        if isinstance(owned.answer, Refused):
            return owned
        done = _opaque(verb.name, record, verb.verdict, verb.result)
        return Step(record=replace(record, effects=(*record.effects, done)), answer=Kept(), edge=Edge.CHECKPOINTED)
    step = transition(record, verb, now, fence)
    return replace(step, record=record) if isinstance(verb, Intend) else step


def unguarded_intent(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Allow a call to whoever asks."""
    step = transition(record, verb, now, fence)
    if isinstance(verb, Intend) and isinstance(step.answer, Refused) and record is not None:
        return Step(record=record, answer=Intended(effect=_opaque(verb.name, record)), edge=Edge.INTENDED)
    return step


def _opaque(name: str, record: Record, verdict: EffectVerdict | None = None, result: bytes | None = None) -> Effect:
    return Effect(
        name=name,
        effect_class=EffectClass.OPAQUE,
        derived_key=chr(record.record_id.int),
        digest=b"",
        is_outstanding=False,
        recall_until=None,
        verdict=verdict,
        result=result,
    )


def release_when_dirty(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Give a key back although something may have happened."""
    if isinstance(verb, Release) and record is not None and record.ownership == verb.ownership:
        record = replace(record, is_dirty=False, effects=())
    return transition(record, verb, now, fence)


def purge_of_anything(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Remove rows by their age alone."""
    if isinstance(verb, Purge):
        return Step(record=None, answer=Kept(), edge=Edge.PURGED)
    return transition(record, verb, now, fence)


def takeover_leaves_nothing_outstanding(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Forget that the earlier owner's call may still land."""
    step = transition(record, verb, now, fence)
    if isinstance(step.answer, Granted) and step.record is not None:
        effects = tuple(replace(effect, is_outstanding=False) for effect in step.record.effects)
        owned = replace(step.record, effects=effects)
        return Step(record=owned, answer=replace(step.answer, record=owned), edge=step.edge)
    return step


def own_timeout_ignored(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Forget that the owner's own first call may still land."""
    if isinstance(verb, Intend):
        verb = replace(verb, is_again=False)
    return transition(record, verb, now, fence)


def one_call_speaks_for_all(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Take a call that never left for a proof about an earlier owner's call."""
    if isinstance(verb, Checkpoint) and verb.verdict is EffectVerdict.DID_NOT_HAPPEN and record is not None:
        record = replace(record, effects=tuple(replace(effect, is_outstanding=False) for effect in record.effects))
    return transition(record, verb, now, fence)


def fenced_called_again(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Allow a fenced effect to be called again by the owner whose own call may still land."""
    if isinstance(verb, Intend) and verb.is_again and record is not None:
        record = replace(record, effects=tuple(replace(effect, is_outstanding=True) for effect in record.effects))
        verb = replace(verb, is_again=False)
    return transition(record, verb, now, fence)


def complete_overwrites(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Let the last writer win."""
    if isinstance(verb, Complete) and record is not None and record.state is State.COMPLETED:
        kind, body = verb.outcome.kind, verb.outcome.body
        return Step(record=replace(record, outcome_kind=kind, outcome=body), answer=Kept(), edge=Edge.COMPLETED)
    return transition(record, verb, now, fence)


def complete_without_fence(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Accept an outcome from any owner that this life ever had."""
    if isinstance(verb, Complete) and record is not None and record.state in (State.IN_PROGRESS, State.IN_DOUBT):
        current = replace(verb.ownership, fence=record.fence, nonce=record.nonce)
        verb = replace(verb, ownership=current)
    return transition(record, verb, now, fence)


def fences_start_over(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Count fences per row, from one, and compare nothing else."""
    begins = record is None or record.state in (State.COMPLETED, State.EXPIRED)
    fence = Fence(1 if record is None or begins else record.fence + 1)
    if isinstance(verb, OWNERS) and record is not None and record.fence == verb.ownership.fence:
        verb = replace(verb, ownership=record.ownership)
    return transition(record, verb, now, fence)


def guard_is_the_state(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Accept an owner's write from anybody while the state allows it."""
    if isinstance(verb, OWNERS) and record is not None:
        verb = replace(verb, ownership=record.ownership)
    return transition(record, verb, now, fence)


def guard_without_record_id(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Compare fence and nonce, but not which life they belong to."""
    if isinstance(verb, OWNERS) and record is not None:
        verb = replace(verb, ownership=replace(verb.ownership, record_id=record.record_id))
    return transition(record, verb, now, fence)


def absence_needs_no_proof(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Take "the bank shows nothing now" for a proof (F065)."""
    if isinstance(verb, Resolve) and isinstance(verb.verdict, DidNotHappen):
        verb = replace(verb, verdict=DidNotHappen(proof=AbsenceProof.SETTLED))
    return transition(record, verb, now, fence)


def evidence_about_anything(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Apply evidence to whatever effect is open by the time that it arrives."""
    if isinstance(verb, Resolve) and record is not None:
        opened = record.open_effect
        verb = replace(verb, effect_seen=None if opened is None else opened.name)
    return transition(record, verb, now, fence)


def resolve_keeps_owner(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Settle a doubt without a new fence."""
    step = transition(record, verb, now, fence)
    if isinstance(verb, Resolve) and record is not None and step.record is not None:
        return replace(step, record=replace(step.record, fence=record.fence, nonce=record.nonce))
    return step


def recall_never_ends(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Trust the downstream's memory for ever."""
    if record is not None:
        record = replace(record, effects=tuple(replace(effect, recall_until=None) for effect in record.effects))
    return transition(record, verb, now, fence)


def any_command(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Replay to whoever knows the key (I5)."""
    if isinstance(verb, Claim) and record is not None:
        verb = replace(verb, fingerprints=((record.fingerprint_version, record.fingerprint),))
    return transition(record, verb, now, fence)


def own_claim_not_recognised(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:
    """Take one's own claim for somebody else's (F014)."""
    if isinstance(verb, Claim) and record is not None and record.nonce == verb.nonce:
        step = transition(replace(record, nonce=Nonce(b"somebody else")), verb, now, fence)
        if isinstance(step.answer, Running):
            return Step(record=record, answer=replace(step.answer, record=record), edge=step.edge)
        if step.edge in (Edge.CLAIM_DOUBTED, Edge.CLAIM_DOUBTFUL, Edge.CLAIM_REPLAY):
            return transition(record, replace(verb, nonce=Nonce(b"somebody else")), now, fence)
        return step
    return transition(record, verb, now, fence)
