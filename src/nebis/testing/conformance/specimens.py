"""Verbs with ready-made values, so that a test shows only what it is about."""

from __future__ import annotations

from hashlib import blake2b, sha256
from typing import Any
from uuid import UUID

from nebis.core.record import EffectClass, EffectsMode, Nonce, Outcome, OutcomeKind, Ownership, RecordId, Retention
from nebis.core.verbs import Claim, Complete, Intend, Resolve, TakeOver, Terms, Verdict

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
LEASE_US = 30 * SECOND_US
RECALL_US = 600 * SECOND_US
RETENTION = Retention(outcome_us=3_600 * SECOND_US, metadata_us=7_200 * SECOND_US)
FINGERPRINT = (1, sha256(b"the command").digest())
OTHER_FINGERPRINT = (1, sha256(b"another command").digest())
UNKNOWN_FINGERPRINT = (9, sha256(b"a later canonical form").digest())
DIGEST = sha256(b"the arguments").digest()
PAID = Outcome(kind=OutcomeKind.SUCCEEDED, body=b"\x00paid\xff")
DECLINED = Outcome(kind=OutcomeKind.REJECTED, body=b"declined")
NEVER_PROVED = Outcome(kind=OutcomeKind.UNKNOWN, body=b"")
UNSTORABLE = Outcome(kind=OutcomeKind.UNSTORABLE, body=b"")


def identity_of_key(key: str) -> bytes:
    """Return the 32 bytes that a key is looked up by."""
    return sha256(key.encode()).digest()


def record_id_of(*parts: object) -> RecordId:
    """Return the same public id for the same parts."""
    return RecordId(UUID(bytes=blake2b(repr(parts).encode(), digest_size=16).digest(), version=4))


def nonce_of(*parts: object) -> Nonce:
    """Return the same nonce for the same parts."""
    return Nonce(blake2b(repr(parts).encode(), digest_size=16, person=b"nonce").digest())


def claim(key: str = "key", *, by: str = "first", life: object = 1, **changes: Any) -> Claim:
    """Return a claim of a key by somebody; `changes` replace any of its values."""
    values: dict[str, Any] = {
        "identity": identity_of_key(key),
        "record_id": record_id_of(key, by, life),
        "nonce": nonce_of(key, by),
        "tenant": "acct_1",
        "key": key,
        "fingerprints": (FINGERPRINT,),
        "command": b'{"amount": 1}',
    }
    terms: dict[str, Any] = {
        "scope": "create_payment",
        "operation": "create_payment",
        "mode": EffectsMode.DECLARED,
        "lease_us": LEASE_US,
        "retention": RETENTION,
    }
    for name, change in changes.items():
        (terms if name in Terms.__slots__ else values)[name] = change
    return Claim(**values, terms=Terms(**terms))


def intend(ownership: Ownership, name: str = "charge", **changes: Any) -> Intend:
    """Return an intent of a sticky effect; `changes` replace any of its values."""
    values: dict[str, Any] = {
        "ownership": ownership,
        "name": name,
        "effect_class": EffectClass.STICKY,
        "derived_key": f"derived-{name}-{ownership.record_id}",
        "digest": DIGEST,
        "recall_us": RECALL_US,
        "lease_us": LEASE_US,
    }
    return Intend(**{**values, **changes})


def complete(ownership: Ownership, outcome: Outcome = PAID, **changes: Any) -> Complete:
    """Return a completion; `changes` replace any of its values."""
    return Complete(**{"ownership": ownership, "outcome": outcome, "retention": RETENTION, **changes})


def take_over(ownership: Ownership, *, by: str = "worker", **changes: Any) -> TakeOver:
    """Return a worker's request for the record that this owner left; `changes` replace any of its values."""
    values: dict[str, Any] = {
        "identity": ownership.identity,
        "record_id": ownership.record_id,
        "fence_seen": ownership.fence,
        "nonce": nonce_of(ownership.identity, by),
        "lease_us": LEASE_US,
        "recoveries_limit": 10,
    }
    return TakeOver(**{**values, **changes})


def resolve(ownership: Ownership, verdict: Verdict, *, by: str = "resolver", **changes: Any) -> Resolve:
    """Return a verdict on the record that this owner left in doubt; `changes` replace any of its values."""
    values: dict[str, Any] = {
        "identity": ownership.identity,
        "record_id": ownership.record_id,
        "fence_seen": ownership.fence,
        "nonce": nonce_of(ownership.identity, by),
        "verdict": verdict,
        "retention": RETENTION,
        "effect_seen": None,
    }
    return Resolve(**{**values, **changes})
