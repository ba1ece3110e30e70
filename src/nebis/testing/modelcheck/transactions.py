"""The moves of attempts whose writes commit together with their record."""

from __future__ import annotations

from collections.abc import Iterator

from nebis.core.answers import Granted
from nebis.core.record import State
from nebis.core.step import Edge
from nebis.testing.modelcheck import bank
from nebis.testing.modelcheck.changes import claim_of, instead, ownership_of, with_bank, without
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.hearing import Hearing, words_of
from nebis.testing.modelcheck.rows import Rows
from nebis.testing.modelcheck.table import Instant, Reply
from nebis.testing.modelcheck.world import At, Attempt, Cost, Message, Move, Situation, Told, Turn

ROWS_COMMITTED = frozenset({Edge.COMPLETED, Edge.CHECKPOINTED_LOCAL})


class Transactions:
    """Single transactions, guarded ones, and the way out of a commit without an answer.

    A commit that is still in flight holds the row lock, so nobody can tell whether it was decided at once or when the
    lock became free: here each commit is applied or not at once, and only its answer can be lost.
    """

    def __init__(self, rows: Rows, hearing: Hearing, habits: frozenset[Habit]) -> None:
        self._rows = rows
        self._hearing = hearing
        self._habits = habits

    def single(self, turn: Turn, attempt: Attempt) -> Iterator[Move]:
        """Claim, run and complete in one commit; after a lost answer the same claim is simply sent again."""
        situation = turn.situation
        row = self._rows.row(attempt)
        for cost, now in self._rows.instants(situation, row):
            reply, then = self._rows.told(situation, claim_of(attempt), now, turn.fence)
            if isinstance(reply.answer, Granted):
                yield from self._finish_single(situation, attempt, cost, reply)
            else:
                told = Told(attempt.name, "claim", "", reply.edge)
                yield Move(cost, told, self._hearing.asked(then, attempt, reply))

    def _finish_single(self, situation: Situation, attempt: Attempt, cost: Cost, claimed: Reply) -> Iterator[Move]:
        row = self._rows.row(attempt)
        owned = self._rows.table.faces[claimed.shown]
        for kind in "SR" if cost is Cost.FREE else "S":
            message = Message("complete", attempt.tenant, attempt.name, owned.life, owned.fence, kind)
            ended = self._rows.table.apply(claimed.record, message, Instant.LIVE, 0)
            then = self._rows.with_record(situation, row, ended.record)
            if kind == "S":
                then = with_bank(then, bank.committed(then.bank, owned.life, "0"))
            shown = self._rows.table.faces[ended.record]
            spent = Cost.REJECT if kind == "R" else cost
            told = Told(attempt.name, "transaction", kind, ended.edge)
            yield Move(spent, told, self._hearing.replayed(then, attempt, owned.life, shown))
            if spent is Cost.FREE:
                lost = told._replace(answer="commit applied, answer lost")
                yield Move(Cost.LATE, lost, then)

    def guarded(self, turn: Turn, attempt: Attempt, message: Message, step: str) -> Iterator[Move]:
        """Commit rows with the record, both or neither; the commit's answer may be lost either way."""
        situation = turn.situation
        reply, then = self._rows.told(situation, message)
        if reply.edge in ROWS_COMMITTED:
            then = with_bank(then, bank.committed(then.bank, attempt.life, step))
            waiting = attempt._replace(at=At.BARRIER)
            told = Told(attempt.name, "commit", message.about, "applied, answer lost")
            yield Move(Cost.LATE, told, instead(then, attempt, waiting))
            yield Move(Cost.CRASH, told._replace(answer="applied, and it dies"), without(then, attempt))
            told = told._replace(answer="not applied, answer lost")
            yield Move(Cost.LATE, told, instead(situation, attempt, waiting))
        told = Told(attempt.name, "commit", message.about, words_of(reply))
        yield Move(Cost.FREE, told, self._hearing.owner_asked(then, attempt, message, reply))

    def read_again(self, turn: Turn, attempt: Attempt) -> Move:
        """Resolve a commit without an answer behind the row lock: only now is the old transaction known to be over."""
        situation = turn.situation
        face = self._rows.face(situation, self._rows.row(attempt))
        told = Told(attempt.name, "read again")
        if Habit.COMMIT_RUN_AGAIN_BLINDLY in self._habits:
            again = with_bank(situation, bank.committed(situation.bank, attempt.life, "0"))
            return Move(Cost.FREE, told, instead(again, attempt, attempt._replace(at=At.OWNING)))
        is_same_life = face.life == attempt.life or Habit.READ_AGAIN_IGNORES_LIFE in self._habits
        if face.outcome is not None and is_same_life:
            told = told._replace(answer="completed")
            return Move(Cost.FREE, told, self._hearing.replayed(situation, attempt, attempt.life, face))
        if face.state is State.IN_PROGRESS and (face.life, face.fence, face.name) == ownership_of(attempt):
            told = told._replace(answer="still mine, and this is what it shows")
            known = attempt._replace(at=At.OWNING, view=face.view)
            return Move(Cost.FREE, told, instead(situation, attempt, known))
        return Move(Cost.FREE, told._replace(answer="owned by another"), without(situation, attempt))
