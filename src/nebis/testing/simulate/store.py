"""A store in memory with row locks and transactions, which decides by the production state machine alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from nebis.core.answers import Answer, Kept, Locked
from nebis.core.record import Fence, Record, State
from nebis.core.step import Edge, Step
from nebis.core.verbs import Expire, Forget, Purge, Verb, identity_of
from nebis.ports.messages import Message
from nebis.ports.outbox import Entry
from nebis.ports.store import Scan
from nebis.testing.simulate.broker import MailBooks
from nebis.testing.simulate.outbox import SimulatedOutbox

Transition: TypeAlias = Callable[[Record | None, Verb, int, Fence], Step[Answer]]
Watcher: TypeAlias = Callable[[bytes, Record | None, Record | None], None]
"""Is told of every change of a committed record: its identity, what it was and what it is."""


class SimulatedStore:
    """Committed records and the locks of open transactions."""

    def __init__(self, transition: Transition, clock: Callable[[], int], watcher: Watcher, books: MailBooks) -> None:
        self.records: dict[bytes, Record] = {}
        self.outbox = SimulatedOutbox(clock)
        self.books = books
        self._transition = transition
        self._clock = clock
        self._watcher = watcher
        self._locks: dict[bytes, SimulatedTransaction] = {}
        self._newest_fence = 0

    @property
    def now(self) -> int:
        """Return the store's clock, in microseconds."""
        return self._clock()

    def apply(self, verb: Verb) -> Answer | Locked:
        """Apply a verb in a commit of its own."""
        identity = identity_of(verb)
        committed = self.records.get(identity)
        step = self.decide(committed, verb)
        # As the stores do: whoever changes nothing of what is committed is answered without a lock.
        if identity in self._locks and (committed is None or step.record != committed):
            return Locked()
        self.keep(identity, step.record)
        return step.answer

    def decide(self, record: Record | None, verb: Verb) -> Step[Answer]:
        """Ask the state machine, with a fence that was never given before (I10)."""
        self._newest_fence += 1
        return self._transition(record, verb, self._clock(), Fence(self._newest_fence))

    def keep(self, identity: bytes, record: Record | None) -> None:
        """Commit what became of a record."""
        old = self.records.get(identity)
        if old is record:
            return
        if record is None:
            self.records.pop(identity, None)
        else:
            self.records[identity] = record
        self._watcher(identity, old, record)

    def find(self, identity: bytes) -> Record | None:
        """Read a record as it is committed."""
        return self.records.get(identity)

    def barrier(self, identity: bytes) -> Record | Locked | None:
        """Read a record that no open transaction can still change."""
        return Locked() if identity in self._locks else self.records.get(identity)

    def page(self, scan: Scan) -> list[Record]:
        """Read one page, as every store does: by lease end, then by identity."""
        now = self._clock()
        found = [
            record
            for record in self.records.values()
            if (not scan.states or record.state in scan.states)
            and (not scan.lapsed_only or (record.state is State.IN_PROGRESS and record.has_lapsed(now)))
            and (scan.after is None or (record.lease_until, record.identity) > scan.after)
        ]
        return sorted(found, key=lambda record: (record.lease_until, record.identity))[: scan.limit]

    def sweep(self) -> None:
        """Let every record age that is due."""
        for identity in list(self.records):
            for ages in (Expire, Purge, Forget):
                record = self.records.get(identity)
                if record is None or identity in self._locks:
                    break
                step = self._transition(record, ages(identity=identity), self._clock(), Fence(0))
                if step.edge is not Edge.REFUSED:
                    self.keep(identity, step.record)

    def lock(self, identity: bytes, transaction: SimulatedTransaction) -> bool:
        """Give a lock to a transaction, unless another one has it."""
        return self._locks.setdefault(identity, transaction) is transaction

    def unlock(self, transaction: SimulatedTransaction) -> None:
        """Take every lock of a transaction away."""
        for identity in [held for held, holder in self._locks.items() if holder is transaction]:
            del self._locks[identity]


class SimulatedTransaction:
    """One transaction: what it wrote is seen by nobody else until it commits."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._written: dict[bytes, Record | None] = {}
        self._rows: list[Callable[[], None]] = []
        self._staged: list[Entry] = []
        self._staged_at = 0
        self.is_over = False

    def hold(self, identity: bytes) -> Record | Locked | None:
        """Lock a record and read it."""
        return self._read(identity) if self._store.lock(identity, self) else Locked()

    def apply(self, verb: Verb, messages: Sequence[Message] = ()) -> Answer | Locked:
        """Apply a verb under the lock of its record, and stage messages if it is kept."""
        identity = identity_of(verb)
        if not self._store.lock(identity, self):
            return Locked()
        step = self._store.decide(self._read(identity), verb)
        self._written[identity] = step.record
        if messages and isinstance(step.answer, Kept):
            self._staged += self._store.outbox.stage(messages)
            self._staged_at = self._store.books.tick()
        return step.answer

    def write(self, row: Callable[[], None]) -> None:
        """Write a row of the application's."""
        self._rows.append(row)

    def commit(self) -> None:
        """Make everything visible at once, and let the locks go."""
        assert not self.is_over, "a transaction ends once"
        for identity, record in self._written.items():
            self._store.keep(identity, record)
        for row in self._rows:
            row()
        if self._staged:
            self._store.books.committed(self._store.outbox.commit(self._staged), self._staged_at)
        self._end()

    def rollback(self) -> None:
        """Forget everything, and let the locks go."""
        if not self.is_over:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        self._store.unlock(self)

    def _read(self, identity: bytes) -> Record | None:
        return self._written[identity] if identity in self._written else self._store.find(identity)
