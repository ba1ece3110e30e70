"""What can be asked of one record: the singular form of every store verb."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from nebis.core.quick import maker, quick
from nebis.core.record import (
    EffectClass,
    EffectsMode,
    EffectVerdict,
    Nonce,
    Outcome,
    Ownership,
    RecordId,
    Resource,
    Retention,
)


class ExpiredPolicy(StrEnum):
    """What a request gets when its key outlived its answer."""

    RUN_AGAIN = "run_again"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What all claims of an operation have in common: made once, and shared by them."""

    scope: str
    operation: str
    mode: EffectsMode
    lease_us: int
    retention: Retention
    when_expired: ExpiredPolicy = ExpiredPolicy.RUN_AGAIN
    will_wait: bool = False


@quick
@dataclass(frozen=True, slots=True)
class Claim:
    """Ask to run a command under a key, or for what became of it.

    Its fields may be given in their order, for the one place that every request comes through; elsewhere name them.
    Whatever goes through many claims at once may ask each for its terms, which are most often the same.
    """

    identity: bytes
    record_id: RecordId
    """Of the life that begins if this claim begins one; otherwise unused."""
    nonce: Nonce = field(repr=False)
    tenant: str = field(repr=False)
    key: str = field(repr=False)
    fingerprints: tuple[tuple[int, bytes], ...] = field(repr=False)
    """(version, digest), newest first: an old record is compared with the version it was made with."""
    terms: Terms
    command: bytes | None = field(default=None, repr=False)

    @property
    def scope(self) -> str:
        """Return the scope in which the key is unique."""
        return self.terms.scope

    @property
    def operation(self) -> str:
        """Return the name of the operation."""
        return self.terms.operation

    @property
    def mode(self) -> EffectsMode:
        """Return what the operation says about its effects."""
        return self.terms.mode

    @property
    def lease_us(self) -> int:
        """Return how long a granted attempt owns its record without a sign of life."""
        return self.terms.lease_us

    @property
    def retention(self) -> Retention:
        """Return how long a life that begins now is kept."""
        return self.terms.retention

    @property
    def when_expired(self) -> ExpiredPolicy:
        """Return what becomes of a key that outlived its answer."""
        return self.terms.when_expired

    @property
    def will_wait(self) -> bool:
        """Tell whether the caller waits for a running twin, and wants to be woken."""
        return self.terms.will_wait


make_claim: Final = maker(Claim)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """Ask to go on with a record whose owner is gone, without a client."""

    identity: bytes
    record_id: RecordId
    fence_seen: int
    nonce: Nonce = field(repr=False)
    lease_us: int
    recoveries_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew:
    """Say that the owner is alive."""

    ownership: Ownership
    lease_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intend:
    """Write down, before it is called, that an effect may happen."""

    ownership: Ownership
    name: str
    effect_class: EffectClass
    derived_key: str = field(repr=False)
    digest: bytes
    recall_us: int | None
    """How long the downstream remembers the derived key; None where the class needs no memory."""
    lease_us: int
    """The intent renews the lease to outlive the call (F066)."""
    is_again: bool = False
    """The owner's own earlier call ended without an answer and may still land."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Write down how an effect ended. A transactional one needs no intent: it is its own proof."""

    ownership: Ownership
    name: str
    verdict: EffectVerdict
    result: bytes = field(repr=False)
    transactional_digest: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Store the one outcome."""

    ownership: Ownership
    outcome: Outcome
    retention: Retention
    resource: Resource | None = None


make_complete: Final = maker(Complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """Stop for now, so that a successor need not wait for the lease."""

    ownership: Ownership
    resource: Resource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Give the key back: a definite failure before any effect."""

    ownership: Ownership
    nothing_happened: bool = False
    """The handler's own word, which is all that is ever known of an opaque operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Forget the claim altogether: the request should never have been one."""

    ownership: Ownership
    nothing_happened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Say that an effect may have happened and that the owner cannot tell."""

    ownership: Ownership
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBack:
    """Begin to undo: the operation is rejected after some of its effects happened."""

    ownership: Ownership
    rejection: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """Name the resource that the operation works on, or keep the record for longer; both while it runs."""

    ownership: Ownership
    resource: Resource | None = None
    retention: Retention | None = None


class AbsenceProof(StrEnum):
    """Why an effect that did not happen cannot happen later either."""

    VOIDED = "voided"
    """The downstream burnt the effect's identity."""
    SETTLED = "settled"
    """The downstream's declared time to settle has passed."""
    OWNER_DEAD = "owner_dead"
    """A person states that the owner is dead, or that its call can no longer land."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The whole operation is known to have ended like this."""

    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectKnown:
    """The open effect is known to have ended like this; the operation goes on after it."""

    verdict: EffectVerdict
    result: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DidNotHappen:
    """The open effect did not happen. Without a proof that it cannot happen later, this is refused (F065)."""

    proof: AbsenceProof | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAgain:
    """A person lets the operation go on although an effect may be made twice, or the downstream remembers."""


Verdict: TypeAlias = Ended | EffectKnown | DidNotHappen | CallAgain


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """Lead a record out of doubt."""

    identity: bytes
    record_id: RecordId
    fence_seen: int
    nonce: Nonce = field(repr=False)
    """Marks the resolver's own write, so that a repeated one is recognised."""
    verdict: Verdict
    retention: Retention
    effect_seen: str | None
    """The effect that was open when the evidence was gathered. Under one fence a doubt can end and another begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """Drop what is sensitive of an outcome whose time is over."""

    identity: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """Remove an available record whose time is over."""

    identity: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Remove a tombstone whose time is over."""

    identity: bytes


OwnerVerb: TypeAlias = Renew | Intend | Checkpoint | Complete | Suspend | Release | Withdraw | Doubt | TurnBack | Attach
AgeingVerb: TypeAlias = Expire | Purge | Forget
Verb: TypeAlias = Claim | TakeOver | OwnerVerb | Resolve | AgeingVerb


_BY_IDENTITY: Final = (Claim, TakeOver, Resolve, Expire, Purge, Forget)


def identity_of(verb: Verb) -> bytes:
    """Return which record a verb is about."""
    return verb.identity if isinstance(verb, _BY_IDENTITY) else verb.ownership.identity
