"""Which worlds are searched: every effect class, effects mode and transaction mode, with their budgets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nebis.core.record import EffectClass, EffectsMode
from nebis.testing.modelcheck.world import Cost


class Transaction(StrEnum):
    """How an operation with local effects meets its record."""

    SINGLE = "single"
    """Claim, business rows and outcome in one commit."""
    GUARDED = "guarded"
    """The claim commits first; rows and outcome follow in one commit that checks the ownership."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One world: what the operation declares, and how often what may go wrong."""

    name: str
    mode: EffectsMode = EffectsMode.DECLARED
    classes: tuple[EffectClass, ...] = (EffectClass.OPAQUE,)
    undo: EffectClass | None = None
    transaction: Transaction = Transaction.GUARDED
    at_once: int = 2
    """How many attempts are alive at the same time."""
    tenants: int = 1
    commands: int = 1
    starts: int = 3
    crashes: int = 1
    late: int = 2
    """Messages that get no answer in time: lost, repeated, or applied at any later moment."""
    rejections: int = 1
    failures: int = 1
    ageings: int = 0
    evidence: int = 1
    has_recall_window: bool = False

    @property
    def budget(self) -> int:
        """Return all budgets in one number, three bits for each."""
        amounts = {
            Cost.START: self.starts,
            Cost.CRASH: self.crashes,
            Cost.LATE: self.late,
            Cost.REJECT: self.rejections,
            Cost.FAIL: self.failures,
            Cost.AGE: self.ageings,
            Cost.EVIDENCE: self.evidence,
        }
        assert all(0 <= amount < 8 for amount in amounts.values())
        return sum(amount << (3 * cost) for cost, amount in amounts.items())


def configurations() -> tuple[Configuration, ...]:
    """Return the worlds of the published proof."""
    return ()
