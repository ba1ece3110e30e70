"""What waits to be sent to the store, and how it is put into batches.

A batch is made of whatever came while the previous ones were being committed: nobody ever waits for company, so one
idle caller pays nothing for batching, and under load many verbs share one round trip and one commit.
"""

from __future__ import annotations

import copy
import operator
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from nebis.core.verbs import Claim, Complete, Verb, identity_of
from nebis.errors import Overloaded
from nebis.ports.store import Spoilt, StoreFailure

W = TypeVar("W")

LARGEST_BATCH = 256
"""Larger batches take longer without being cheaper per member."""

LANES = 2
"""While the store works on one batch the next is made; more lanes mostly make smaller batches (measured)."""

MOST_LANES = 3
"""With so many batches none waits for the other, once even a third of all callers is a large one (measured)."""

WORTH_ANOTHER_LANE = 64
"""So many members each lane must carry before there is one more than usual."""

ENOUGH_OF_ONE_KIND = 8
"""From so many on claims and completions are sent apart."""

LONGEST_QUEUE = LANES * LARGEST_BATCH
"""Claims that may wait. Whoever is admitted waits for at most one batch of them before its own; all others hear at once
that the process is overloaded, instead of filling its memory. Writes of owners are never refused: claims bound them."""


Member: TypeAlias = tuple[Verb, bytes, W]
"""One verb on its way, its identity, and whoever waits for its answer. A plain tuple: every request makes two."""
_identity: Final = operator.itemgetter(1)


