"""What the reference store counts."""

from __future__ import annotations

from collections.abc import Sequence

from nebis.core.record import Record, State
from nebis.core.velocity import Charge, Meter, add, wait_us
from nebis.flow import Flow
from nebis.stores.memory_inbox import MemoryInbox, Touch


class MemoryVelocity(MemoryInbox):
    """The meters of a memory store."""

    _records: dict[bytes, Record]

    def __init__(self) -> None:
        super().__init__()
        self._meters: dict[bytes, tuple[int, Meter]] = {}
        """Each with the moment at which it no longer matters."""

    def charge(self, charges: Sequence[Charge], *, identity: bytes | None, now: int | None = None) -> Flow[int | None]:
        """Add every charge to its meter; return None, or after how many microseconds there may be room for it."""

        def act() -> int | None:
            instant = self._instant(now)
            record = None if identity is None else self._records.get(identity)
            if record is not None and _is_live(record, instant):
                return None
            counted = [(charge, add(self._meter(charge), charge, instant)) for charge in charges]
            waits = [wait_us(self._meter(charge), charge, instant) for charge, meter in counted if meter is None]
            for charge, meter in counted if not waits else ():
                assert meter is not None
                self._meters[charge.bucket] = (instant + charge.kept_us, meter)
            return max(waits, default=None)

        return (yield from Touch("charge", act))

    def _meter(self, charge: Charge) -> Meter | None:
        known = self._meters.get(charge.bucket)
        return None if known is None else known[1]

    def _forget_meters(self, now: int, limit: int) -> None:
        due = [bucket for bucket, (forget_at, _) in self._meters.items() if forget_at <= now]
        for bucket in due[:limit]:
            del self._meters[bucket]


def _is_live(record: Record, now: int) -> bool:
    """Tell whether a claim of the key would begin no new life."""
    if record.state in (State.IN_PROGRESS, State.IN_DOUBT):
        return True
    return record.state is not State.EXPIRED and now < record.expires_at
