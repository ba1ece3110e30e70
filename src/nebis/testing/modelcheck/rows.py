"""Where the store looks, when, and what it means for a life to leave the table."""

from __future__ import annotations

from nebis.core.record import State
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.table import Face, Instant, Reply, Table
from nebis.testing.modelcheck.world import At, Attempt, Cost, Message, Past, Situation

NOW = ((Cost.FREE, Instant.LIVE),)
LIVE_OR_LAPSED = ((Cost.FREE, Instant.LIVE), (Cost.FREE, Instant.LAPSED))
IN_ITS_WINDOW_OR_AFTER = ((Cost.FREE, Instant.LIVE), (Cost.AGE, Instant.DUE))
AFTER_ITS_WINDOW = ((Cost.FREE, Instant.DUE), (Cost.AGE, Instant.FORGOTTEN))


class Rows:
    """The rows of all tenants, read and written only through the state machine."""

    def __init__(self, table: Table, habits: frozenset[Habit]) -> None:
        self.table = table
        self._forgets_tenant = Habit.IDENTITY_WITHOUT_TENANT in habits
        self._claims_outlive = Habit.CLAIM_OUTLIVES_RETENTION in habits

    def row(self, asker: Attempt | Message) -> int:
        """Return which row the store finds for somebody."""
        return 0 if self._forgets_tenant else asker.tenant

    def face(self, situation: Situation, row: int) -> Face:
        """Return what a row shows."""
        return self.table.faces[situation.records[row]]

    def instants(self, situation: Situation, row: int) -> tuple[tuple[Cost, Instant], ...]:
        """Return when a claim or a takeover may arrive: a lease may be over at any moment."""
        face = self.face(situation, row)
        match face.state:
            case State.IN_PROGRESS if not face.has_lapsed:
                return LIVE_OR_LAPSED
            case State.COMPLETED | State.AVAILABLE if not self.is_awaited(situation, face.life):
                return IN_ITS_WINDOW_OR_AFTER
            case State.EXPIRED:
                return AFTER_ITS_WINDOW
            case _:
                return NOW

    def is_awaited(self, situation: Situation, life: int) -> bool:
        """Tell whether a copy of the claim that began a life is about: assumed not to outlive the life's retention."""
        if self._claims_outlive:
            return False
        return any(one.name == life and one.at is At.CLAIMING for one in situation.attempts) or any(
            one.name == life and one.verb == "claim" for one in situation.sent
        )

    def told(
        self, situation: Situation, message: Message, now: Instant = Instant.LIVE, fence: int = 0
    ) -> tuple[Reply, Situation]:
        """Let a message reach its row: return the answer, and the situation with the row as it is now."""
        row = self.row(message)
        reply = self.table.apply(situation.records[row], message, now, fence)
        return reply, self.with_record(situation, row, reply.record)

    def with_record(self, situation: Situation, row: int, record: int) -> Situation:
        """Return the situation with another row; a life that leaves the table is remembered with its end."""
        records, attempts, sent, bank, acks, past = situation
        if records[row] == record:
            return situation
        before, after = self.table.faces[records[row]], self.table.faces[record]
        records = (*records[:row], record, *records[row + 1 :])
        if before.life != after.life:
            past = tuple(one for one in past if one.life != after.life)
            if before.state is not None:
                past = (*past, Past(before.life, before.kind))
        return Situation(records, attempts, sent, bank, acks, past)
