"""Undo what a rejected operation did, newest first; its handler is never called again for this record."""

from __future__ import annotations

from dataclasses import replace

from nebis.core.answers import Refused
from nebis.core.claiming import DOUBT_UNDO_FAILED
from nebis.core.record import Effect, EffectClass, EffectVerdict, Outcome, OutcomeKind, Record
from nebis.core.verbs import TurnBack
from nebis.errors import EffectInDoubt, RecordCorrupt, Rejected
from nebis.flow import Flow
from nebis.flows.effect import run_effect
from nebis.flows.ledger import Ledger
from nebis.flows.persist import send_owned
from nebis.flows.request import Disposition, Ending, Failed, Request
from nebis.flows.settle import DOUBT_CODE_CHANGED, classified, complete, doubt, left_open, lost, settle, suspend
from nebis.flows.step import run_step
from nebis.flows.welcome import leave
from nebis.ports.asks import Raised, Returned, Settled, Tell
from nebis.ports.observer import TurnedBack


def conclude(request: Request, record: Record, end: Returned[object] | Raised | Settled) -> Flow[Ending]:
    """End an attempt as its handler did; undo first what a rejected one did and the operation can undo."""
    if isinstance(end, Raised):
        ending = yield from _conclude_raised(request, record, end)
    else:
        ending = yield from settle(request, record, end)
    if request.seats:
        yield from leave(request, record)
    return ending


def _conclude_raised(request: Request, record: Record, end: Raised) -> Flow[Ending]:
    if end.never_asked is None and left_open(end) is None:
        names = tuple(effect.purpose for effect in _undoable(request, end.effects))
        if names:
            error, disposition = classified(request, end.error)
            if disposition is Disposition.REJECT:
                return (yield from _turn_back(request, replace(record, effects=end.effects), error, names))
    return (yield from settle(request, record, end))


def _undoable(request: Request, effects: tuple[Effect, ...]) -> list[Effect]:
    """Return what has to be undone, newest first."""
    return [
        effect
        for effect in reversed(effects)
        if effect.verdict is EffectVerdict.HAPPENED and effect.purpose in request.undoable
    ]


def _turn_back(request: Request, record: Record, error: Exception, names: tuple[str, ...]) -> Flow[Ending]:
    """Write down that the operation is rejected and being undone: from here on it has no other end."""
    if isinstance(error, Rejected):
        error.undone = names
    verb = TurnBack(ownership=record.ownership, rejection=request.encode_rejection(error))
    answer = yield from send_owned(verb, request.policy.confirm_seconds)
    if isinstance(answer, Refused):
        return (yield from lost(record, answer))
    yield from Tell(TurnedBack(operation=record.operation, operation_id=str(record.record_id), effects=names))
    return (yield from undo(request, replace(record, rejection=verb.rejection)))


def undo(request: Request, record: Record) -> Flow[Ending]:
    """Undo one effect after the other, then store the rejection; whoever comes to own the record goes on with this.

    An undo that fails is asked for again by a successor where that is safe; one that is refused is in doubt.
    """
    assert record.rejection is not None
    undoable = _undoable(request, record.effects)
    if not undoable:
        # Whoever turned back knew how to undo something. Code that no longer does must not say that all is undone.
        return (yield from doubt(request, record, _in_doubt(record, DOUBT_CODE_CHANGED)))
    ledger = Ledger(record)
    try:
        for effect in undoable:
            plan = request.plan_undo(record, effect)
            run = run_step if plan.effect_class is EffectClass.TRANSACTIONAL else run_effect
            yield from run(record, request.policy, ledger, plan)
    except EffectInDoubt as error:
        return Failed(record=record, error=error, doubt_reason=error.reason)
    except (Rejected, RecordCorrupt) as error:
        return (yield from doubt(request, record, _in_doubt(record, DOUBT_UNDO_FAILED, error)))
    except Exception as error:  # noqa: BLE001 - whatever a downstream's client raises: nobody else ends this attempt.
        return (yield from suspend(request, record, _in_doubt(record, DOUBT_UNDO_FAILED, error)))
    return (yield from complete(request, record, Outcome(kind=OutcomeKind.REJECTED, body=record.rejection)))


def _in_doubt(record: Record, reason: str, cause: Exception | None = None) -> EffectInDoubt:
    told = EffectInDoubt(reason, operation_id=str(record.record_id))
    told.__cause__ = cause
    return told
