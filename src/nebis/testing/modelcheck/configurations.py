"""Which worlds are searched: every effect class, effects mode and transaction mode, with their budgets."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    at_least: int = 0
    """How many states the published proof promises to visit; a smaller search would prove less than is claimed."""

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


def _declared(name: str, *classes: EffectClass, undo: EffectClass | None = None, **budgets: int) -> Configuration:
    chosen = {"starts": 2, "late": 1} | budgets
    return Configuration(name=name, classes=classes, undo=undo, **chosen)


def _local(name: str, transaction: Transaction = Transaction.GUARDED, **budgets: int) -> Configuration:
    classes = (EffectClass.TRANSACTIONAL,)
    return Configuration(name=name, mode=EffectsMode.LOCAL, classes=classes, transaction=transaction, **budgets)


def _opaque(name: str, **budgets: int) -> Configuration:
    return Configuration(name=name, mode=EffectsMode.OPAQUE, **budgets)


CONFIGURATIONS: tuple[Configuration, ...] = (
    _opaque("opaque mode", crashes=2),
    _opaque("opaque mode, three at once", at_once=3, starts=4, late=1),
    _opaque("opaque mode, ageing", late=1, ageings=2),
    _opaque("opaque mode, two tenants", tenants=2, late=1, rejections=0),
    _opaque("opaque mode, two commands", commands=2, late=1),
    _local("local, single transaction", Transaction.SINGLE, starts=6, at_once=3, late=3, ageings=2, tenants=2, commands=2),
    _local("local, guarded transaction"),
    _local("local, guarded, three at once", at_once=3, late=1),
    _local("local, guarded, ageing", late=1, ageings=1),
    _local("local, guarded, two tenants", tenants=2, late=1, rejections=0, failures=0),
    _declared("transactional step", EffectClass.TRANSACTIONAL, late=2),
    _declared("sticky", EffectClass.STICKY),
    _declared("sticky, ageing", EffectClass.STICKY, ageings=2, failures=0, rejections=0),
    replace(
        _declared("sticky, recall window", EffectClass.STICKY, ageings=1, failures=0, rejections=0),
        has_recall_window=True,
    ),
    _declared("success only", EffectClass.SUCCESS_ONLY),
    _declared("success only, ageing", EffectClass.SUCCESS_ONLY, ageings=1, failures=0, rejections=0),
    _declared("fenced", EffectClass.FENCED),
    _declared("queryable", EffectClass.QUERYABLE, late=2, failures=0),
    _declared("queryable, ageing", EffectClass.QUERYABLE, ageings=1),
    _declared("opaque effect", EffectClass.OPAQUE, late=2, failures=0),
    _declared("opaque effect, two tenants", EffectClass.OPAQUE, tenants=2, failures=0, rejections=0),
    _declared("two sticky, undo sticky", EffectClass.STICKY, EffectClass.STICKY, undo=EffectClass.STICKY, starts=1),
    _declared(
        "two queryable, undo queryable",
        EffectClass.QUERYABLE,
        EffectClass.QUERYABLE,
        undo=EffectClass.QUERYABLE,
        failures=0,
    ),
    _declared(
        "success only and opaque, undo sticky",
        EffectClass.SUCCESS_ONLY,
        EffectClass.OPAQUE,
        undo=EffectClass.STICKY,
        starts=1,
    ),
    _declared(
        "local step and fenced, undo local",
        EffectClass.TRANSACTIONAL,
        EffectClass.FENCED,
        undo=EffectClass.TRANSACTIONAL,
        failures=0,
    ),
)
"""The worlds of the published proof."""


def named(name: str) -> Configuration:
    """Return the world of that name."""
    return next(configuration for configuration in CONFIGURATIONS if configuration.name == name)
