"""What an owner may write. Each verb shows (record id, fence, nonce), and each is safe to send twice or late."""

from __future__ import annotations

from dataclasses import replace

from nebis.core.answers import Intended, Kept, OwnerAnswer, Refusal, Refused
from nebis.core.claiming import into_doubt
from nebis.core.record import (
    UNDO_PREFIX,
    Effect,
    EffectClass,
    EffectsMode,
    EffectVerdict,
    OutcomeKind,
    Ownership,
    Record,
    Retention,
    State,
)
from nebis.core.step import Edge, Step, changed, refusal_of_state, refuse
from nebis.core.verbs import (
    Attach,
    Checkpoint,
    Complete,
    Doubt,
    Intend,
    Release,
    Renew,
    Suspend,
    TurnBack,
    Withdraw,
)

KEPT = Kept()
KEPT_BEFORE = Kept(is_repeated=True)
UNKNOWN_FORGET_FACTOR = 10
"""A tombstone of an unproved outcome is kept this much longer: somebody will ask about it."""


def _kept(record: Record | None, edge: Edge) -> Step[OwnerAnswer]:
    return Step(record=record, answer=KEPT, edge=edge)


def _kept_before(record: Record | None, edge: Edge) -> Step[OwnerAnswer]:
    return Step(record=record, answer=KEPT_BEFORE, edge=edge)


def _owned(record: Record | None, ownership: Ownership, *states: State) -> Record | Step[Refused]:
    """Return the record if this is its newest owner (I2) and its state is one of those; otherwise the refusal.

    The fence alone would accept a zombie after a purge, the nonce alone could not order writes downstream: all three.
    """
    if record is None:
        return refuse(None, Refusal.ABSENT)
    if record.record_id != ownership.record_id:
        return refuse(record, Refusal.OTHER_LIFE)
    if record.fence != ownership.fence or record.nonce != ownership.nonce:
        return refuse(record, Refusal.FENCED)
    if record.state not in states:
        return refuse(record, refusal_of_state(record))
    return record


def renew(found: Record | None, verb: Renew, now: int) -> Step[OwnerAnswer]:
    """Prolong the lease, even one that already passed if nobody took over."""
    record = _owned(found, verb.ownership, State.IN_PROGRESS)
    if isinstance(record, Step):
        return record
    return _kept(changed(record, lease_until=max(record.lease_until, now + verb.lease_us)), Edge.RENEWED)


def intend(found: Record | None, verb: Intend, now: int) -> Step[OwnerAnswer]:
    """Open an effect durably before it is called, or allow the open one to be called again."""
    record = _owned(found, verb.ownership, State.IN_PROGRESS)
    if isinstance(record, Step):
        return record
    out_of_place = _out_of_place(record, verb.name)
    if out_of_place is not None:
        return refuse(record, out_of_place)
    known = record.effect(verb.name)
    if known is not None:
        return _intend_known(record, known, verb, now)
    if record.open_effect is not None:
        return refuse(record, Refusal.EFFECT_OPEN)
    effect = Effect(
        name=verb.name,
        effect_class=verb.effect_class,
        derived_key=verb.derived_key,
        digest=verb.digest,
        is_outstanding=verb.is_again,
        recall_until=None if verb.recall_us is None else now + verb.recall_us,
    )
    opened = changed(
        record,
        is_dirty=True,
        effects=(*record.effects, effect),
        lease_until=max(record.lease_until, now + verb.lease_us),
    )
    return Step(record=opened, answer=Intended(effect=effect), edge=Edge.INTENDED)


def _out_of_place(record: Record, name: str) -> Refusal | None:
    """Tell why an effect of that name may not happen now at all."""
    if record.mode is not EffectsMode.DECLARED:
        return Refusal.NOT_DECLARED
    if record.is_undoing is name.startswith(UNDO_PREFIX):
        return None
    return Refusal.UNDOING if record.is_undoing else Refusal.NOT_UNDOING


def _intend_known(record: Record, known: Effect, verb: Intend, now: int) -> Step[OwnerAnswer]:
    if known.digest != verb.digest or known.effect_class is not verb.effect_class:
        return refuse(record, Refusal.CODE_CHANGED)
    if not known.is_open:
        return refuse(record, Refusal.NAME_USED)
    if not (verb.is_again or known.is_outstanding):
        return Step(record=record, answer=Intended(effect=known, is_repeated=True), edge=Edge.INTENDED_REPEATED)
    if not known.effect_class.may_be_called_again or (verb.is_again and known.effect_class is EffectClass.FENCED):
        # Fenced: the own earlier call carries this very fence, so a rejection now could not stop it from landing later.
        return refuse(record, Refusal.NOT_RESUMABLE)
    if not known.may_be_called_again(now):
        return refuse(record, Refusal.RECALL_OVER)
    again = replace(known, is_outstanding=True)
    reopened = changed(record, effects=_with(record, again), lease_until=max(record.lease_until, now + verb.lease_us))
    return Step(record=reopened, answer=Intended(effect=again), edge=Edge.INTENDED_AGAIN)


