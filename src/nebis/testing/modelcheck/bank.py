"""The outside world: a bank that remembers as much as the class of an effect promises, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from nebis.core.record import EffectClass
from nebis.testing.modelcheck.world import Cost, Entry, added, found

Ledger: TypeAlias = tuple[Entry, ...]

REMEMBERS_SUCCESS = frozenset({EffectClass.STICKY, EffectClass.SUCCESS_ONLY, EffectClass.FENCED})


class Call(NamedTuple):
    """One request to the bank."""

    life: int
    step: str
    key: int
    fence: int


class Said(NamedTuple):
    """One thing that the bank may do with a call: H happened, R rejected, or `stale` for a fence that is too low."""

    cost: Cost
    answer: str
    ledger: Ledger


def call(ledger: Ledger, effect_class: EffectClass, wanted: Call) -> Iterator[Said]:
    """Yield all that the bank may do now."""
    entry = found(ledger, wanted.life, wanted.step, wanted.key)
    is_fenced = effect_class is EffectClass.FENCED
    if is_fenced and wanted.fence < entry.fence:
        yield Said(Cost.FREE, "stale", ledger)
        return
    if entry.memory in ("R", "V"):
        yield Said(Cost.FREE, "R", ledger)
        return
    if entry.memory == "S" and effect_class in REMEMBERS_SUCCESS:
        yield Said(Cost.FREE, "H", ledger)
        return
    seen = entry._replace(fence=wanted.fence) if is_fenced else entry
    yield Said(Cost.FREE, "H", added(ledger, seen._replace(times=entry.times + 1, memory="S")))
    if effect_class is EffectClass.STICKY:
        yield Said(Cost.REJECT, "R", added(ledger, seen._replace(memory="R")))
    elif is_fenced:
        yield Said(Cost.REJECT, "R", added(ledger, seen))
    else:
        yield Said(Cost.REJECT, "R", ledger)


def landed(ledger: Ledger, effect_class: EffectClass, wanted: Call) -> Ledger:
    """Return the ledger after a call arrived whose sender no longer waits."""
    return next(call(ledger, effect_class, wanted)).ledger


def committed(ledger: Ledger, life: int, step: str) -> Ledger:
    """Return the ledger after business rows were committed with the record."""
    entry = found(ledger, life, step, life)
    return added(ledger, entry._replace(times=entry.times + 1, memory="S"))


def voided(ledger: Ledger, life: int, step: str, key: int) -> Ledger:
    """Return the ledger after the bank burnt the identity of an effect that did not happen."""
    return added(ledger, found(ledger, life, step, key)._replace(memory="V"))


def forgotten(ledger: Ledger, life: int, step: str) -> Ledger:
    """Return the ledger after the bank's memory of derived keys ended; what happened stays."""
    return tuple(
        sorted(
            entry._replace(memory="") if (entry.life, entry.step) == (life, step) and entry.memory == "S" else entry
            for entry in ledger
        )
    )
