"""How asks are performed: each is a message that takes its time, and may befall what the fault list says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nebis.errors import EffectTimedOut, InDoubt, PreconditionFailed, Rejected, Retryable
from nebis.flow import Ask
from nebis.ports.asks import (
    Apply,
    Attend,
    AwaitChange,
    Barrier,
    CallEffect,
    Draw,
    Elapsed,
    Find,
    KeepLate,
    KeepTrying,
    MakeClaim,
    Pause,
    Raised,
    Returned,
    RunHandler,
    Tell,
    TellClaimed,
    TellCompleted,
    TransactionApply,
    TransactionBegin,
    TransactionCommit,
    TransactionHold,
    TransactionIsSame,
    TransactionRollback,
    TransactionSettle,
)
from nebis.ports.store import DefiniteFailure, IndefiniteFailure
from nebis.recovery import ReadClock, ReadPage, Run, nobody
from nebis.testing.simulate.bank import Declined, Look, Order, Unclear
from nebis.testing.simulate.cast import Frame, Node, Process
from nebis.testing.simulate.faults import LEASE_SECONDS, Fault, Trouble
from nebis.testing.simulate.store import SimulatedTransaction
from nebis.testing.simulate.trades import Deal, Mood, WriteRow
from nebis.testing.simulate.world import RETRY_SECONDS, SERVER_NOTICES_SECONDS, World

CLOCK_FACTOR = 60
"""A clock steps by minutes where a process is frozen for seconds."""

TO_A_NODE = frozenset(
    {
        Trouble.CRASH_BEFORE,
        Trouble.PAUSE,
        Trouble.PARTITION,
        Trouble.CLOCK_FORTH,
        Trouble.CLOCK_BACK,
    }
)
TO_A_MESSAGE = frozenset(
    {Trouble.CRASH_AFTER, Trouble.LOST, Trouble.REPLY_LOST, Trouble.LATE, Trouble.SLOW, Trouble.REFUSED}
)
_TO_STORE = TO_A_NODE | TO_A_MESSAGE
_TO_BANK = TO_A_NODE | TO_A_MESSAGE - {Trouble.REFUSED} | {Trouble.DECLINE, Trouble.NEVER_SENT}

_MOODS: dict[Trouble, Callable[[], Exception]] = {
    Trouble.RAISE: lambda: RuntimeError("the handler has a bug"),
    Trouble.GIVE_UP: lambda: Retryable("later"),
    Trouble.WITHDRAW: PreconditionFailed,
    Trouble.DOUBT: lambda: InDoubt("who-knows"),
    Trouble.REJECT: lambda: Rejected("no"),
}
WAITING: tuple[bool, Any] = (False, None)
_DONE: tuple[bool, Any] = (True, None)


class Performer:
    """Performs what flows ask for, in one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._performs: dict[type[Ask[Any]], Callable[[Process, Any], tuple[bool, Any]]] = {
            Draw: lambda _, __: (True, world.draw()),
            Elapsed: lambda _, __: (True, world.now),
            MakeClaim: self._make_claim,
            Tell: lambda _, __: _DONE,
            TellClaimed: lambda _, __: _DONE,
            TellCompleted: lambda _, __: _DONE,
            KeepLate: lambda _, __: _DONE,
            Attend: self._attend,
            KeepTrying: self._keep_trying,
            Pause: lambda process, ask: self._wait(process, ask.seconds, None),
            AwaitChange: lambda process, ask: self._wait(process, ask.seconds, answer=True),
            Mood: self._mood,
            RunHandler: self._run_handler,
            Run: self._run,
            Apply: self._apply,
            Find: lambda process, ask: self.send(process, lambda: world.store.find(ask.identity)),
            Barrier: lambda process, ask: self.send(process, lambda: world.store.barrier(ask.identity)),
            ReadClock: lambda process, _: self.send(process, world.clock),
            # One record at a time: a larger page is shuffled by its reader, and no two runs would be alike.
            ReadPage: lambda process, ask: self.send(process, lambda: world.store.page(replace(ask.scan, limit=1))),
            CallEffect: self._call_effect,
            Deal: lambda process, ask: self._deal(process, ask.order, LEASE_SECONDS / 2),
            WriteRow: lambda process, ask: self._write_row(process, ask.order, None),
            TransactionBegin: self._begin,
            TransactionHold: lambda process, ask: self._inside(process, lambda opened: opened.hold(ask.identity)),
            TransactionApply: lambda process, ask: self._inside(process, lambda opened: opened.apply(ask.verb)),
            TransactionSettle: lambda process, ask: self._inside(
                process, lambda opened: opened.apply(ask.verb, ask.messages)
            ),
            TransactionIsSame: lambda _, __: (True, True),
            TransactionCommit: self._commit,
            TransactionRollback: self._rollback,
        }

    def learn(self, performs: Mapping[type[Ask[Any]], Callable[[Process, Any], tuple[bool, Any]]]) -> None:
        """Be told how more kinds of asks are performed."""
        self._performs.update(performs)

    def perform(self, process: Process, ask: Ask[Any]) -> tuple[bool, Any]:
        """Do what a flow asks for: return the answer if it is known at once, or see to it that it comes."""
        return self._performs[type(ask)](process, ask)

    def befallen(self, process: Process, suits: frozenset[Trouble]) -> Fault | None:
        """Let happen to the node what is due, and return what is left to happen to its message."""
        fault = self._world.hazards.befall(self._world.asks, suits)
        if fault is None or fault.trouble not in TO_A_NODE:
            return fault
        self._strike(process.node, fault)
        return None

    def _strike(self, node: Node, fault: Fault) -> None:
        world = self._world
        match fault.trouble:
            case Trouble.CRASH_BEFORE:
                world.crash(node)
            case Trouble.PAUSE:
                node.frozen_until = world.now + fault.seconds
            case Trouble.PARTITION:
                node.cut_until = world.now + fault.seconds
            case Trouble.CLOCK_FORTH:
                world.skew_us += int(fault.seconds * CLOCK_FACTOR * 1_000_000)
            case _:
                world.skew_us -= int(fault.seconds * CLOCK_FACTOR * 1_000_000)

    def _wait(self, process: Process, seconds: float, answer: object) -> tuple[bool, Any]:
        self.befallen(process, TO_A_NODE)
        self._world.reply(process, seconds * (0.5 + self._world.chance.random() / 2), answer)
        return WAITING

    def _make_claim(self, _: Process, ask: MakeClaim) -> tuple[bool, Any]:
        drawn = self._world.draw()
        return True, ask.make(drawn.record_id, drawn.nonce)

    def _attend(self, process: Process, ask: Attend) -> tuple[bool, Any]:
        self._world.keep_alive(process, ask.answer.record, ask.lease_us, ask.renewal_seconds)
        return _DONE

    def _keep_trying(self, process: Process, ask: KeepTrying) -> tuple[bool, Any]:
        self._world.keep_trying(process.node, ask.verb)
        return _DONE

    def _mood(self, process: Process, ask: Mood) -> tuple[bool, Any]:
        fault = self.befallen(process, ask.suits | TO_A_NODE)
        error = None if fault is None else _MOODS[fault.trouble]()
        self._world.reply(process, self._world.moment(), None, error)
        return WAITING

    def _run_handler(self, process: Process, ask: RunHandler) -> tuple[bool, Any]:
        self._world.enter(process, self._world.handler(process, ask.record))
        return _DONE

    def _run(self, process: Process, ask: Run) -> tuple[bool, Any]:
        self._world.enter(process, Frame(ask.flow, None if ask.handler is nobody else ask.handler()))
        return _DONE

    def _apply(self, process: Process, ask: Apply) -> tuple[bool, Any]:
        if process.transaction is not None:
            return self._inside(process, lambda opened: opened.apply(ask.verb))
        return self.send(process, lambda: self._world.store.apply(ask.verb))

    def send(
        self,
        process: Process,
        act: Callable[[], Any],
        lose: Callable[[], None] = lambda: None,
        suits: frozenset[Trouble] = _TO_STORE,
    ) -> tuple[bool, Any]:
        """Carry a message to the store and its answer back; `lose` is what becomes of one that never arrives."""
        world, fault = self._world, self.befallen(process, suits)
        if not process.is_alive:
            return WAITING
        there, back = world.moment(), world.moment()
        if process.node.cut_until > world.now:
            lose()
            unreached = IndefiniteFailure if world.chance.random() < 0.5 else DefiniteFailure
            world.reply(process, RETRY_SECONDS * world.chance.random(), None, unreached("unreachable"))
            return WAITING
        trouble = None if fault is None else fault.trouble
        unknown = IndefiniteFailure("no answer")
        match trouble:
            case Trouble.LOST:
                lose()
                world.reply(process, RETRY_SECONDS, None, unknown)
            case Trouble.REFUSED:
                lose()
                world.reply(process, there + back, None, DefiniteFailure("refused"))
            case Trouble.REPLY_LOST:
                world.later(there, lambda: _ignored(act))
                world.reply(process, RETRY_SECONDS, None, unknown)
            case Trouble.LATE:
                assert fault is not None
                world.later(fault.seconds, lambda: _ignored(act))
                world.reply(process, RETRY_SECONDS, None, unknown)
            case Trouble.CRASH_AFTER:
                world.later(there, lambda: self._arrive_and_crash(process, act))
            case _:
                if fault is not None:
                    there += fault.seconds * world.chance.random()
                    back += fault.seconds * world.chance.random()
                number = process.waits_for
                world.later(there, lambda: self._arrive(process, number, act, back))
        return WAITING

    def _arrive(self, process: Process, number: int, act: Callable[[], Any], back: float) -> None:
        try:
            answer, error = act(), None
        except DefiniteFailure as refused:
            answer, error = None, refused
        if process.waits_for == number:
            self._world.reply(process, back, answer, error)

    def _arrive_and_crash(self, process: Process, act: Callable[[], Any]) -> None:
        _ignored(act)
        if process.is_alive:
            self._world.crash(process.node)

    def _begin(self, process: Process, _: TransactionBegin) -> tuple[bool, Any]:
        assert process.transaction is None, "one transaction at a time"
        process.is_broken = False
        process.transaction = SimulatedTransaction(self._world.store)
        return _DONE

    def _inside(self, process: Process, act: Callable[[SimulatedTransaction], Any]) -> tuple[bool, Any]:
        opened = process.transaction
        assert opened is not None
        return self.send(
            process,
            lambda: act(opened) if not opened.is_over else _gone(),
            lambda: self._lose(process),
            # An answer that is lost ends the connection, and with it all that was written: the same as never arriving.
            _TO_STORE - {Trouble.REPLY_LOST, Trouble.LATE},
        )

    def _lose(self, process: Process) -> None:
        """Lose the connection of a transaction: the store rolls it back as soon as it notices."""
        opened = process.transaction
        assert opened is not None
        process.is_broken = True
        self._world.later(self._world.chance.random() * SERVER_NOTICES_SECONDS, opened.rollback)

    def _commit(self, process: Process, _: TransactionCommit) -> tuple[bool, Any]:
        opened = process.transaction
        assert opened is not None

        def commit() -> None:
            if opened.is_over:
                _gone()
            opened.commit()

        sent = self.send(process, commit, lambda: self._lose(process))
        # Whatever becomes of it now, only the store ends it: a COMMIT that is under way keeps its locks.
        process.transaction = None
        return sent

    def _rollback(self, process: Process, _: TransactionRollback) -> tuple[bool, Any]:
        self._world.abandon(process)
        return _DONE

    def _call_effect(self, process: Process, ask: CallEffect) -> tuple[bool, Any]:
        if ask.is_local:
            order: Order = ask.call(None)
            return self._write_row(process, order, Returned(f"{order.life} {order.step} 0"))
        return self._deal(process, ask.call(ask.effect), ask.timeout_seconds or LEASE_SECONDS / 2)

    def _write_row(self, process: Process, order: Order, answer: object) -> tuple[bool, Any]:
        opened, bank = process.transaction, self._world.bank
        assert opened is not None
        self.befallen(process, TO_A_NODE)
        opened.write(lambda: bank.write(order.life, order.step))
        self._world.reply(process, self._world.moment(), answer)
        return WAITING

    def _deal(self, process: Process, what: Order | Look, timeout_seconds: float) -> tuple[bool, Any]:
        """Carry a call to the bank, which may serve it when its caller is long gone."""
        world, fault = self._world, self.befallen(process, _TO_BANK)
        if not process.is_alive:
            return WAITING
        there, back = world.moment(), world.moment()
        trouble = None if fault is None else fault.trouble
        if trouble is Trouble.NEVER_SENT:
            world.reply(process, there, Raised(Retryable("the bank is closed")))
            return WAITING
        serve = partial(self._serve, what, declines=trouble is Trouble.DECLINE)
        if trouble is Trouble.CRASH_AFTER:
            world.later(there, lambda: self._arrive_and_crash(process, serve))
            return WAITING
        if fault is not None and trouble in (Trouble.SLOW, Trouble.LATE):
            there += fault.seconds
        is_heard = trouble not in (Trouble.LOST, Trouble.REPLY_LOST)
        number = process.waits_for
        if trouble is not Trouble.LOST:
            world.later(there, lambda: self._answer(process, number, serve(), back, is_heard=is_heard))
        if not is_heard or there + back > timeout_seconds:
            hung_up = (
                TimeoutError("no answer") if world.chance.random() < 0.5 else EffectTimedOut("it", timeout_seconds)
            )
            world.reply(process, timeout_seconds, Raised(hung_up))
        return WAITING

    def _answer(self, process: Process, number: int, end: object, back: float, *, is_heard: bool) -> None:
        if is_heard and process.waits_for == number:
            self._world.reply(process, back, end)

    def _serve(self, what: Order | Look, *, declines: bool) -> Returned[Any] | Raised:
        if isinstance(what, Look):
            return Returned(self._world.bank.answer(what))
        try:
            return Returned(self._world.bank.move(what, declines=declines))
        except Declined:
            return Raised(Rejected("declined"))
        except Unclear as unclear:
            return Raised(ConnectionError(str(unclear)))


def _gone() -> None:
    raise DefiniteFailure("this transaction is over")


def _ignored(act: Callable[[], Any]) -> None:
    """Do something whose answer nobody hears."""
    try:
        act()
    except DefiniteFailure:
        return