def checkpoint(found: Record | None, verb: Checkpoint) -> Step[OwnerAnswer]:
    """Store how an effect ended; a late owner in doubt may still do so and ends the doubt."""
    record = _owned(found, verb.ownership, State.IN_PROGRESS, State.IN_DOUBT)
    if isinstance(record, Step):
        return record
    known = record.effect(verb.name)
    if known is None:
        return _checkpoint_local(record, verb)
    if not known.is_open:
        if (known.verdict, known.result) == (verb.verdict, verb.result):
            return _kept_before(record, Edge.CHECKPOINT_REPEATED)
        return refuse(record, Refusal.NAME_USED)
    if not is_definite(known, verb.verdict):
        return refuse(record, Refusal.NOT_DEFINITE)
    effects = _with(record, replace(known, verdict=verb.verdict, result=verb.result))
    is_dirty = record.is_undoing or any(effect.verdict is not EffectVerdict.DID_NOT_HAPPEN for effect in effects)
    edge = Edge.CHECKPOINTED if is_dirty else Edge.CHECKPOINTED_CLEAN
    if record.state is State.IN_PROGRESS:
        return _kept(changed(record, effects=effects, is_dirty=is_dirty), edge)
    return _kept(out_of_doubt(record, effects=effects, is_dirty=is_dirty), Edge.CHECKPOINTED_FROM_DOUBT)


def is_definite(effect: Effect, verdict: EffectVerdict) -> bool:
    """Tell whether a downstream's word is the last one.

    A downstream that forgets rejections may say no to this call and yes to an earlier one that is still under way
    (F063).
    """
    if not effect.is_outstanding or verdict is EffectVerdict.HAPPENED:
        return True
    # That this call did not happen says nothing about an earlier one.
    return verdict is EffectVerdict.REJECTED and effect.effect_class is not EffectClass.SUCCESS_ONLY


def _checkpoint_local(record: Record, verb: Checkpoint) -> Step[OwnerAnswer]:
    """Store a local step whose rows commit with this very write, so that it needs no intent."""
    is_done = verb.verdict is not EffectVerdict.DID_NOT_HAPPEN
    if verb.transactional_digest is None or record.state is State.IN_DOUBT or not is_done:
        return refuse(record, Refusal.EFFECT_NOT_OPEN)
    out_of_place = _out_of_place(record, verb.name)
    if out_of_place is not None:
        return refuse(record, out_of_place)
    if record.open_effect is not None:
        return refuse(record, Refusal.EFFECT_OPEN)
    step = Effect(
        name=verb.name,
        effect_class=EffectClass.TRANSACTIONAL,
        derived_key="",
        digest=verb.transactional_digest,
        is_outstanding=False,
        recall_until=None,
        verdict=verb.verdict,
        result=verb.result,
    )
    # Dirty: rows are committed, so the claim can no longer be withdrawn or given back as if nothing happened.
    return _kept(changed(record, is_dirty=True, effects=(*record.effects, step)), Edge.CHECKPOINTED_LOCAL)


def complete(found: Record | None, verb: Complete, now: int) -> Step[OwnerAnswer]:
    """Store the one outcome (I1). The lease is not asked: a late owner that nobody fenced holds the truth."""
    record = _owned(found, verb.ownership, State.IN_PROGRESS, State.IN_DOUBT, State.COMPLETED)
    if isinstance(record, Step):
        return record
    if record.state is State.COMPLETED:
        return _kept_before(record, Edge.COMPLETE_REPEATED)
    if record.open_effect is not None:
        return refuse(record, Refusal.EFFECT_OPEN)
    if record.is_undoing and verb.outcome.kind is not OutcomeKind.REJECTED:
        return refuse(record, Refusal.UNDOING)
    edge = Edge.COMPLETED if record.state is State.IN_PROGRESS else Edge.COMPLETED_FROM_DOUBT
    ended = ended_with(record, verb.outcome.kind, verb.outcome.body, verb.retention, now)
    return _kept(ended if verb.resource is None else changed(ended, resource=verb.resource), edge)


def ended_with(record: Record, kind: OutcomeKind, body: bytes, retention: Retention, now: int) -> Record:
    """Return the completed record; its window begins now and never ends earlier than was promised before."""
    expires_at = max(record.expires_at, now + retention.outcome_us)
    factor = UNKNOWN_FORGET_FACTOR if kind is OutcomeKind.UNKNOWN else 1
    return changed(
        record,
        state=State.COMPLETED,
        is_dirty=False,
        is_awaited=False,
        completed_at=now,
        expires_at=expires_at,
        forget_at=max(record.forget_at, expires_at + factor * retention.metadata_us),
        doubt_since=None,
        doubt_reason=None,
        rejection=None,
        outcome_kind=kind,
        outcome=body,
        command=None,
    )


