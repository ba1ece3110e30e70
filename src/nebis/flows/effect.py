"""One external effect of an attempt: intent, call, checkpoint; or the checkpoint of an earlier attempt, uncalled."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

from nebis.core.answers import Intended, Refusal, Refused
from nebis.core.record import Effect, EffectClass, EffectVerdict, Record
from nebis.core.verbs import Checkpoint, Doubt, Intend
from nebis.errors import ClaimLost, DeadlinePassed, EffectInDoubt, MisuseError, Rejected, ResultUnstorable, Retryable
from nebis.flow import Flow
from nebis.flows.late import keep_late
from nebis.flows.ledger import Ledger
from nebis.flows.persist import send_owned
from nebis.flows.plan import EffectPlan
from nebis.flows.settle import DOUBT_CODE_CHANGED
from nebis.policy import Policy
from nebis.ports.asks import CallEffect, Elapsed, Raised, Tell
from nebis.ports.observer import DoubtRaised, EffectIntended, EffectKnown, EffectReplayed

DOUBT_REJECTION_NOT_DEFINITE = "rejection-not-definite"
DOUBT_RECALL_OVER = "downstream-may-have-forgotten"
DOUBT_UNSTORABLE = "effect-result-unstorable"


def run_effect(record: Record, policy: Policy, ledger: Ledger, plan: EffectPlan) -> Flow[bytes]:
    """Return the effect's result as stored bytes, calling the downstream only if no attempt knows it yet (E1).

    Raises `Rejected` as the downstream did, `EffectInDoubt` where nobody may go on, `ClaimLost` if another attempt
    owns the record, `DeadlinePassed` if it may not begin any more. `Retryable` says that this call never left, so that
    the handler may ask again, under the same key; whatever else the call raises leaves the effect open, and its class
    decides who may ask again.
    """
    known = ledger.start(plan.name)
    is_known = False
    try:
        if is_changed(ledger, known, plan):
            raise (yield from _in_doubt(record, policy, DOUBT_CODE_CHANGED))
        if known is not None and not known.is_open:
            is_known = True
            yield from Tell(EffectReplayed(**_named(record, plan)))
            return _result(known, plan)
        yield from require_time(record, plan)
        name = ledger.stored_name(plan.name)
        effect = yield from _intend(record, policy, plan, name, is_again=ledger.has_called(plan.name))
        ledger.calls(effect)
        end = yield from CallEffect(plan.call, effect, timeout_seconds(policy, plan))
        if isinstance(end, Raised):
            if isinstance(end.error, Retryable) and (yield from _did_not_happen(record, policy, effect)):
                ledger.never_left(plan.name)
            if not isinstance(end.error, Rejected):
                raise end.error
            done = replace(effect, verdict=EffectVerdict.REJECTED, result=plan.encode_rejection(end.error))
        else:
            stored = yield from _encoded(record, policy, plan, end.value)
            done = replace(effect, verdict=EffectVerdict.HAPPENED, result=stored)
        yield from _checkpoint(record, policy, plan, done)
        ledger.keep(done)
        is_known = True
        return _result(done, plan)
    finally:
        ledger.end(is_known=is_known)


def is_changed(ledger: Ledger, known: Effect | None, plan: EffectPlan) -> bool:
    """Tell whether the code that runs now is not that of the attempts before it (E4)."""
    if known is None:
        return ledger.misses(plan.name)
    return (known.digest, known.effect_class) != (plan.digest, plan.effect_class)


def require_time(record: Record, plan: EffectPlan) -> Flow[None]:
    """Refuse to begin anything for which nobody waits any more; what has begun goes on to its end (C7)."""
    if plan.deadline is not None and (yield from Elapsed()) >= plan.deadline.at_seconds:
        raise DeadlinePassed(record.operation)


def timeout_seconds(policy: Policy, plan: EffectPlan) -> float:
    """Return how long to wait for the downstream's answer."""
    return policy.effect_timeout.total_seconds() if plan.timeout_seconds is None else plan.timeout_seconds


class _Named(TypedDict):
    operation: str
    operation_id: str
    effect: str


def _named(record: Record, plan: EffectPlan) -> _Named:
    return {"operation": record.operation, "operation_id": str(record.record_id), "effect": plan.name}


def _result(known: Effect, plan: EffectPlan) -> bytes:
    assert known.result is not None
    if known.verdict is EffectVerdict.REJECTED:
        raise plan.decode_rejection(known.result)
    return known.result


