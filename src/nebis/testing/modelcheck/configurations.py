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
    starts: int = 2
    crashes: int = 1
    late: int = 1
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


_LOCAL = (EffectClass.TRANSACTIONAL,)
_OPAQUE, _QUERYABLE, _STICKY = EffectClass.OPAQUE, EffectClass.QUERYABLE, EffectClass.STICKY

_OPAQUE_MODE = (
    Configuration(name="opaque mode", at_least=36_000, mode=EffectsMode.OPAQUE, starts=3, late=2),
    Configuration(name="opaque mode, three at once", at_least=20_000, mode=EffectsMode.OPAQUE, at_once=3, starts=4),
    Configuration(name="opaque mode, ageing", at_least=51_000, mode=EffectsMode.OPAQUE, starts=3, ageings=2),
    Configuration(
        name="opaque mode, two tenants", at_least=41_000, mode=EffectsMode.OPAQUE, tenants=2, starts=3, rejections=0
    ),
    Configuration(name="opaque mode, two commands", at_least=18_000, mode=EffectsMode.OPAQUE, commands=2, starts=3),
)
_LOCAL_MODE = (
    Configuration(
        name="local, single transaction",
        at_least=212_000,
        mode=EffectsMode.LOCAL,
        classes=_LOCAL,
        transaction=Transaction.SINGLE,
        tenants=2,
        commands=2,
        at_once=3,
        starts=6,
        late=3,
        ageings=2,
    ),
    Configuration(name="local, guarded transaction", at_least=25_000, mode=EffectsMode.LOCAL, classes=_LOCAL, late=2),
    Configuration(
        name="local, guarded, three at once",
        at_least=37_000,
        mode=EffectsMode.LOCAL,
        classes=_LOCAL,
        at_once=3,
        starts=3,
    ),
    Configuration(
        name="local, guarded, ageing", at_least=69_000, mode=EffectsMode.LOCAL, classes=_LOCAL, starts=3, ageings=1
    ),
    Configuration(
        name="local, guarded, two tenants",
        at_least=5_800,
        mode=EffectsMode.LOCAL,
        classes=_LOCAL,
        tenants=2,
        failures=0,
    ),
)
_ONE_EFFECT = (
    Configuration(name="transactional step", at_least=30_000, classes=_LOCAL, late=2, failures=0),
    Configuration(name="sticky", at_least=93_000, classes=(_STICKY,)),
    Configuration(name="sticky, ageing", at_least=47_000, classes=(_STICKY,), ageings=1, failures=0, rejections=0),
    Configuration(
        name="sticky, recall window",
        at_least=41_000,
        classes=(_STICKY,),
        has_recall_window=True,
        ageings=1,
        rejections=0,
        failures=0,
        evidence=0,
    ),
    Configuration(name="success only", at_least=40_000, classes=(EffectClass.SUCCESS_ONLY,), failures=0),
    Configuration(
        name="success only, ageing",
        at_least=48_000,
        classes=(EffectClass.SUCCESS_ONLY,),
        ageings=1,
        failures=0,
        rejections=0,
    ),
    Configuration(name="fenced", at_least=31_000, classes=(EffectClass.FENCED,), failures=0),
    Configuration(name="queryable", at_least=109_000, classes=(_QUERYABLE,), late=2, failures=0),
    Configuration(name="queryable, ageing", at_least=35_000, classes=(_QUERYABLE,), ageings=1, failures=0),
    Configuration(name="opaque effect", at_least=78_000, classes=(_OPAQUE,), late=2, failures=0),
    Configuration(
        name="opaque effect, two tenants", at_least=32_000, classes=(_OPAQUE,), tenants=2, failures=0, rejections=0
    ),
)
_TWO_EFFECTS = (
    Configuration(name="two sticky, undo sticky", at_least=35_000, classes=(_STICKY, _STICKY), undo=_STICKY, starts=1),
    Configuration(
        name="two queryable, undo queryable",
        at_least=86_000,
        classes=(_QUERYABLE, _QUERYABLE),
        undo=_QUERYABLE,
        failures=0,
    ),
    Configuration(
        name="success only and opaque, undo sticky",
        at_least=32_000,
        classes=(EffectClass.SUCCESS_ONLY, _OPAQUE),
        undo=_STICKY,
        starts=1,
    ),
    Configuration(
        name="local step and fenced, undo local",
        at_least=56_000,
        classes=(EffectClass.TRANSACTIONAL, EffectClass.FENCED),
        undo=EffectClass.TRANSACTIONAL,
        failures=0,
    ),
)
CONFIGURATIONS: tuple[Configuration, ...] = (*_OPAQUE_MODE, *_LOCAL_MODE, *_ONE_EFFECT, *_TWO_EFFECTS)
"""The worlds of the published proof."""


def named(name: str) -> Configuration:
    """Return the world of that name."""
    return next(configuration for configuration in CONFIGURATIONS if configuration.name == name)
