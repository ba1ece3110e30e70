"""Everything that moves besides attempts: clients, late messages, resolvers, the clock and the purger."""

from __future__ import annotations

from collections.abc import Iterator

from nebis.core.record import EffectClass, EffectsMode, State
from nebis.testing.modelcheck import bank
from nebis.testing.modelcheck.changes import received, sending
from nebis.testing.modelcheck.configurations import Configuration, Transaction
from nebis.testing.modelcheck.engine import Engine
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.plan import Plan
from nebis.testing.modelcheck.table import Face, Instant, Table
from nebis.testing.modelcheck.world import (
    NOBODY,
    At,
    Attempt,
    Cost,
    Message,
    Move,
    Situation,
    Told,
    found,
    times_happened,
)

CLIENT, NETWORK, RESOLVER, CLOCK = -2, -3, -4, -5
HAS_WINDOW = (EffectClass.STICKY, EffectClass.SUCCESS_ONLY)


class Surroundings:
    """All moves of one world that no attempt makes."""

    def __init__(
        self, configuration: Configuration, plan: Plan, table: Table, engine: Engine, habits: frozenset[Habit]
    ) -> None:
        self._configuration = configuration
        self._plan = plan
        self._table = table
        self._engine = engine
        self._habits = habits

    def moves(self, situation: Situation, name: int, fence: int) -> Iterator[Move]:
        """Yield what may happen; `name` and `fence` are the next free ones."""
        yield from self._starts(situation, name)
        yield from self._arrivals(situation, fence)
        for row, record in enumerate(situation.records):
            face = self._table.faces[record]
            if face.state is State.IN_DOUBT:
                yield from self._resolutions(situation, row, face, name, fence)
            yield from self._ageing(situation, row, face)

    def _starts(self, situation: Situation, name: int) -> Iterator[Move]:
        """Begin a request, or a worker's recovery: when nobody is left at all, a worker comes by for free."""
        if len(situation.attempts) >= self._configuration.at_once:
            return
        for tenant in range(self._configuration.tenants):
            for command in range(self._configuration.commands):
                request = Attempt(At.CLAIMING, name, name, 0, tenant, command)
                told = Told(name, "is a request", f"of tenant {tenant} with command {command}")
                yield Move(Cost.START, told, situation._replace(attempts=(*situation.attempts, request)))
        is_single = self._configuration.transaction is Transaction.SINGLE
        for tenant, record in enumerate(situation.records):
            face = self._table.faces[record]
            if face.state is not State.IN_PROGRESS or is_single:
                continue
            worker = Attempt(At.TAKING_OVER, name, face.life, face.fence, tenant, face.command)
            told = Told(name, "is a worker", "that found the record in progress")
            cost = Cost.START if situation.attempts else Cost.FREE
            yield Move(cost, told, situation._replace(attempts=(*situation.attempts, worker)))

    def _arrivals(self, situation: Situation, fence: int) -> Iterator[Move]:
        """Let any message that is on its way arrive now; its sender does not hear the answer."""
        for message in situation.sent:
            then = received(situation, message)
            if message.verb == "call":
                wanted = bank.Call(message.life, message.about, message.key, message.fence)
                ledger = bank.landed(then.bank, self._plan.effect_class(message.about), wanted)
                yield Move(Cost.FREE, Told(message.name, "late call"), then._replace(bank=ledger))
                continue
            row = self._engine.row(message)
            face = self._table.faces[situation.records[row]]
            instants: tuple[tuple[Cost, Instant], ...] = ((Cost.FREE, Instant.LIVE),)
            if message.verb in ("claim", "take_over"):
                instants = self._engine.instants(situation, face)
            for cost, now in instants:
                reply = self._table.apply(situation.records[row], message, now, fence)
                told = Told(message.name, f"late {message.verb}", reply.edge)
                yield Move(cost, told, self._engine.with_record(then, row, reply.record))

    def _resolutions(self, situation: Situation, row: int, face: Face, name: int, fence: int) -> Iterator[Move]:
        """Lead a record out of doubt: at its deadline without anybody, or with true evidence; each may arrive late."""
        said: list[tuple[Cost, str, Situation]] = []
        if Habit.NO_DEADLINE not in self._habits:
            said.append((Cost.FREE, "U", situation))
        said += [(Cost.EVIDENCE, word, then) for word, then in self._evidence(situation, face)]
        for cost, word, then in said:
            message = Message("resolve", row, name, face.life, face.fence, f"{word}/{face.open_step}")
            reply = self._table.apply(situation.records[row], message, Instant.LIVE, fence)
            if reply.record != situation.records[row]:
                told = Told(RESOLVER, f"resolve {word}", reply.edge)
                yield Move(cost, told, self._engine.with_record(then, row, reply.record))
                yield Move(Cost.LATE, Told(RESOLVER, f"resolve {word}", "no answer"), sending(then, message))

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
        record = situation.records[row]
        if face.state is None or self._engine.is_awaited(situation, face.life):
            return
        for verb, now in (("expire", Instant.DUE), ("purge", Instant.DUE), ("forget", Instant.FORGOTTEN)):
            reply = self._table.apply(record, Message(verb, row, NOBODY, NOBODY, 0), now, 0)
            if reply.record != record:
                told = Told(CLOCK, verb, reply.edge)
                yield Move(Cost.AGE, told, self._engine.with_record(situation, row, reply.record))
        step = face.open_step
        if not self._configuration.has_recall_window or not step or self._plan.effect_class(step) not in HAS_WINDOW:
            return
        if not self._may_still_call(situation, face.life, step):
            # Assumption A5: no call is still under way when the bank's memory of its key ends.
            then = self._engine.with_record(situation, row, self._table.time_passes(record, Instant.RECALL_OVER))
            then = then._replace(bank=bank.forgotten(then.bank, face.life, step))
            yield Move(Cost.AGE, Told(CLOCK, "the bank forgets derived keys"), then)
