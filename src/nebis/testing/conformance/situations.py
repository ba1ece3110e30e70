"""Every kind of place in which a record can stand, as the way that leads there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from nebis.core.record import EffectClass, EffectsMode, EffectVerdict, Resource
from nebis.core.verbs import AbsenceProof, DidNotHappen, EffectKnown, Ended
from nebis.testing.conformance.moves import (
    Move,
    attaching,
    by,
    checkpointing,
    claiming,
    completing,
    doubting,
    expiring,
    intending,
    owner,
    purging,
    releasing,
    resolving,
    suspending,
    taking_over,
    turning_back,
    withdrawing,
)
from nebis.testing.conformance.specimens import (
    DECLINED,
    DIGEST,
    LEASE_US,
    NEVER_PROVED,
    PAID,
    RECALL_US,
    RETENTION,
    UNSTORABLE,
)


@dataclass(frozen=True, slots=True)
class Passing:
    """Time that passes between two verbs."""

    us: int


Situation: TypeAlias = tuple[Move | Passing, ...]

LEASE = Passing(LEASE_US)
RECALL = Passing(RECALL_US)
WINDOW = Passing(RETENTION.outcome_us)
METADATA = Passing(RETENTION.metadata_us)
LONG_METADATA = Passing(10 * RETENTION.metadata_us)

_claimed = claiming("first")
_local = claiming("first", mode=EffectsMode.LOCAL)
_opaque = claiming("first", mode=EffectsMode.OPAQUE)
_sticky = by(owner, intending())
_success_only = by(owner, intending(effect_class=EffectClass.SUCCESS_ONLY))
_fenced = by(owner, intending(effect_class=EffectClass.FENCED, recall_us=None))
_queryable = by(owner, intending(effect_class=EffectClass.QUERYABLE, recall_us=None))
_opaque_effect = by(owner, intending(effect_class=EffectClass.OPAQUE, recall_us=None))
_charged = by(owner, checkpointing())
_declined = by(owner, checkpointing(verdict=EffectVerdict.REJECTED, result=b"no funds"))
_second_queryable = by(owner, intending("ship", effect_class=EffectClass.QUERYABLE, recall_us=None))
_undo_intended = by(owner, intending("undo:charge"))
_doubted = by(owner, doubting)
_turned_back = by(owner, turning_back)
_completed = by(owner, completing())
_attached = by(owner, attaching(resource=Resource(type="payment", id="pay_1")))
_voided = resolving(DidNotHappen(proof=AbsenceProof.VOIDED))

SITUATIONS: dict[str, Situation] = {
    "nothing": (),
    "withdrawn": (_claimed, by(owner, withdrawing)),
    "purged": (_claimed, by(owner, releasing), WINDOW, purging),
    # In progress and clean.
    "running": (_claimed,),
    "running, awaited": (_claimed, claiming("waiter", will_wait=True)),
    "running, with a resource": (_claimed, _attached),
    "running without a command": (claiming("first", command=None),),
    "lapsed": (_claimed, LEASE),
    "lapsed for longer than its window": (_claimed, WINDOW),
    "taken over by a request": (_claimed, LEASE, claiming("second")),
    "taken over by a worker, lapsed": (_claimed, LEASE, taking_over("worker"), LEASE),
    "running locally": (_local,),
    # In progress and dirty.
    "running opaquely": (_opaque,),
    "lapsed, opaque": (_opaque, LEASE),
    "calling, sticky": (_claimed, _sticky),
    "calling, sticky, lapsed": (_claimed, _sticky, LEASE),
    "calling, sticky, downstream forgot": (_claimed, _sticky, RECALL),
    "calling, sticky, resumed after downstream forgot": (_claimed, _sticky, LEASE, claiming("second"), RECALL),
    "calling again, sticky": (_claimed, _sticky, LEASE, claiming("second"), _sticky),
    "calling, success-only": (_claimed, _success_only),
    "calling again, success-only": (_claimed, _success_only, LEASE, claiming("second")),
    "calling, fenced, lapsed": (_claimed, _fenced, LEASE),
    "calling, queryable": (_claimed, _queryable),
    "calling, queryable, lapsed": (_claimed, _queryable, LEASE),
    "calling, opaque, lapsed": (_claimed, _opaque_effect, LEASE),
    "suspended": (_claimed, _sticky, by(owner, suspending())),
    "one effect done": (_claimed, _sticky, _charged),
    "one effect declined": (_claimed, _sticky, _declined),
    "one effect done, lapsed": (_claimed, _sticky, _charged, LEASE),
    "one local step done": (_claimed, by(owner, checkpointing("reserve", transactional_digest=DIGEST))),
    "one effect done, another open": (_claimed, _sticky, _charged, _second_queryable),
    "undoing": (_claimed, _sticky, _charged, _turned_back),
    "undoing, lapsed": (_claimed, _sticky, _charged, _turned_back, LEASE),
    "undoing, undo open": (_claimed, _sticky, _charged, _turned_back, _undo_intended),
    "undoing nothing": (_claimed, _turned_back),
    # Available.
    "available": (_claimed, by(owner, releasing)),
    "available past its window": (_claimed, by(owner, releasing), WINDOW),
    "available after recoveries were used up": (_claimed, LEASE, taking_over(recoveries_limit=0)),
    "available after doubt": (_claimed, _queryable, _doubted, LEASE, _voided),
    # In doubt.
    "in doubt without an effect": (_claimed, _doubted),
    "in doubt, opaque": (_opaque, LEASE, claiming("second")),
    "in doubt, sticky": (_claimed, _sticky, _doubted),
    "in doubt, sticky, downstream forgot": (_claimed, _sticky, _doubted, RECALL),
    "in doubt, success-only called twice": (_claimed, _success_only, LEASE, claiming("second"), _doubted),
    "in doubt, queryable": (_claimed, _queryable, LEASE, taking_over()),
    "in doubt after one effect": (_claimed, _sticky, _charged, _second_queryable, _doubted),
    "in doubt while undoing": (_claimed, _turned_back, _doubted),
    "in doubt, recoveries used up": (_claimed, _sticky, LEASE, taking_over(recoveries_limit=0)),
    "out of doubt, effect known": (
        _claimed,
        _queryable,
        _doubted,
        resolving(EffectKnown(verdict=EffectVerdict.HAPPENED, result=b"charge-1")),
    ),
    # Completed and expired.
    "completed": (_claimed, _completed),
    "completed after an effect": (_claimed, _sticky, _charged, by(owner, completing(resource=None))),
    "completed, rejected after an undo": (_claimed, _turned_back, by(owner, completing(DECLINED))),
    "completed, unstorable": (_claimed, by(owner, completing(UNSTORABLE))),
    "completed by a verdict": (_claimed, _queryable, _doubted, resolving(Ended(outcome=PAID))),
    "completed past its window": (_claimed, _completed, WINDOW),
    "completed past its metadata": (_claimed, _completed, WINDOW, METADATA),
    "expired": (_claimed, _attached, _completed, WINDOW, expiring),
    "expired past its metadata": (_claimed, _completed, WINDOW, expiring, METADATA),
    "expired, never proved": (_opaque, _doubted, resolving(Ended(outcome=NEVER_PROVED)), WINDOW, expiring, METADATA),
    "expired, never proved, past its metadata": (
        _opaque,
        _doubted,
        resolving(Ended(outcome=NEVER_PROVED)),
        WINDOW,
        expiring,
        LONG_METADATA,
    ),
    "in its second life": (_claimed, _completed, WINDOW, expiring, claiming("second")),
}
