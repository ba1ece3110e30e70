"""Verbs that fit whatever the record has become: what an owner, a late owner, an impostor or a stranger would send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from nebis.core.record import EffectVerdict, Fence, Outcome, Ownership, Record
from nebis.core.verbs import (
    Attach,
    Checkpoint,
    Doubt,
    Expire,
    Forget,
    OwnerVerb,
    Purge,
    Release,
    Renew,
    Suspend,
    TurnBack,
    Verb,
    Verdict,
    Withdraw,
)
from nebis.testing.conformance import specimens
from nebis.testing.conformance.specimens import LEASE_US, PAID


@dataclass(slots=True)
class Case:
    """One key, what became of it, and everybody who ever owned it."""

    key: str
    record: Record | None = None
    owners: list[Ownership] = field(default_factory=list)
    claims: int = 0

    @property
    def identity(self) -> bytes:
        """Return what the key is looked up by."""
        return specimens.identity_of_key(self.key)

    def became(self, record: Record | None) -> None:
        """Remember what the last verb made of the record."""
        self.record = record
        if record is not None and record.ownership not in self.owners:
            self.owners.append(record.ownership)

    @property
    def owner(self) -> Ownership:
        """Return the newest owner, or one that nobody ever was."""
        if self.record is not None:
            return self.record.ownership
        return self.owners[-1] if self.owners else nobody(self.key)


def nobody(key: str) -> Ownership:
    """Return the proof of an owner that never was."""
    return Ownership(
        identity=specimens.identity_of_key(key),
        record_id=specimens.record_id_of(key, "nobody"),
        fence=Fence(1),
        nonce=specimens.nonce_of(key, "nobody"),
    )


Move: TypeAlias = Callable[[Case], Verb]
Whose: TypeAlias = Callable[[Case], Ownership]
OwnerMove: TypeAlias = Callable[[Ownership], OwnerVerb]


def owner(case: Case) -> Ownership:
    """Show the newest owner's proof."""
    return case.owner


def first_owner(case: Case) -> Ownership:
    """Show the proof of the first owner that the key ever had."""
    return case.owners[0] if case.owners else case.owner


def lower_fence(case: Case) -> Ownership:
    """Show the newest owner's nonce under an older fence."""
    return replace(case.owner, fence=Fence(case.owner.fence - 1))


def impostor(case: Case) -> Ownership:
    """Show the newest fence under another nonce: a fence alone is no proof."""
    return replace(case.owner, nonce=specimens.nonce_of(case.key, "impostor"))


def other_life(case: Case) -> Ownership:
    """Show the right fence and nonce for a life that the key does not have (F057)."""
    return replace(case.owner, record_id=specimens.record_id_of(case.key, "other life"))


def by(whose: Whose, move: OwnerMove) -> Move:
    """Let somebody send an owner's verb."""
    return lambda case: move(whose(case))


def claiming(who: str = "second", **changes: Any) -> Move:
    """Claim the key for somebody, with a record id that was never used."""

    def move(case: Case) -> Verb:
        case.claims += 1
        return specimens.claim(case.key, by=who, life=case.claims, **changes)

    return move


def taking_over(who: str = "worker", *, whose: Whose = owner, **changes: Any) -> Move:
    """Take the record over for a worker that saw this owner."""
    return lambda case: specimens.take_over(whose(case), by=who, **changes)


def taking_over_again(case: Case) -> Verb:
    """Take the record over under the nonce that it carries already: the answer of the first time was lost."""
    return specimens.take_over(lower_fence(case), nonce=case.owner.nonce)


def resolving(verdict: Verdict, who: str = "resolver", *, whose: Whose = owner, **changes: Any) -> Move:
    """Settle the record for somebody who saw this owner."""
    return lambda case: specimens.resolve(
        whose(case), verdict, by=who, **{"effect_seen": case.record and case.record.open_effect_name, **changes}
    )


def resolving_again(verdict: Verdict) -> Move:
    """Settle the record under the nonce that it carries already: the answer of the first time was lost."""
    return lambda case: specimens.resolve(case.owner, verdict, nonce=case.owner.nonce)


def expiring(case: Case) -> Verb:
    """Expire this one record."""
    return Expire(identity=case.identity)


def purging(case: Case) -> Verb:
    """Purge this one record."""
    return Purge(identity=case.identity)


def forgetting(case: Case) -> Verb:
    """Forget this one record."""
    return Forget(identity=case.identity)


def renewing(lease_us: int = LEASE_US) -> OwnerMove:
    """Say that the owner is alive."""
    return lambda ownership: Renew(ownership=ownership, lease_us=lease_us)


def intending(name: str = "charge", **changes: Any) -> OwnerMove:
    """Open an effect."""
    return lambda ownership: specimens.intend(ownership, name, **changes)


def checkpointing(name: str = "charge", verdict: EffectVerdict = EffectVerdict.HAPPENED, **changes: Any) -> OwnerMove:
    """Say how an effect ended."""
    values: dict[str, Any] = {"name": name, "verdict": verdict, "result": b"charge-1", **changes}
    return lambda ownership: Checkpoint(ownership=ownership, **values)


def completing(outcome: Outcome = PAID, **changes: Any) -> OwnerMove:
    """Store the outcome."""
    return lambda ownership: specimens.complete(ownership, outcome, **changes)


def suspending(**changes: Any) -> OwnerMove:
    """Stop for now."""
    return lambda ownership: Suspend(ownership=ownership, **changes)


def releasing(ownership: Ownership) -> OwnerVerb:
    """Give the key back."""
    return Release(ownership=ownership)


def withdrawing(ownership: Ownership) -> OwnerVerb:
    """Forget the claim."""
    return Withdraw(ownership=ownership)


def doubting(ownership: Ownership) -> OwnerVerb:
    """Say that nobody can tell."""
    return Doubt(ownership=ownership, reason="no-answer")


def turning_back(ownership: Ownership) -> OwnerVerb:
    """Begin to undo."""
    return TurnBack(ownership=ownership, rejection=b"out of stock")


def attaching(**changes: Any) -> OwnerMove:
    """Name the resource or prolong the retention."""
    return lambda ownership: Attach(ownership=ownership, **changes)
