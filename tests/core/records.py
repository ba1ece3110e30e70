"""Ready-made records in every state, for the tests of the state machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nebis.core.claiming import first_life
from nebis.core.record import (
    Effect,
    EffectClass,
    EffectVerdict,
    Fence,
    OutcomeKind,
    Record,
    State,
)
from nebis.testing.conformance.specimens import DIGEST, LEASE_US, RETENTION, START_US, claim, nonce_of, record_id_of

NOW = START_US
LAPSED = START_US + LEASE_US
EXPIRED = START_US + RETENTION.outcome_us
FORGOTTEN = EXPIRED + RETENTION.metadata_us
NEXT_FENCE = Fence(9)
OTHER_LIFE = record_id_of("another life")
OTHER_NONCE = nonce_of("somebody else")


def running(**changes: Any) -> Record:
    """Return a clean record in progress, claimed at NOW under fence 5."""
    return replace(first_life(claim(), NOW, Fence(5)), **changes)


def available(**changes: Any) -> Record:
    return running(state=State.AVAILABLE, **changes)


def dirty(*effects: Effect, **changes: Any) -> Record:
    return running(is_dirty=True, effects=effects, **changes)


def doubted(*effects: Effect, **changes: Any) -> Record:
    values: dict[str, Any] = {"state": State.IN_DOUBT, "doubt_since": NOW, "doubt_reason": "no-answer", **changes}
    return dirty(*effects, **values)


def completed(**changes: Any) -> Record:
    values: dict[str, Any] = {"completed_at": NOW, "outcome_kind": OutcomeKind.SUCCEEDED, "command": None}
    return running(**{"state": State.COMPLETED, "outcome": b"paid", **values, **changes})


def expired(**changes: Any) -> Record:
    return completed(**{"state": State.EXPIRED, "outcome": None, **changes})


IN_EVERY_STATE = {
    State.IN_PROGRESS: running(),
    State.AVAILABLE: available(),
    State.IN_DOUBT: doubted(),
    State.COMPLETED: completed(),
    State.EXPIRED: expired(),
}


def called(effect_class: EffectClass = EffectClass.STICKY, name: str = "charge", **changes: Any) -> Effect:
    """Return an open effect."""
    values: dict[str, Any] = {"derived_key": "derived", "digest": DIGEST, "is_outstanding": False, "recall_until": None}
    return Effect(**{"name": name, "effect_class": effect_class, **values, **changes})


def voided(number: int = 1, purpose: str = "charge") -> Effect:
    """Return an effect whose key was burnt downstream."""
    burnt = called(EffectClass.QUERYABLE, f"{purpose} (voided {number})")
    return replace(burnt, verdict=EffectVerdict.DID_NOT_HAPPEN, result=b"")


def done(name: str = "charge", verdict: EffectVerdict = EffectVerdict.HAPPENED, **changes: Any) -> Effect:
    """Return a finished effect."""
    return replace(called(name=name), verdict=verdict, result=b"charge-1", **changes)
