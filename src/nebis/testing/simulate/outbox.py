"""The outbox in memory: what the statements of the SQL stores do with staged messages, verb for verb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nebis.ports.messages import Message
from nebis.ports.outbox import Entry, Mark, MessageState


class SimulatedOutbox:
    """Committed messages, and who has them."""

    def __init__(self, clock: Callable[[], int], *, takes_heads_first: bool = True) -> None:
        self.entries: dict[int, Entry] = {}
        """By sequence."""
        self.takes_heads_first = takes_heads_first
        """As PostgreSQL does; SQLite goes by the order of staging alone."""
        self._clock = clock
        self._newest_sequence = 0

    def stage(self, messages: Sequence[Message]) -> list[Entry]:
        """Give messages a number inside a transaction, which nobody else sees until `commit`."""
        now, staged = self._clock(), []
        for message in messages:
            # A number is given before the commit, as a database does: one that commits late is long past (F109).
            self._newest_sequence += 1
            available_at = now if message.available_at is None else message.available_at
            staged.append(
                Entry(
                    sequence=self._newest_sequence,
                    message=replace(message, available_at=available_at),
                    state=MessageState.PENDING,
                    attempts=0,
                    fence=0,
                    created_at=now,
                    available_at=available_at,
                    ended_at=None,
                    taken_by=None,
                    last_error=None,
                )
            )
        return staged

    def commit(self, staged: Sequence[Entry]) -> list[Entry]:
        """Make staged messages visible, but for those whose id is known already; return them."""
        known = {entry.message.id for entry in self.entries.values()}
        fresh = [entry for entry in staged if entry.message.id not in known]
        self.entries.update((entry.sequence, entry) for entry in fresh)
        return fresh

    def take(self, taken_by: str, *, limit: int, lease_us: int) -> list[Entry]:
        """Take messages that are due, in the order of staging."""
        now = self._clock()
        heads = [entry for entry in self._firsts() if _is_free(entry, now)]
        if self.takes_heads_first:
            heads = sorted(heads, key=lambda entry: (entry.available_at, entry.sequence))[:limit]
        followers = sorted(sequence for head in heads for sequence in self._run_behind(head, now, limit))
        if self.takes_heads_first:
            chosen = [*(head.sequence for head in heads), *followers[: limit - len(heads)]]
        else:
            chosen = sorted([*(head.sequence for head in heads), *followers])[:limit]
        for sequence in chosen:
            entry = self.entries[sequence]
            self.entries[sequence] = replace(
                entry,
                fence=entry.fence + 1,
                attempts=entry.attempts + 1,
                taken_by=taken_by,
                available_at=now + lease_us,
            )
        return [self.entries[sequence] for sequence in sorted(chosen)]

    def _firsts(self) -> list[Entry]:
        """Return of each ordering key the earliest that has not ended, and everything without a key."""
        seen: set[str] = set()
        found = []
        for sequence in sorted(self.entries):
            entry = self.entries[sequence]
            key = entry.message.ordering_key
            if entry.state > MessageState.PARKED or key in seen:
                continue
            found.append(entry)
            if key is not None:
                seen.add(key)
        return found

    def _run_behind(self, head: Entry, now: int, limit: int) -> list[int]:
        """Return what follows a head under its ordering key, up to the first that is not free."""
        key = head.message.ordering_key
        waiting = [
            entry
            for sequence, entry in sorted(self.entries.items())
            if key is not None
            and entry.message.ordering_key == key
            and sequence > head.sequence
            and entry.state <= MessageState.PARKED
        ][:limit]
        found: list[int] = []
        for entry in waiting:
            if not _is_free(entry, now):
                break
            found.append(entry.sequence)
        return found

    def mark(self, taken_by: str, marks: Sequence[Mark]) -> frozenset[int]:
        """Say what became of messages; return those that were still this relay's to speak for."""
        now, kept = self._clock(), set()
        for mark in marks:
            entry = self.entries.get(mark.sequence)
            if entry is None or entry.state is not MessageState.PENDING:
                continue
            if entry.fence != mark.fence or entry.taken_by != taken_by:
                continue
            kept.add(mark.sequence)
            self.entries[mark.sequence] = replace(
                entry,
                state=mark.state,
                attempts=mark.attempts,
                taken_by=None,
                available_at=now + mark.pause_us,
                ended_at=now if mark.state >= MessageState.PUBLISHED else None,
                last_error=mark.error,
            )
        return frozenset(kept)


def _is_free(entry: Entry, now: int) -> bool:
    return entry.state is MessageState.PENDING and entry.available_at <= now
