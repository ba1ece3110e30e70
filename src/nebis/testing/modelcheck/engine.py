"""The moves of attempts: what an honest engine does, what it may hear, and where it may die."""

from __future__ import annotations

from collections.abc import Iterator

from nebis.core.answers import Refusal, Refused
from nebis.core.record import EffectClass, EffectsMode
from nebis.testing.modelcheck import bank
from nebis.testing.modelcheck.changes import (
    acknowledged,
    claim_of,
    instead,
    said_by,
    sending,
    unanswered,
    with_bank,
    without,
)
from nebis.testing.modelcheck.configurations import Configuration, Transaction
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.hearing import Hearing, words_of
from nebis.testing.modelcheck.plan import Deed, Plan
from nebis.testing.modelcheck.rows import Rows
from nebis.testing.modelcheck.transactions import Transactions
from nebis.testing.modelcheck.world import NOBODY, Ack, At, Attempt, Body, Cost, Message, Move, Told, Turn


class Engine:
    """All moves of all attempts in one world."""

    def __init__(self, configuration: Configuration, plan: Plan, rows: Rows, habits: frozenset[Habit]) -> None:
        self._plan = plan
        self._rows = rows
        self._habits = habits
        self._hearing = Hearing(plan, rows.table, habits)
        self._transactions = Transactions(rows, self._hearing, habits)
        self._is_single = configuration.transaction is Transaction.SINGLE

    def moves(self, turn: Turn) -> Iterator[Move]:
        """Yield what any attempt may do."""
        for attempt in turn.situation.attempts:
            if turn.affords(Cost.CRASH):
                yield Move(Cost.CRASH, Told(attempt.name, "die"), without(turn.situation, attempt))
            match attempt.at:
                case At.CLAIMING if self._is_single:
                    yield from self._transactions.single(turn, attempt)
                case At.CLAIMING:
                    yield from self._ask(turn, attempt, claim_of(attempt))
                case At.TAKING_OVER:
                    yield from self._ask(turn, attempt, said_by(attempt, "take_over"))
                case At.OWNING:
                    yield from self._go_on(turn, attempt)
                case At.CALLING:
                    yield from self._call(turn, attempt)
                case At.HEARD:
                    yield from self._report(turn, attempt)
                case At.BARRIER:
                    yield self._transactions.read_again(turn, attempt)
                case At.LEAVING:
                    yield from self._leave(turn, attempt)

    def _ask(self, turn: Turn, attempt: Attempt, message: Message) -> Iterator[Move]:
        """Send a claim or a takeover and hear the answer, or not."""
        yield from unanswered(turn, attempt, message)
        for cost, now in self._rows.instants(turn.situation, self._rows.row(attempt)):
            if turn.affords(cost):
                reply, then = self._rows.told(turn.situation, message, now, turn.fence)
                told = Told(attempt.name, message.verb, "", words_of(reply))
                yield Move(cost, told, self._hearing.asked(then, attempt, reply))

    def _go_on(self, turn: Turn, attempt: Attempt) -> Iterator[Move]:
        """Do the next thing, or stop before it."""
        deed = self._plan.next_deed(attempt.view)
        if Habit.UNDO_SKIPPED in self._habits and "<" in attempt.view:
            deed = Deed("complete", "R")
        if turn.affords(Cost.FAIL):
            yield from self._stop_early(turn, attempt, deed)
        match deed.verb:
            case "intend":
                key = attempt.life if attempt.key == NOBODY else attempt.key
                key = attempt.name if Habit.KEY_PER_ATTEMPT in self._habits else key
                about = deed.about + "+" if attempt.again else deed.about
                yield from self._owner_asks(turn, attempt, said_by(attempt, "intend", about)._replace(key=key))
            case "local":
                message = said_by(attempt, "local", deed.about + "H")
                yield from self._transactions.guarded(turn, attempt, message, deed.about)
                yield self._reject(turn, attempt, attempt._replace(at=At.HEARD, said="R"))
            case "turn_back":
                yield from self._owner_asks(turn, attempt, said_by(attempt, "turn_back"))
            case "stop":
                said = "release" if self._plan.is_clean(attempt.view) else "suspend"
                stopping = attempt._replace(at=At.LEAVING, said=said)
                yield Move(Cost.FREE, Told(attempt.name, "fail"), instead(turn.situation, attempt, stopping))
            case "doubt":
                doubting = attempt._replace(at=At.LEAVING, said="doubt")
                yield Move(Cost.FREE, Told(attempt.name, "cannot undo"), instead(turn.situation, attempt, doubting))
            case _:
                yield from self._complete(turn, attempt, deed.about)

    def _reject(self, turn: Turn, attempt: Attempt, rejecting: Attempt) -> Move:
        return Move(Cost.REJECT, Told(attempt.name, "reject"), instead(turn.situation, attempt, rejecting))

    def _stop_early(self, turn: Turn, attempt: Attempt, deed: Deed) -> Iterator[Move]:
        """Stop for a reason that the caller may retry: clean gives the key back, dirty lets a successor go on."""
        if self._plan.mode is EffectsMode.OPAQUE or deed.verb == "stop" or (deed.verb == "complete" and attempt.view):
            return
        for said in ("release", "withdraw") if self._plan.is_clean(attempt.view) else ("suspend",):
            leaving = attempt._replace(at=At.LEAVING, said=said)
            yield Move(Cost.FAIL, Told(attempt.name, "fail"), instead(turn.situation, attempt, leaving))

    def _complete(self, turn: Turn, attempt: Attempt, kind: str) -> Iterator[Move]:
        message = said_by(attempt, "complete", kind)
        own = Ack(attempt.life, Body(kind, attempt.life, attempt.name))
        if Habit.ACK_BEFORE_COMPLETE in self._habits and own not in turn.situation.acks:
            yield Move(Cost.FREE, Told(attempt.name, "answer too early"), acknowledged(turn.situation, own))
        if self._plan.mode is EffectsMode.LOCAL and kind == "S":
            yield from self._transactions.guarded(turn, attempt, message, "0")
            yield self._reject(turn, attempt, attempt._replace(view="R"))
        else:
            yield from self._owner_asks(turn, attempt, message)

    def _call(self, turn: Turn, attempt: Attempt) -> Iterator[Move]:
        """Call the bank: it answers, or nobody knows whether the call will ever arrive."""
        situation = turn.situation
        step = self._plan.open_step(attempt.view)
        effect_class = self._plan.effect_class(step)
        for said in bank.call(situation.bank, effect_class, bank.Call(attempt.life, step, attempt.key, attempt.fence)):
            if not turn.affords(said.cost):
                continue
            then = with_bank(situation, said.ledger)
            told = Told(attempt.name, "call", step, said.answer)
            if said.answer == "stale":
                yield Move(said.cost, told, without(then, attempt))
            elif self._plan.mode is EffectsMode.OPAQUE:
                yield Move(said.cost, told, instead(then, attempt, attempt._replace(at=At.OWNING, view=said.answer)))
            else:
                yield Move(said.cost, told, instead(then, attempt, attempt._replace(at=At.HEARD, said=said.answer)))
        if self._plan.mode is EffectsMode.DECLARED and not attempt.again and turn.affords(Cost.FAIL):
            told = Told(attempt.name, "cannot call", step)
            yield Move(Cost.FAIL, told, instead(situation, attempt, attempt._replace(at=At.HEARD, said="N")))
        message = said_by(attempt, "call", step)._replace(key=attempt.key)
        underway = sending(situation, message)
        told = Told(attempt.name, "call", step, "no answer, and it dies")
        yield Move(Cost.CRASH, told, without(underway, attempt))
        told = told._replace(answer="no answer")
        yield Move(Cost.LATE, told, instead(underway, attempt, self._after_timeout(attempt, effect_class)))

    def _after_timeout(self, attempt: Attempt, effect_class: EffectClass) -> Attempt:
        if Habit.TIMEOUT_IS_A_REJECTION in self._habits:
            return attempt._replace(at=At.HEARD, said="R")
        if Habit.TIMEOUT_IS_NOTHING in self._habits:
            return attempt._replace(at=At.HEARD, said="N")
        if Habit.CALLED_AGAIN_AFTER_TIMEOUT in self._habits:
            return attempt
        if Habit.RELEASED_AFTER_TIMEOUT in self._habits:
            return attempt._replace(at=At.LEAVING, said="release")
        if self._plan.mode is EffectsMode.OPAQUE or not effect_class.may_be_called_again:
            return attempt._replace(at=At.LEAVING, said="doubt")
        if effect_class is EffectClass.FENCED and Habit.FENCED_CALLED_AGAIN not in self._habits:
            # Only a higher fence can stop the call that may still be on its way, and only a successor has one.
            return attempt._replace(at=At.LEAVING, said="suspend")
        return attempt._replace(at=At.OWNING, again=True)

    def _report(self, turn: Turn, attempt: Attempt) -> Iterator[Move]:
        """Say how an effect ended."""
        if "o" in attempt.view:
            step = self._plan.open_step(attempt.view)
            yield from self._owner_asks(turn, attempt, said_by(attempt, "checkpoint", step + attempt.said))
        else:
            step = self._plan.next_deed(attempt.view).about
            yield from self._owner_asks(turn, attempt, said_by(attempt, "local", step + attempt.said))

    def _leave(self, turn: Turn, attempt: Attempt) -> Iterator[Move]:
        """Stop; whatever the store answers, nothing is left to do."""
        message = said_by(attempt, attempt.said)
        told = Told(attempt.name, message.verb, "", "no answer")
        yield Move(Cost.LATE, told, sending(without(turn.situation, attempt), message))
        reply, then = self._rows.told(turn.situation, message)
        yield Move(Cost.FREE, told._replace(answer=words_of(reply)), without(then, attempt))

    def _owner_asks(self, turn: Turn, attempt: Attempt, message: Message) -> Iterator[Move]:
        yield from unanswered(turn, attempt, message)
        reply, then = self._rows.told(turn.situation, message)
        told = Told(attempt.name, message.verb, message.about, words_of(reply))
        yield Move(Cost.FREE, told, self._hearing.owner_asked(then, attempt, message, reply))
        if isinstance(reply.answer, Refused) and reply.answer.reason is Refusal.NOT_DEFINITE:
            doubting = attempt._replace(at=At.LEAVING, said="doubt", again=False)
            yield Move(Cost.FREE, told, instead(then, attempt, doubting))