class Gathering(Generic[W]):
    """The members that wait. Whoever shares one between threads holds a lock around each call."""

    def __init__(
        self,
        *,
        lanes: int = LANES,
        largest_batch: int = LARGEST_BATCH,
        longest_queue: int = LONGEST_QUEUE,
        is_shared_out: bool = True,
    ) -> None:
        """Start empty. With `is_shared_out` no lane takes more than its share of all that waits or is under way.

        Callers come back as they were sent, so lanes of different lengths would stay so: the store has nothing to do
        while the long one is answered, and nobody else has while the store works on it.
        """
        self.lanes = lanes
        """How many batches may be under way, if there are enough members for all."""
        self.usual_lanes = min(lanes, LANES)
        """How many may be, however few they are."""
        self._largest_batch = largest_batch
        self._longest_queue = longest_queue
        self._is_shared_out = is_shared_out
        self._under_way_by_lane: list[int] = []
        """How many members each busy lane carries."""
        self._alone: deque[Member[W]] = deque()
        """Members whose batch came to nothing because of one of them: each goes by itself now."""
        self._completions: deque[Member[W]] = deque()
        self._owners: deque[Member[W]] = deque()
        """All other writes of owners: few, and most of them need several statements."""
        self._claims: dict[str, deque[Member[W]]] = {}
        """By operation, so that a flood of one cannot hold up another."""
        self._claims_waiting = 0
        self._under_way: set[bytes] = set()
        """Identities that are being written. Their twins wait: an identity is at most once in any batch."""

    def add(self, verb: Verb, waiter: W) -> None:
        """Let a verb wait for the next batch; raise `Overloaded` for a claim that would wait too long."""
        if type(verb) is Complete:
            self._completions.append((verb, verb.ownership.identity, waiter))
            return
        if type(verb) is not Claim:
            self._owners.append((verb, identity_of(verb), waiter))
            return
        if self._claims_waiting >= self._longest_queue:
            raise Overloaded(f"{self._claims_waiting} claims wait for the store")
        operation = verb.terms.operation
        queue = self._claims.get(operation)
        if queue is None:
            queue = self._claims[operation] = deque()
        queue.append((verb, verb.identity, waiter))
        self._claims_waiting += 1

    @property
    def waiting(self) -> int:
        """Count the members that no lane carries yet."""
        return len(self._alone) + len(self._owners) + self._usual_waiting

    @property
    def _usual_waiting(self) -> int:
        return len(self._completions) + self._claims_waiting

    @property
    def is_quiet(self) -> bool:
        """Tell whether nobody waits and no lane is busy."""
        return not self._under_way_by_lane and not self.waiting

    @property
    def is_worth_a_lane(self) -> bool:
        """Tell whether as many wait as are under way on any lane: then another lane costs less than it saves."""
        return self.waiting >= min(self._under_way_by_lane, default=0)

    @property
    def is_worth_another_lane(self) -> bool:
        """Tell whether that is so, and there are enough for more lanes than usual."""
        return len(self._under_way_by_lane) < self._worthwhile_lanes and self.is_worth_a_lane

    @property
    def _worthwhile_lanes(self) -> int:
        enough_for = (self.waiting + sum(self._under_way_by_lane)) // WORTH_ANOTHER_LANE
        return min(self.lanes, max(LANES, enough_for))

    def take(self) -> list[Member[W]]:
        """Occupy a lane with the next batch; return nothing, and occupy nothing, where nothing can be sent now.

        Claims and completions go together, as one statement does both: one round trip and one commit. All other writes
        of owners are a kind of their own, for which nobody else shall wait.
        """
        if len(self._under_way_by_lane) >= self._worthwhile_lanes:
            return []
        batch = self._alone_next() or self._longer()
        if batch:
            self._under_way_by_lane.append(len(batch))
        return batch

    def leave(self, batch: Sequence[Member[W]]) -> None:
        """Free the lane that carried a batch."""
        self._under_way_by_lane.remove(len(batch))
        self._under_way.difference_update(map(_identity, batch))

    def occupy(self, identity: bytes) -> None:
        """Occupy a lane with one verb that nobody has to gather, as no lane is busy."""
        self._under_way_by_lane.append(1)
        self._under_way.add(identity)

    def vacate(self, identity: bytes) -> None:
        """Free the lane of such a verb."""
        self._under_way_by_lane.remove(1)
        self._under_way.discard(identity)

    def put_apart(self, members: Iterable[Member[W]]) -> None:
        """Send each of these by itself, before anything else."""
        self._alone.extend(members)

    def _alone_next(self) -> list[Member[W]]:
        for _ in range(len(self._alone)):
            member = self._alone.popleft()
            identity = member[1]
            if identity not in self._under_way:
                self._under_way.add(identity)
                return [member]
            self._alone.append(member)
        return []

    def _longer(self) -> list[Member[W]]:
        """Return a batch of the kind that more members wait for: neither can starve, as each grows while it waits."""
        if len(self._owners) > self._usual_waiting:
            return self._next_owners() or self._next_usual()
        return self._next_usual() or self._next_owners()

    def _next_owners(self) -> list[Member[W]]:
        return self._picked(self._owners, self._share(len(self._owners)))

    def _next_usual(self) -> list[Member[W]]:
        """Take claims and completions in proportion to how many of each wait, or many of one kind alone.

        A batch of one kind is one statement instead of two, and callers that come back together stay together: so what
        is left to the next lane makes its batch no smaller than this one would have been.
        """
        waiting = self._usual_waiting
        wanted = self._share(waiting)
        if self.lanes > 1 and max(len(self._completions), self._claims_waiting) >= ENOUGH_OF_ONE_KIND:
            if len(self._completions) >= self._claims_waiting:
                return self._picked(self._completions, wanted) or self._next_claims(wanted)
            return self._next_claims(wanted) or self._picked(self._completions, wanted)
        if waiting <= wanted or not self._claims_waiting:
            completions = wanted
        else:
            completions = min(-(-wanted * len(self._completions) // waiting), max(1, wanted - 1))
        batch = self._picked(self._completions, completions)
        return batch + self._next_claims(wanted - len(batch))

    def _next_claims(self, wanted: int) -> list[Member[W]]:
        """Take from every operation in turn."""
        batch: list[Member[W]] = []
        for operation in list(self._claims):
            queue = self._claims.pop(operation)
            fair_share = -(-(wanted - len(batch)) // (len(self._claims) + 1))
            batch += self._picked(queue, fair_share)
            if queue:
                self._claims[operation] = queue  # At the end: its turn comes again after all others.
        self._claims_waiting -= len(batch)
        return batch

    def _share(self, waiting: int) -> int:
        if self._is_shared_out:
            waiting = min(waiting, -(-(waiting + sum(self._under_way_by_lane)) // self._worthwhile_lanes))
        return min(waiting, self._largest_batch)

    def _picked(self, queue: deque[Member[W]], wanted: int) -> list[Member[W]]:
        """Take the first members that have no twin under way, and let them be under way; the others keep their places.

        Twins are rare, so all are taken at once where there are none.
        """
        under_way = self._under_way
        if wanted >= len(queue):
            batch = list(queue)
            queue.clear()
        else:
            batch = [queue.popleft() for _ in range(wanted)]
        identities = set(map(_identity, batch))
        if len(identities) == len(batch) and under_way.isdisjoint(identities):
            under_way |= identities
            return batch
        queue.extendleft(reversed(batch))
        return self._picked_apart(queue, wanted)

    def _picked_apart(self, queue: deque[Member[W]], wanted: int) -> list[Member[W]]:
        batch: list[Member[W]] = []
        passed: list[Member[W]] = []
        while queue and len(batch) < wanted:
            member = queue.popleft()
            identity = member[1]
            if identity in self._under_way:
                passed.append(member)
            else:
                self._under_way.add(identity)
                batch.append(member)
        queue.extendleft(reversed(passed))
        return batch


def blames_a_member(error: Exception) -> bool:
    """Tell whether a batch came to nothing because of what one of its members is, which says nothing of the others.

    That is so for what the store says of a row, and for whatever is not about the store at all: a record that cannot
    be read, a value that cannot be sent. A store that is away would only be asked in vain once for each of them.
    """
    return isinstance(error, Spoilt) or not isinstance(error, StoreFailure)


def own_copy(error: Exception) -> Exception:
    """Return an exception for one of several waiters: each adds a traceback to its own."""
    return copy.copy(error).with_traceback(None)
