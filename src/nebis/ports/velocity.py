"""The velocity port: meters that fresh keys are counted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nebis.core.velocity import Charge
from nebis.flow import Ask, Flow


class Velocity(Protocol):
    """What a store counts. Every method is a flow of the store's own asks."""

    def charge(self, charges: Sequence[Charge], *, identity: bytes | None, now: int | None = None) -> Flow[int | None]:
        """Add every charge to its meter; return None, or after how many microseconds there may be room for it.

        A key that is on record already is free, and adds nothing. Of a request that is refused by one meter, others may
        have counted it: they err upward, never downward.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChargeVelocity(Ask[int | None]):
    """Count a request outside any transaction of the turn."""

    charges: Sequence[Charge]
    identity: bytes | None = field(repr=False)
    """The key that is free if it is on record; None for what counts in any case."""
