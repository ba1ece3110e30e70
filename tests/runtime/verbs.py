"""Verbs by number, for tests that only care which record they are about."""

from uuid import UUID

from nebis.core.record import EffectsMode, Fence, Nonce, Outcome, OutcomeKind, Ownership, RecordId, Retention
from nebis.core.verbs import Claim, Complete, Renew, Terms


def claim(number: int, *, operation: str = "pay") -> Claim:
    return Claim(
        identity=number.to_bytes(32, "big"),
        record_id=RecordId(UUID(int=number)),
        nonce=Nonce(number.to_bytes(16, "big")),
        tenant="acct_1",
        key=str(number),
        fingerprints=((1, bytes(32)),),
        terms=Terms(
            scope=operation,
            operation=operation,
            mode=EffectsMode.LOCAL,
            lease_us=30_000_000,
            retention=Retention(outcome_us=1, metadata_us=1),
        ),
    )


def renewal(number: int) -> Renew:
    return Renew(ownership=_ownership(number), lease_us=30_000_000)


def completion(number: int) -> Complete:
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=b"")
    return Complete(ownership=_ownership(number), outcome=outcome, retention=Retention(outcome_us=1, metadata_us=1))


def _ownership(number: int) -> Ownership:
    return Ownership(
        identity=number.to_bytes(32, "big"),
        record_id=RecordId(UUID(int=number)),
        fence=Fence(1),
        nonce=Nonce(number.to_bytes(16, "big")),
    )
