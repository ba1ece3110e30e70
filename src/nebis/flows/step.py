"""One local step of an attempt: its rows and its checkpoint in one guarded transaction, between external effects."""

from __future__ import annotations

from dataclasses import replace

from nebis.core.record import Effect, EffectClass, EffectVerdict, Record
from nebis.errors import EffectInDoubt
from nebis.flow import Flow
from nebis.flows.effect import is_changed, require_time, stop_in_doubt
from nebis.flows.guarded import begin_guarded, commit_step, leave_guarded
from nebis.flows.ledger import Ledger
from nebis.flows.plan import EffectPlan
from nebis.flows.settle import DOUBT_CODE_CHANGED
from nebis.policy import Policy
from nebis.ports.asks import CallEffect, Raised, Tell
from nebis.ports.observer import EffectReplayed


def run_step(record: Record, policy: Policy, ledger: Ledger, plan: EffectPlan) -> Flow[bytes]:
    """Return the step's result as stored bytes, running it only if no attempt committed it yet (E4).

    The checkpoint commits with the rows, so the step needs no intent: either both are there or neither. Whatever the
    call raises rolls it back and goes on to the handler.
    """
    known = ledger.start(plan.name)
    is_known = False
    try:
        if is_changed(ledger, known, plan):
            yield from stop_in_doubt(record, policy, DOUBT_CODE_CHANGED)
            raise EffectInDoubt(DOUBT_CODE_CHANGED, operation_id=str(record.record_id))
        if known is not None and known.result is not None:
            is_known = True
            yield from Tell(
                EffectReplayed(operation=record.operation, operation_id=str(record.record_id), effect=plan.name)
            )
            return known.result
        yield from require_time(record, plan)
        yield from begin_guarded(record, policy)
        step = Effect(
            name=plan.name,
            effect_class=EffectClass.TRANSACTIONAL,
            derived_key="",
            digest=plan.digest,
            is_outstanding=False,
            recall_until=None,
        )
        end = yield from CallEffect(plan.call, step, is_local=True)
        if isinstance(end, Raised):
            yield from leave_guarded(record, policy)
            raise end.error
        result = yield from _encoded(record, policy, plan, end.value)
        done = replace(step, verdict=EffectVerdict.HAPPENED, result=result)
        yield from commit_step(record, policy, done)
        ledger.keep(done)
        is_known = True
        return result
    finally:
        ledger.end(is_known=is_known)


def _encoded(record: Record, policy: Policy, plan: EffectPlan, value: object) -> Flow[bytes]:
    try:
        return plan.encode(value)
    except BaseException:
        # Nothing is committed yet, so an unstorable result is only an exception of the handler.
        yield from leave_guarded(record, policy)
        raise
