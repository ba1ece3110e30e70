"""How fast records age: evenly, as fast as new ones come, and slowly enough that traffic does not feel it."""

from __future__ import annotations

import time

from nebis.flow import Flow
from nebis.ports.store import BlockingSessions, Store, Swept

STRIDE_RECORDS = 800
"""At most so many records age at once: less than ten milliseconds of one processor, and as long are they locked.
Of half as many, each would cost a sixth more."""

MANY_RECORDS = 64
"""From so many on a stride is worth what it costs to look at its part of the table, a few percent of one processor
where little comes. Of large records, and in a table with gaps, there are fewer in any part even if all are due."""

QUIET_RECORDS_PER_SECOND = 1000.0
"""However little comes: a backlog of a million is gone in a quarter of an hour, for a few percent of one processor."""

AGED_PER_ARRIVAL = 2.1
"""Each record ages twice, into a tombstone and out of the store. A little more, so that no backlog stays for ever."""

LEAST_REST = 1.0
"""As a multiple of what the stride took: on a slow server, sweeping takes at most half of the time."""

STRIDE_SECONDS = 1.0
"""Between two strides where little is due."""

ROUND_SECONDS = 6 * 3600.0
"""A round through the largest store: a quarter of the shortest window that is usual."""

SAMPLE_SECONDS = 1.0
"""Over at least so long it is counted how many records come."""

ONCE_RECORDS = 1000
ONCE_STRIDES = 64
"""What one pass of a worker does at most: it comes back after some seconds."""


class Sweeper:
    """Lets records age a stride at a time, and says how long to rest after it."""

    def __init__(self) -> None:
        self._counted_at: float | None = None
        self._fence = 0
        self._arrivals_per_second = 0.0

    def stride(self, store: Store, sessions: BlockingSessions) -> tuple[Swept, float | None]:
        """Go on with the round; return what was done, and for how many seconds to rest, or None at its end."""
        began = time.monotonic()
        swept = sessions.run(store.sweep(limit=STRIDE_RECORDS))
        ended = time.monotonic()
        return swept, self.rest_seconds(swept, began_at=began, ended_at=ended)

    def rest_seconds(self, swept: Swept, *, began_at: float, ended_at: float) -> float | None:
        """Return for how long to rest, or None at the end of a round."""
        self._count_arrivals(swept.newest_fence, ended_at)
        if swept.ends_round:
            return None
        took = ended_at - began_at
        if swept.aged < MANY_RECORDS:
            whole = min(STRIDE_SECONDS, ROUND_SECONDS / swept.strides)
        else:
            whole = swept.aged / max(QUIET_RECORDS_PER_SECOND, AGED_PER_ARRIVAL * self._arrivals_per_second)
        return max(whole - took, took * LEAST_REST)

    def _count_arrivals(self, fence: int, now: float) -> None:
        if self._counted_at is None:
            self._counted_at, self._fence = now, fence
        elif now - self._counted_at >= SAMPLE_SECONDS:
            self._arrivals_per_second = (fence - self._fence) / (now - self._counted_at)
            self._counted_at, self._fence = now, fence


def sweep_once(store: Store) -> Flow[int]:
    """Let some records age without a rest; return how many."""
    aged = 0
    for _ in range(ONCE_STRIDES):
        swept = yield from store.sweep(limit=ONCE_RECORDS - aged)
        aged += swept.aged
        if swept.ends_round or aged >= ONCE_RECORDS:
            break
    return aged
