"""How a record comes to have an owner: `claim` by a request, `take_over` by a worker."""

from __future__ import annotations

from dataclasses import replace
from hmac import compare_digest
from typing import Final

from nebis.core.answers import (
    ClaimAnswer,
    Doubtful,
    GivenUp,
    Gone,
    Grant,
    Granted,
    Refusal,
    Reused,
    Running,
    TakeOverAnswer,
    Unreadable,
    make_replay,
)
from nebis.core.record import EffectsMode, EffectVerdict, Fence, Nonce, Record, State, make_record
from nebis.core.step import Edge, Step, changed, make_step, refusal_of_state, refuse
from nebis.core.verbs import Claim, ExpiredPolicy, TakeOver

DOUBT_LEASE_LAPSED = "owner-gone"
DOUBT_RECOVERIES_USED_UP = "recoveries-used-up"
DOUBT_UNDO_FAILED = "undo-failed"

# What every request asks for: to look up a member of an enum by name takes longer than all that is done with it.
_IN_PROGRESS: Final = State.IN_PROGRESS
_AVAILABLE: Final = State.AVAILABLE
_COMPLETED: Final = State.COMPLETED
_EXPIRED: Final = State.EXPIRED
_OPAQUE: Final = EffectsMode.OPAQUE
_REPLAY: Final = Edge.CLAIM_REPLAY


def first_life(claim: Claim, now: int, fence: Fence) -> Record:
    """Return the record that a granted claim begins. A store's own insert must write exactly this."""
    version, fingerprint = claim.fingerprints[0]
    terms = claim.terms
    expires_at = now + terms.retention.outcome_us
    forget_at = expires_at + terms.retention.metadata_us
    lease_until = now + terms.lease_us
    is_dirty = terms.mode is _OPAQUE
    attempts, recoveries, is_awaited = 1, 0, False
    completed_at = doubt_since = doubt_reason = rejection = outcome_kind = outcome = resource = None
    # By position, as the fields of a record stand: every new key comes through here.
    # fmt: off
    return make_record(
        claim.identity, claim.record_id, claim.tenant, terms.scope, terms.operation, claim.key, fingerprint, version,
        terms.mode, _IN_PROGRESS, fence, claim.nonce, lease_until, attempts, recoveries, is_dirty, is_awaited,
        now, completed_at, expires_at, forget_at, doubt_since, doubt_reason, rejection, outcome_kind,
        outcome, resource, claim.command, (),
    )
    # fmt: on


def claim(record: Record | None, verb: Claim, now: int, fence: Fence) -> Step[ClaimAnswer]:
    """Grant, replay or refuse, in one atomic act of the store (I6)."""
    if record is None:
        return _begin(verb, now, fence, Grant.NEW, Edge.CLAIM_NEW)
    if record.state is _IN_PROGRESS and record.nonce == verb.nonce:
        # The driver or the network repeated us: refusing would make a lone client conflict with itself (F014).
        return Step(record=record, answer=Granted(record=record, how=Grant.OWN), edge=Edge.CLAIM_OWN)
    over = _after_its_time(record, verb, now, fence)
    if over is not None:
        return over
    mismatch = compare(record, verb)
    if mismatch is not None:
        return mismatch
    if record.state is _COMPLETED:
        return make_step(record=record, answer=make_replay(record=record), edge=_REPLAY)
    match record.state:
        case State.IN_DOUBT:
            return Step(record=record, answer=Doubtful(record=record), edge=Edge.CLAIM_DOUBTFUL)
        case State.AVAILABLE:
            owned = _fresh_attempt(record, verb, now, fence)
            return Step(record=owned, answer=Granted(record=owned, how=Grant.AVAILABLE), edge=Edge.CLAIM_AVAILABLE)
        case _:
            assert record.state is State.IN_PROGRESS  # A tombstone was answered above.
            return _claim_running(record, verb, now, fence)


def _after_its_time(record: Record, verb: Claim, now: int, fence: Fence) -> Step[ClaimAnswer] | None:
    """Answer for a record that is only still there because nobody purged it: the window never depends on that."""
    # A tombstone stays one even if the clock steps back: there is no outcome left to replay (F055).
    is_over = record.state is _EXPIRED or (record.state is _COMPLETED and now >= record.expires_at)
    is_left = record.state is _AVAILABLE and now >= record.expires_at
    if not is_over and not is_left:
        return None
    # A late copy of the claim that began this very life may begin no other: record ids are never reused (I10).
    is_late_copy = record.record_id == verb.record_id
    if is_left:
        return None if is_late_copy else _begin(verb, now, fence, Grant.NEW, Edge.CLAIM_NEW_AFTER_AVAILABLE)
    if is_late_copy:
        return Step(record=record, answer=Gone(record=record), edge=Edge.CLAIM_GONE)
    if now >= record.forget_at:
        return _begin(verb, now, fence, Grant.NEW, Edge.CLAIM_NEW_AFTER_FORGOTTEN)
    if verb.when_expired is ExpiredPolicy.REFUSE:
        return Step(record=record, answer=Gone(record=record), edge=Edge.CLAIM_GONE)
    return _begin(verb, now, fence, Grant.RUN_AGAIN, Edge.CLAIM_RUN_AGAIN)


def _begin(verb: Claim, now: int, fence: Fence, how: Grant, edge: Edge) -> Step[ClaimAnswer]:
    record = first_life(verb, now, fence)
    return Step(record=record, answer=Granted(record=record, how=how), edge=edge)


