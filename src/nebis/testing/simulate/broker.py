"""A broker of a few lines and the books about it: what was committed, what arrived, what was applied."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from nebis.ports.messages import Message
from nebis.ports.outbox import Entry
from nebis.testing.simulate.promises import Rule


@dataclass(frozen=True, slots=True)
class _Birth:
    """When a message was staged and when it was committed, in steps of the run."""

    message: Message
    staged: int
    committed: int
    place: int
    """Among those of its transaction."""


class Broker:
    """Appends what arrives to a log for each ordering key, and remembers how far that was read."""

    def __init__(self) -> None:
        self.logs: defaultdict[str, list[Message]] = defaultdict(list)
        self.done: Counter[str] = Counter()
        """How many messages of each log are acknowledged."""
        self.deliveries: Counter[tuple[str, int]] = Counter()

    def append(self, message: Message) -> None:
        """Take a message in, however often it comes."""
        self.logs[message.ordering_key or ""].append(message)

    def acknowledge(self, log: str, offset: int) -> None:
        """Remember that everything up to an offset is done with; a late word takes nothing back."""
        self.done[log] = max(self.done[log], offset + 1)


class MailBooks:
    """Watches messages, and judges when nothing moves any more."""

    def __init__(self, complain: Callable[[Rule, str], None]) -> None:
        self.applied: list[str] = []
        """Ids, in the order in which the consumer's ledger got them."""
        self._complain = complain
        self._born: dict[str, _Birth] = {}
        self._step = 0

    def tick(self) -> int:
        """Return a number that grows with everything that happens to messages."""
        self._step += 1
        return self._step

    def committed(self, entries: Sequence[Entry], staged: int) -> None:
        """See messages whose transaction committed."""
        now = self.tick()
        for place, entry in enumerate(entries):
            self._born[entry.message.id] = _Birth(entry.message, staged, now, place)

    def arrived(self, message: Message) -> None:
        """See a message reach the broker."""
        born = self._born.get(message.id)
        if born is None or born.message.payload != message.payload:
            self._complain(Rule.MESSAGE_INVENTED, f"{message.id} was published")

    def written(self, message_id: str | None, payload: object) -> None:
        """See a row of the consumer's ledger that was committed."""
        assert message_id is not None, "every message of ours has an id"
        self.applied.append(message_id)
        born = self._born.get(message_id)
        if born is None or json.loads(born.message.payload) != payload:
            self._complain(Rule.MESSAGE_INVENTED, f"{message_id} was applied")

    def of_life(self, life: str) -> int:
        """Return how many messages a life committed."""
        return sum(life.encode() in born.message.payload for born in self._born.values())

    def judge(self) -> None:
        """Judge the whole run: each message applied once, in order, and none forgotten."""
        times = Counter(self.applied)
        for message_id in self._born:
            if not times[message_id]:
                self._complain(Rule.MESSAGE_LOST, message_id)
        for message_id, number in times.items():
            if number > 1:
                self._complain(Rule.MESSAGE_TWICE, f"{message_id}: {number} times")
        for later, earlier in combinations(reversed(self.applied), 2):
            if self._must_precede(later, earlier):
                self._complain(Rule.MESSAGE_ORDER, f"{earlier} before {later}")

    def _must_precede(self, one: str, other: str) -> bool:
        """Tell whether a message had to come before another: staged under the same key, once it was committed."""
        first, second = self._born.get(one), self._born.get(other)
        if first is None or second is None or first.message.ordering_key != second.message.ordering_key:
            return False
        if first.committed == second.committed:
            return first.place < second.place
        return first.committed < second.staged
