"""Everything that moves besides attempts: clients, late messages, resolvers, the clock and the purger."""

from __future__ import annotations

from collections.abc import Iterator

from nebis.core.record import EffectClass, EffectsMode, State
from nebis.testing.modelcheck import bank
from nebis.testing.modelcheck.changes import joined, received, sending, with_bank
from nebis.testing.modelcheck.configurations import Configuration, Transaction
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.hearing import words_of
from nebis.testing.modelcheck.plan import Plan
from nebis.testing.modelcheck.rows import NOW, Rows
from nebis.testing.modelcheck.table import Face, Instant
from nebis.testing.modelcheck.world import (
    NOBODY,
    At,
    Attempt,
    Cost,
    Message,
    Move,
    Situation,
    Told,
    Turn,
    found,
    times_happened,
)

RESOLVER, CLOCK = -2, -3
HAS_WINDOW = (EffectClass.STICKY, EffectClass.SUCCESS_ONLY)


class Surroundings:
    """All moves of one world that no attempt makes."""

    def __init__(self, configuration: Configuration, plan: Plan, rows: Rows, habits: frozenset[Habit]) -> None:
        self._configuration = configuration
        self._plan = plan
        self._rows = rows
        self._has_deadline = Habit.NO_DEADLINE not in habits

    def moves(self, turn: Turn) -> Iterator[Move]:
        """Yield what may happen."""
        if len(turn.situation.attempts) < self._configuration.at_once:
            yield from self._starts(turn)
        yield from self._arrivals(turn)
        for row in range(len(turn.situation.records)):
            face = self._rows.face(turn.situation, row)
            if face.state is State.IN_DOUBT:
                yield from self._resolutions(turn, row, face)
            if face.state is not None and turn.affords(Cost.AGE):
                yield from self._ageing(turn.situation, row, face)

    def _starts(self, turn: Turn) -> Iterator[Move]:
        """Begin a request, or a worker's recovery: when nobody is left at all, a worker comes by for free."""
        situation = turn.situation
        if turn.affords(Cost.START):
            for tenant in range(self._configuration.tenants):
                for command in range(self._configuration.commands):
                    request = Attempt(At.CLAIMING, turn.name, turn.name, 0, tenant, command)
                    told = Told(turn.name, "request", f"{tenant}/{command}")
                    yield Move(Cost.START, told, joined(situation, request))
        cost = Cost.START if situation.attempts else Cost.FREE
        if self._configuration.transaction is Transaction.SINGLE or not turn.affords(cost):
            return
        for tenant in range(self._configuration.tenants):
            face = self._rows.face(situation, tenant)
            if face.state is State.IN_PROGRESS:
                worker = Attempt(At.TAKING_OVER, turn.name, face.life, face.fence, tenant, face.command)
                yield Move(cost, Told(turn.name, "worker"), joined(situation, worker))

    def _arrivals(self, turn: Turn) -> Iterator[Move]:
        """Let any message that is on its way arrive now; its sender does not hear the answer."""
        situation = turn.situation
        for message in situation.sent:
            then = received(situation, message)
            if message.verb == "call":
                wanted = bank.Call(message.life, message.about, message.key, message.fence)
                ledger = bank.landed(then.bank, self._plan.effect_class(message.about), wanted)
                answer = "nothing new" if ledger == then.bank else "it happened"
                yield Move(Cost.FREE, Told(message.name, "late call", message.about, answer), with_bank(then, ledger))
                continue
            is_asking = message.verb in ("claim", "take_over")
            for cost, now in self._rows.instants(situation, self._rows.row(message)) if is_asking else NOW:
                reply, told_then = self._rows.told(then, message, now, turn.fence)
                told = Told(message.name, f"late {message.verb}", message.about, words_of(reply))
                yield Move(cost, told, told_then)

    def _resolutions(self, turn: Turn, row: int, face: Face) -> Iterator[Move]:
        """Lead a record out of doubt: at its deadline without anybody, or with true evidence; each may arrive late."""
        said: list[tuple[Cost, str, Situation]] = []
        if self._has_deadline:
            said.append((Cost.FREE, "U", turn.situation))
        if turn.affords(Cost.EVIDENCE) or turn.affords(Cost.LATE):
            said += [(Cost.EVIDENCE, word, then) for word, then in self._evidence(turn.situation, face)]
        for cost, word, then in said:
            message = Message("resolve", row, turn.name, face.life, face.fence, f"{word}/{face.open_step}")
            reply, resolved = self._rows.told(then, message, Instant.LIVE, turn.fence)
            if reply.record != turn.situation.records[row]:
                told = Told(RESOLVER, "resolve", message.about, words_of(reply))
                yield Move(cost, told, resolved)
                told = told._replace(answer="no answer")
                yield Move(Cost.LATE, told, sending(then, message))
                yield Move(Cost.LATE, told._replace(answer="applied; a copy is on its way"), sending(resolved, message))

    def _evidence(self, situation: Situation, face: Face) -> Iterator[tuple[str, Situation]]:
        """Yield what a reconciler or a person can truly say now."""
        is_opaque = self._plan.mode is EffectsMode.OPAQUE
        step = "0" if is_opaque else face.open_step
        if not step:
            yield "not owner dead", situation
            yield "again", situation
            return
        if times_happened(situation.bank, face.life, step):
            if is_opaque or step == self._plan.steps[-1]:
                yield "S", situation
            yield "happened", situation
            return
        yield "again", situation
        yield "not", situation
        if not self._may_still_call(situation, face.life, step):
            yield "not owner dead", situation
        effect_class = self._plan.effect_class(step)
        if found(situation.bank, face.life, step, face.key).memory == "R":
            yield "rejected", situation
        elif effect_class is not EffectClass.OPAQUE and face.key != NOBODY:
            yield "not voided", situation._replace(bank=bank.voided(situation.bank, face.life, step, face.key))

    def _may_still_call(self, situation: Situation, life: int, step: str) -> bool:
        """Tell whether a call is on its way, or its sender is about to make it."""
        return any(
            one.life == life and one.at is At.CALLING and self._plan.open_step(one.view) == step
            for one in situation.attempts
        ) or any(one.life == life and one.verb == "call" and one.about == step for one in situation.sent)

    def _ageing(self, situation: Situation, row: int, face: Face) -> Iterator[Move]:
        """Let time take its due: windows end and the purger comes by."""
        if self._rows.is_awaited(situation, face.life):
            return
        for verb, now in (("expire", Instant.DUE), ("purge", Instant.DUE), ("forget", Instant.FORGOTTEN)):
            reply, aged = self._rows.told(situation, Message(verb, row, NOBODY, NOBODY, 0), now)
            if aged is not situation:
                yield Move(Cost.AGE, Told(CLOCK, verb, "", words_of(reply)), aged)
        step = face.open_step
        if not self._configuration.has_recall_window or not step or self._plan.effect_class(step) not in HAS_WINDOW:
            return
        if not self._may_still_call(situation, face.life, step):
            # Assumption A5: no call is still under way when the bank's memory of its key ends.
            later = self._rows.table.time_passes(situation.records[row], Instant.RECALL_OVER)
            then = with_bank(situation, bank.forgotten(situation.bank, face.life, step))
            yield Move(Cost.AGE, Told(CLOCK, "forget keys"), self._rows.with_record(then, row, later))