def compare(record: Record, verb: Claim) -> Step[ClaimAnswer] | None:
    """Compare the command before looking at the state, so that misuse never hides behind a 409 (F105)."""
    for version, fingerprint in verb.fingerprints:
        if version == record.fingerprint_version:
            if compare_digest(fingerprint, record.fingerprint):
                return None
            return Step(record=record, answer=Reused(record=record), edge=Edge.CLAIM_REUSED)
    return Step(record=record, answer=Unreadable(record=record), edge=Edge.CLAIM_UNREADABLE)


def _claim_running(record: Record, verb: Claim, now: int, fence: Fence) -> Step[ClaimAnswer]:
    if not record.has_lapsed(now):
        left_us = record.lease_until - now
        if verb.will_wait and not record.is_awaited:
            marked = changed(record, is_awaited=True)
            return Step(
                record=marked, answer=Running(record=marked, lease_left_us=left_us), edge=Edge.CLAIM_RUNNING_AWAITED
            )
        return Step(record=record, answer=Running(record=record, lease_left_us=left_us), edge=Edge.CLAIM_RUNNING)
    if not record.is_dirty:
        owned = _fresh_attempt(record, verb, now, fence)
        return Step(record=owned, answer=Granted(record=owned, how=Grant.TAKEN_OVER), edge=Edge.CLAIM_TAKEN_OVER)
    if not record.may_resume(now):
        doubted = into_doubt(record, now, DOUBT_LEASE_LAPSED)
        return Step(record=doubted, answer=Doubtful(record=doubted), edge=Edge.CLAIM_DOUBTED)
    owned = _resumed(record, verb.nonce, now + verb.lease_us, fence)
    return Step(record=owned, answer=Granted(record=owned, how=Grant.RESUMED), edge=Edge.CLAIM_RESUMED)


def take_over(record: Record | None, verb: TakeOver, now: int, fence: Fence) -> Step[TakeOverAnswer]:
    """Give a lapsed record to one successor; a worker has no more rights here than a request (C6)."""
    if record is None:
        return refuse(None, Refusal.ABSENT)
    if record.record_id != verb.record_id:
        return refuse(record, Refusal.OTHER_LIFE)
    if record.state is not State.IN_PROGRESS:
        return refuse(record, refusal_of_state(record))
    if record.nonce == verb.nonce:
        return Step(record=record, answer=Granted(record=record, how=Grant.OWN), edge=Edge.TAKE_OVER_OWN)
    if record.fence != verb.fence_seen:
        return refuse(record, Refusal.MOVED_ON)
    if not record.has_lapsed(now):
        return refuse(record, Refusal.LEASE_LIVE)
    if not record.may_resume(now):
        doubted = into_doubt(record, now, DOUBT_LEASE_LAPSED)
        return Step(record=doubted, answer=Doubtful(record=doubted), edge=Edge.TAKE_OVER_DOUBTED)
    if record.recoveries >= verb.recoveries_limit:
        return _give_up(record, now)
    owned = _resumed(record, verb.nonce, now + verb.lease_us, fence)
    owned = changed(owned, recoveries=record.recoveries + 1)
    how, edge = (Grant.RESUMED, Edge.TAKE_OVER_RESUMED) if record.is_dirty else (Grant.TAKEN_OVER, Edge.TAKE_OVER_CLEAN)
    return Step(record=owned, answer=Granted(record=owned, how=how), edge=edge)


def _give_up(record: Record, now: int) -> Step[TakeOverAnswer]:
    """Stop a record that no attempt survives: a clean one goes back to its client, a dirty one to a person."""
    if record.is_dirty:
        reason = DOUBT_UNDO_FAILED if record.is_undoing else DOUBT_RECOVERIES_USED_UP
        doubted = into_doubt(record, now, reason)
        return Step(record=doubted, answer=Doubtful(record=doubted), edge=Edge.TAKE_OVER_GIVEN_UP_DIRTY)
    available = changed(record, state=State.AVAILABLE, is_awaited=False)
    return Step(record=available, answer=GivenUp(record=available), edge=Edge.TAKE_OVER_GIVEN_UP_CLEAN)


def into_doubt(record: Record, now: int, reason: str) -> Record:
    """Return the record in doubt. The fence stays: its owner may still hold the truth and complete."""
    return changed(record, state=State.IN_DOUBT, is_dirty=True, is_awaited=False, doubt_since=now, doubt_reason=reason)


def _fresh_attempt(record: Record, verb: Claim, now: int, fence: Fence) -> Record:
    """Return a clean record with a new owner, whose code may declare its effects differently than the last."""
    assert not record.is_dirty  # I9: only a clean record may start over.
    owned = _resumed(record, verb.nonce, now + verb.lease_us, fence)
    return changed(owned, mode=verb.mode, is_dirty=verb.mode is EffectsMode.OPAQUE)


def _resumed(record: Record, nonce: Nonce, lease_until: int, fence: Fence) -> Record:
    """Return the record under a new owner, whose higher fence makes every earlier attempt's write fail (I2)."""
    assert fence > record.fence  # I10: a fence that does not grow would let a zombie in.
    effects = tuple(
        replace(effect, is_outstanding=True) if effect.is_open else effect
        for effect in record.effects
        # Dropped only now, so that a late copy of the last owner's word cannot meet a new intent of the same name.
        if effect.verdict is not EffectVerdict.DID_NOT_HAPPEN or effect.is_voided
    )
    return changed(
        record,
        state=State.IN_PROGRESS,
        fence=fence,
        nonce=nonce,
        lease_until=lease_until,
        attempts=record.attempts + 1,
        is_awaited=False,
        effects=effects,
    )