def _encoded(record: Record, policy: Policy, plan: EffectPlan, value: object) -> Flow[bytes]:
    try:
        return plan.encode(value)
    except ResultUnstorable as error:
        # It happened and cannot be remembered: calling again is the one thing that must not follow.
        raise (yield from _in_doubt(record, policy, DOUBT_UNSTORABLE)) from error


def _intend(record: Record, policy: Policy, plan: EffectPlan, name: str, *, is_again: bool) -> Flow[Effect]:
    """Write the intent durably before the call; the derived key that counts is the one stored first."""
    verb = Intend(
        ownership=record.ownership,
        name=name,
        effect_class=plan.effect_class,
        derived_key=plan.derived_key,
        digest=plan.digest,
        recall_us=plan.recall_us,
        lease_us=max(policy.lease_us, int(timeout_seconds(policy, plan) * 1_000_000) + policy.lease_us // 3),
        is_again=is_again,
    )
    answer = yield from send_owned(verb, policy.confirm_seconds)
    if isinstance(answer, Intended):
        yield from Tell(EffectIntended(**_named(record, plan)))
        return answer.effect
    assert isinstance(answer, Refused)
    if answer.reason is Refusal.CODE_CHANGED:
        raise (yield from _in_doubt(record, policy, DOUBT_CODE_CHANGED))
    if is_again and plan.effect_class is EffectClass.FENCED and answer.reason is Refusal.NOT_RESUMABLE:
        raise MisuseError(
            f"The fenced effect {plan.name!r} was already called by this attempt; only the next one, with a higher "
            "fence, may call it again. Let the exception end the attempt."
        )
    if answer.reason in (Refusal.RECALL_OVER, Refusal.NOT_RESUMABLE):
        raise (yield from _in_doubt(record, policy, DOUBT_RECALL_OVER))
    if answer.reason is Refusal.NOT_DECLARED:
        raise MisuseError("attempt.effect needs an operation with effects=Declared.")
    if answer.reason in (Refusal.EFFECT_OPEN, Refusal.NAME_USED, Refusal.NOT_UNDOING, Refusal.UNDOING):
        raise MisuseError(f"The effect {plan.name!r} cannot start now ({answer.reason}).")
    raise ClaimLost(record.operation, answer.reason)


def _checkpoint(record: Record, policy: Policy, plan: EffectPlan, done: Effect) -> Flow[None]:
    assert done.verdict is not None
    assert done.result is not None
    verb = Checkpoint(ownership=record.ownership, name=done.name, verdict=done.verdict, result=done.result)
    answer = yield from send_owned(verb, policy.confirm_seconds)
    if not isinstance(answer, Refused):
        yield from Tell(EffectKnown(**_named(record, plan), verdict=done.verdict))
        return
    if answer.reason is Refusal.NOT_DEFINITE:
        raise (yield from _in_doubt(record, policy, DOUBT_REJECTION_NOT_DEFINITE))
    yield from keep_late(record, policy, verb, answer)
    raise ClaimLost(record.operation, answer.reason)


def _did_not_happen(record: Record, policy: Policy, effect: Effect) -> Flow[bool]:
    """Write down that the call failed before it could reach the downstream; False if an earlier one can still land."""
    verb = Checkpoint(ownership=record.ownership, name=effect.name, verdict=EffectVerdict.DID_NOT_HAPPEN, result=b"")
    answer = yield from send_owned(verb, policy.confirm_seconds)
    if isinstance(answer, Refused) and answer.reason is not Refusal.NOT_DEFINITE:
        raise ClaimLost(record.operation, answer.reason)
    return not isinstance(answer, Refused)


def _in_doubt(record: Record, policy: Policy, reason: str) -> Flow[EffectInDoubt]:
    """Put the record in doubt and return what the handler is stopped with."""
    yield from stop_in_doubt(record, policy, reason)
    return EffectInDoubt(reason, operation_id=str(record.record_id))


def stop_in_doubt(record: Record, policy: Policy, reason: str) -> Flow[None]:
    """Put the record in doubt, under a reason that people can act on."""
    answer = yield from send_owned(Doubt(ownership=record.ownership, reason=reason), policy.confirm_seconds)
    if isinstance(answer, Refused):
        raise ClaimLost(record.operation, answer.reason)
    yield from Tell(DoubtRaised(operation=record.operation, operation_id=str(record.record_id), reason=reason))
