"""How fast fresh keys may come: a count over a sliding window, never below the truth.

A window is counted in ten slots and the one that is running, whole, so that what is counted reaches back a tenth
further than the window. Nothing that falls into any window of the given length is ever missed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SLOTS: Final = 10
KEPT_SLOTS: Final = SLOTS + 1
UNLIMITED: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one request adds to one meter, and how much that meter may show."""

    bucket: bytes = field(repr=False)
    """A keyed hash of what is counted: neither a card nor a tenant can be read from a meter (SEC08)."""
    window_us: int
    limit: int
    weight: int = 1

    @property
    def slot_us(self) -> int:
        """Return the length of a slot; rounded up, as ten of them must not be shorter than the window."""
        return -(-self.window_us // SLOTS)

    @property
    def kept_us(self) -> int:
        """Return for how long a meter matters after it was last added to."""
        return KEPT_SLOTS * self.slot_us


@dataclass(frozen=True, slots=True)
class Meter:
    """What was counted in the newest slots."""

    newest: int
    """The number of the newest slot."""
    hits: tuple[int, ...]
    """Of the newest slot first."""

    def at(self, slot: int) -> Meter:
        """Return the meter as it stands in a later slot; a clock that stepped back stays where it was (F025)."""
        passed = slot - self.newest
        if passed <= 0:
            return self
        return Meter(slot, ((0,) * min(passed, KEPT_SLOTS) + self.hits)[:KEPT_SLOTS])

    def plus(self, weight: int) -> Meter:
        """Return the meter with something added to its newest slot."""
        return Meter(self.newest, (self.hits[0] + weight, *self.hits[1:]))


def add(meter: Meter | None, charge: Charge, now: int) -> Meter | None:
    """Return the meter with the charge added, or None if that would be above its limit."""
    current = _current(meter, charge, now)
    return current.plus(charge.weight) if sum(current.hits) + charge.weight <= charge.limit else None


def wait_us(meter: Meter | None, charge: Charge, now: int) -> int:
    """Return after how long the charge would find room, if nobody else came."""
    current = _current(meter, charge, now)
    excess = sum(current.hits) + charge.weight - charge.limit
    for age in reversed(range(KEPT_SLOTS)):
        excess -= current.hits[age]
        if excess <= 0:
            return max(1, (current.newest - age + KEPT_SLOTS) * charge.slot_us - now)
    return charge.window_us


def _current(meter: Meter | None, charge: Charge, now: int) -> Meter:
    slot = now // charge.slot_us
    return Meter(slot, (0,) * KEPT_SLOTS) if meter is None else meter.at(slot)
