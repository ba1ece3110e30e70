"""One external effect of an attempt: intent, call, checkpoint; or the checkpoint of an earlier attempt, uncalled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from nebis.core.answers import Intended, Refusal, Refused
from nebis.core.record import Effect, EffectClass, EffectVerdict, Record
from nebis.core.verbs import Checkpoint, Doubt, Intend
from nebis.errors import ClaimLost, EffectInDoubt, MisuseError, Rejected, ResultUnstorable, Retryable
from nebis.flow import Flow
from nebis.flows.ledger import Ledger
from nebis.flows.persist import send_owned
from nebis.flows.settle import DOUBT_CODE_CHANGED
from nebis.policy import Policy, microseconds
from nebis.ports.asks import CallEffect, Raised, Tell
from nebis.ports.observer import DoubtRaised, EffectIntended, EffectKnown, EffectReplayed

DOUBT_REJECTION_NOT_DEFINITE = "rejection-not-definite"
DOUBT_RECALL_OVER = "downstream-may-have-forgotten"
DOUBT_UNSTORABLE = "effect-result-unstorable"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectPlan:
    """What an effect is, apart from whether it happens."""

    name: str
    effect_class: EffectClass
    derived_key: str = field(repr=False)
    digest: bytes
    recall_us: int | None
    call: Callable[[Effect], Any]
    """Calls the downstream under the stored key; a coroutine function in the asyncio world."""
    encode: Callable[[Any], bytes]
    encode_rejection: Callable[[Exception], bytes]
    decode_rejection: Callable[[bytes], Rejected]


def run_effect(record: Record, policy: Policy, ledger: Ledger, plan: EffectPlan) -> Flow[bytes]:
    """Return the effect's result as stored bytes, calling the downstream only if no attempt knows it yet (E1).

    Raises `Rejected` as the downstream did, `EffectInDoubt` where nobody may go on, `ClaimLost` if another attempt
    owns the record; whatever else the call raises leaves the effect open, and `settle` decides by its class.
    """
    known = ledger.start(plan.name)
    is_known = False
    try:
        if known is not None and (known.digest, known.effect_class) != (plan.digest, plan.effect_class):
            raise (yield from _in_doubt(record, policy, DOUBT_CODE_CHANGED))
        if known is not None and not known.is_open:
            is_known = True
            yield from Tell(EffectReplayed(**_named(record, plan)))
            return _result(known, plan)
        effect = yield from _intend(record, policy, plan, is_again=known is not None)
        ledger.keep(effect)
        end = yield from CallEffect(plan.call, effect)
        if isinstance(end, Raised):
            if isinstance(end.error, Retryable):
                yield from _did_not_happen(record, policy, plan)
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


def _intend(record: Record, policy: Policy, plan: EffectPlan, *, is_again: bool) -> Flow[Effect]:
    """Write the intent durably before the call; the derived key that counts is the one stored first."""
    verb = Intend(
        ownership=record.ownership,
        name=plan.name,
        effect_class=plan.effect_class,
        derived_key=plan.derived_key,
        digest=plan.digest,
        recall_us=plan.recall_us,
        lease_us=max(policy.lease_us, microseconds(policy.effect_timeout) + policy.lease_us // 3),
        is_again=is_again,
    )
    answer = yield from send_owned(verb, policy.confirm.total_seconds())
    if isinstance(answer, Intended):
        yield from Tell(EffectIntended(**_named(record, plan)))
        return answer.effect
    assert isinstance(answer, Refused)
    if answer.reason is Refusal.CODE_CHANGED:
        raise (yield from _in_doubt(record, policy, DOUBT_CODE_CHANGED))
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
    verb = Checkpoint(ownership=record.ownership, name=plan.name, verdict=done.verdict, result=done.result)
    answer = yield from send_owned(verb, policy.confirm.total_seconds())
    if not isinstance(answer, Refused):
        yield from Tell(EffectKnown(**_named(record, plan), verdict=done.verdict))
        return
    if answer.reason is Refusal.NOT_DEFINITE:
        raise (yield from _in_doubt(record, policy, DOUBT_REJECTION_NOT_DEFINITE))
    raise ClaimLost(record.operation, answer.reason)


def _did_not_happen(record: Record, policy: Policy, plan: EffectPlan) -> Flow[None]:
    """Write down that the call failed before it could reach the downstream, if no earlier call can still land."""
    verb = Checkpoint(ownership=record.ownership, name=plan.name, verdict=EffectVerdict.DID_NOT_HAPPEN, result=b"")
    answer = yield from send_owned(verb, policy.confirm.total_seconds())
    if isinstance(answer, Refused) and answer.reason is not Refusal.NOT_DEFINITE:
        raise ClaimLost(record.operation, answer.reason)


def _in_doubt(record: Record, policy: Policy, reason: str) -> Flow[EffectInDoubt]:
    """Put the record in doubt and return what the handler is stopped with."""
    yield from stop_in_doubt(record, policy, reason)
    return EffectInDoubt(reason, operation_id=str(record.record_id))


def stop_in_doubt(record: Record, policy: Policy, reason: str) -> Flow[None]:
    """Put the record in doubt, under a reason that people can act on."""
    answer = yield from send_owned(Doubt(ownership=record.ownership, reason=reason), policy.confirm.total_seconds())
    if isinstance(answer, Refused):
        raise ClaimLost(record.operation, answer.reason)
    yield from Tell(DoubtRaised(operation=record.operation, operation_id=str(record.record_id), reason=reason))
