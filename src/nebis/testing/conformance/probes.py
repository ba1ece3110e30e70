"""Every verb in every variant that the state machine tells apart, by right, late and foreign hands."""

from __future__ import annotations

from nebis.core.record import EffectClass, EffectsMode, EffectVerdict, Resource, Retention
from nebis.core.verbs import AbsenceProof, CallAgain, DidNotHappen, EffectKnown, Ended, ExpiredPolicy
from nebis.testing.conformance.moves import (
    Move,
    OwnerMove,
    Whose,
    attaching,
    by,
    checkpointing,
    claiming,
    completing,
    doubting,
    expiring,
    first_owner,
    forgetting,
    impostor,
    intending,
    lower_fence,
    other_life,
    owner,
    purging,
    releasing,
    renewing,
    resolving,
    resolving_again,
    suspending,
    taking_over,
    taking_over_again,
    turning_back,
    withdrawing,
)
from nebis.testing.conformance.specimens import (
    DECLINED,
    DIGEST,
    FINGERPRINT,
    NEVER_PROVED,
    OTHER_FINGERPRINT,
    PAID,
    RETENTION,
    UNKNOWN_FINGERPRINT,
)

_LONGER = Retention(outcome_us=3 * RETENTION.outcome_us, metadata_us=3 * RETENTION.metadata_us)
_PAYMENT = Resource(type="payment", id="pay_1")
_ORDER = Resource(type="order", id="ord_ü")
_HAPPENED = EffectKnown(verdict=EffectVerdict.HAPPENED, result=b"charge-1")
_REFUSED_DOWNSTREAM = EffectKnown(verdict=EffectVerdict.REJECTED, result=b"no funds")

_CLAIMS: dict[str, Move] = {
    "claim": claiming(),
    "claim again as the first": claiming("first"),
    "claim and wait": claiming("waiter", will_wait=True),
    "claim for another command": claiming(fingerprints=(OTHER_FINGERPRINT,)),
    "claim with only an unknown fingerprint version": claiming(fingerprints=(UNKNOWN_FINGERPRINT,)),
    "claim with two fingerprint versions": claiming(fingerprints=(UNKNOWN_FINGERPRINT, FINGERPRINT)),
    "claim, or refuse if expired": claiming(when_expired=ExpiredPolicy.REFUSE),
    "claim opaquely": claiming(mode=EffectsMode.OPAQUE),
    "claim locally": claiming(mode=EffectsMode.LOCAL, command=None),
}

_STRANGERS: dict[str, Move] = {
    "take over": taking_over(),
    "take over after a stale look": taking_over(whose=lower_fence),
    "take over another life": taking_over(whose=other_life),
    "take over what the first owner left": taking_over(whose=first_owner),
    "take over again": taking_over_again,
    "take over without recoveries left": taking_over(recoveries_limit=0),
    "resolve: ended": resolving(Ended(outcome=PAID)),
    "resolve: never proved": resolving(Ended(outcome=NEVER_PROVED)),
    "resolve: effect happened": resolving(_HAPPENED),
    "resolve: effect rejected": resolving(_REFUSED_DOWNSTREAM),
    "resolve: did not happen": resolving(DidNotHappen(proof=AbsenceProof.SETTLED)),
    "resolve: did not happen, without proof": resolving(DidNotHappen(proof=None)),
    "resolve: call again": resolving(CallAgain()),
    "resolve what was seen of another effect": resolving(Ended(outcome=PAID), effect_seen="another"),
    "resolve after a stale look": resolving(Ended(outcome=PAID), whose=lower_fence),
    "resolve another life": resolving(Ended(outcome=PAID), whose=other_life),
    "resolve again": resolving_again(Ended(outcome=PAID)),
    "expire": expiring,
    "purge": purging,
    "forget": forgetting,
}

_OWNER_MOVES: dict[str, OwnerMove] = {
    "renew": renewing(),
    "intend": intending(),
    "checkpoint": checkpointing(),
    "complete": completing(),
    "suspend": suspending(),
    "release": releasing,
    "withdraw": withdrawing,
    "doubt": doubting,
    "turn back": turning_back,
    "attach": attaching(resource=_PAYMENT),
}

_OWNER_VARIANTS: dict[str, OwnerMove] = {
    "renew for no time": renewing(0),
    "intend again": intending(is_again=True),
    "intend with other arguments": intending(digest=b"\x01" * 32),
    "intend as success-only": intending(effect_class=EffectClass.SUCCESS_ONLY),
    "intend as success-only, again": intending(effect_class=EffectClass.SUCCESS_ONLY, is_again=True),
    "intend as queryable": intending(effect_class=EffectClass.QUERYABLE, recall_us=None),
    "intend as queryable, again": intending(effect_class=EffectClass.QUERYABLE, recall_us=None, is_again=True),
    "intend something else": intending("ship", effect_class=EffectClass.FENCED, recall_us=None),
    "intend an undo": intending("undo:charge", derived_key="derived-ü"),
    "checkpoint that nothing happened": checkpointing(verdict=EffectVerdict.DID_NOT_HAPPEN, result=b""),
    "checkpoint a rejection": checkpointing(verdict=EffectVerdict.REJECTED, result=b"no funds"),
    "checkpoint another result": checkpointing(result=b"charge-2"),
    "checkpoint a local step": checkpointing("reserve", transactional_digest=DIGEST),
    "checkpoint an undo step": checkpointing("undo:reserve", transactional_digest=DIGEST, result=b""),
    "complete with a rejection": completing(DECLINED),
    "complete for longer, with a resource": completing(resource=_ORDER, retention=_LONGER),
    "suspend with a resource": suspending(resource=_ORDER),
    "attach a longer retention": attaching(retention=_LONGER),
    "attach a shorter retention": attaching(retention=Retention(outcome_us=1, metadata_us=1)),
}

_HANDS: dict[str, Whose] = {
    "with a lower fence": lower_fence,
    "as an impostor": impostor,
    "for another life": other_life,
    "as the first owner": first_owner,
}

PROBES: dict[str, Move] = {
    **_CLAIMS,
    **_STRANGERS,
    **{name: by(owner, move) for name, move in (_OWNER_MOVES | _OWNER_VARIANTS).items()},
    **{f"{name} {how}": by(whose, move) for name, move in _OWNER_MOVES.items() for how, whose in _HANDS.items()},
}