def out_of_doubt(record: Record, **changes: object) -> Record:
    """Return the record in progress without a living owner's lease: whoever comes next may go on at once."""
    return changed(record, state=State.IN_PROGRESS, doubt_since=None, doubt_reason=None, **changes)


def suspend(found: Record | None, verb: Suspend, now: int) -> Step[OwnerAnswer]:
    """Let a successor go on at once; only where going on cannot make an effect twice."""
    record = _owned(found, verb.ownership, State.IN_PROGRESS)
    if isinstance(record, Step):
        return record
    if not record.is_dirty:
        return refuse(record, Refusal.CLEAN)
    if not record.may_resume(now):
        return refuse(record, Refusal.NOT_RESUMABLE)
    effects = tuple(replace(effect, is_outstanding=True) if effect.is_open else effect for effect in record.effects)
    suspended = changed(
        record,
        lease_until=min(record.lease_until, now),
        is_awaited=False,
        effects=effects,
        resource=verb.resource or record.resource,
    )
    return _kept(suspended, Edge.SUSPENDED)


def release(found: Record | None, verb: Release) -> Step[OwnerAnswer]:
    """Give the key back. Never when dirty, not even from an exception handler (F076)."""
    record = _owned(found, verb.ownership, State.IN_PROGRESS, State.AVAILABLE)
    if isinstance(record, Step):
        return record
    if record.state is State.AVAILABLE:
        return _kept_before(record, Edge.RELEASE_REPEATED)
    if record.is_undoing:
        return refuse(record, Refusal.UNDOING)
    if record.is_dirty and not _is_taken_at_its_word(record, verb):
        return refuse(record, Refusal.DIRTY)
    return _kept(changed(record, state=State.AVAILABLE, is_dirty=False, is_awaited=False), Edge.RELEASED)


def _is_taken_at_its_word(record: Record, verb: Release | Withdraw) -> bool:
    """Tell whether a dirty record may be given back: only what was declared can prove an opaque handler wrong."""
    return verb.nothing_happened and record.mode is EffectsMode.OPAQUE


def withdraw(found: Record | None, verb: Withdraw) -> Step[OwnerAnswer]:
    """Forget the claim, so that a corrected command may use the key."""
    if found is None:
        return _kept_before(None, Edge.WITHDRAW_REPEATED)
    record = _owned(found, verb.ownership, State.IN_PROGRESS)
    if isinstance(record, Step):
        return record
    if record.is_undoing:
        return refuse(record, Refusal.UNDOING)
    if record.is_dirty and not _is_taken_at_its_word(record, verb):
        return refuse(record, Refusal.DIRTY)
    return _kept(None, Edge.WITHDRAWN)


def doubt(found: Record | None, verb: Doubt, now: int) -> Step[OwnerAnswer]:
    """Say that nobody can tell. The owner knows best, so even a clean record may be put in doubt by it."""
    record = _owned(found, verb.ownership, State.IN_PROGRESS, State.IN_DOUBT)
    if isinstance(record, Step):
        return record
    if record.state is State.IN_DOUBT:
        return _kept_before(record, Edge.DOUBT_REPEATED)
    return _kept(into_doubt(record, now, verb.reason), Edge.DOUBTED)


def turn_back(found: Record | None, verb: TurnBack) -> Step[OwnerAnswer]:
    """Keep the rejection and begin to undo; the handler is never called again for this record."""
    record = _owned(found, verb.ownership, State.IN_PROGRESS)
    if isinstance(record, Step):
        return record
    if record.is_undoing:
        return _kept_before(record, Edge.TURN_BACK_REPEATED)
    if record.mode is not EffectsMode.DECLARED:
        return refuse(record, Refusal.NOT_DECLARED)
    if record.open_effect is not None:
        # An ambiguous step is settled first: nobody can undo what may still happen.
        return refuse(record, Refusal.EFFECT_OPEN)
    return _kept(changed(record, rejection=verb.rejection), Edge.TURNED_BACK)


def attach(found: Record | None, verb: Attach, now: int) -> Step[OwnerAnswer]:
    """Name the resource, or prolong the retention; never shorten it."""
    record = _owned(found, verb.ownership, State.IN_PROGRESS)
    if isinstance(record, Step):
        return record
    expires_at, forget_at = record.expires_at, record.forget_at
    if verb.retention is not None:
        expires_at = max(expires_at, now + verb.retention.outcome_us)
        forget_at = max(forget_at, expires_at + verb.retention.metadata_us)
    attached = changed(record, resource=verb.resource or record.resource, expires_at=expires_at, forget_at=forget_at)
    return _kept(attached, Edge.ATTACHED)


def _with(record: Record, effect: Effect) -> tuple[Effect, ...]:
    return tuple(effect if known.name == effect.name else known for known in record.effects)
