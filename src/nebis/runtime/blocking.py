"""The blocking world: performs asks in the calling thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

from nebis.core.answers import Answer, Locked, Refusal
from nebis.core.record import Record, RecordId
from nebis.core.verbs import Suspend, Verb, identity_of
from nebis.errors import MisuseError, StoreUnavailable
from nebis.flow import Ask, Flow, drive, go_on
from nebis.flows.drain import let_go
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
    Settled,
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
from nebis.ports.inbox import AskInbox
from nebis.ports.observer import Observer
from nebis.ports.outbox import Outbox, outbox_of
from nebis.ports.store import BlockingBackend, BlockingTransaction, StoreFailure
from nebis.ports.velocity import ChargeVelocity
from nebis.runtime.blocking_batcher import BlockingBatcher
from nebis.runtime.counting import Counting
from nebis.runtime.entropy import draw
from nebis.runtime.gathering import LANES
from nebis.runtime.heartbeat import Heartbeat, Watch
from nebis.runtime.housekeeping import Housekeeping
from nebis.runtime.jitter import jittered
from nebis.runtime.recursion import inside
from nebis.runtime.settling import settling
from nebis.runtime.signals import Signals
from nebis.runtime.single import Single
from nebis.runtime.turn import Turn

log = logging.getLogger("nebis")

T = TypeVar("T")
Handler = Callable[[Record, "BlockingTurn"], object]


class BlockingWorld:
    """What one process shares between all its blocking requests."""

    def __init__(
        self,
        backend: BlockingBackend,
        observers: Sequence[Observer] = (),
        *,
        keeps_house: bool = False,
        recover: Callable[[], object] | None = None,
    ) -> None:
        self.backend = backend
        counting = Counting()
        self.counting = counting if keeps_house else None
        self.observers: tuple[Observer, ...] = tuple(observers)
        self.has_leading_ids = backend.store.capabilities.has_leading_ids
        self.signals = Signals()
        self._batcher = BlockingBatcher(self._send, carriers=min(LANES, backend.lanes))
        self.heartbeat = Heartbeat(backend.store, backend.beat, self.signals.applied)
        self._housekeeping = Housekeeping(backend.store, backend.beat, counting, recover) if keeps_house else None
        self._listener = backend.listen(self.signals.wake) if backend.listen is not None else None
        self.is_closing = False
        self._is_closed = False
        # Changed without a lock, as each change is a single step of the interpreter.
        self._turns: set[BlockingTurn] = set()
        self._turns_changed = threading.Condition()

    def enter(self, turn: BlockingTurn) -> None:
        """Let a turn begin; refuse it if the process is ending, so that nothing is claimed that nobody finishes."""
        # Added before the look, while `close` looks after it announced itself: one of the two sees the other.
        self._turns.add(turn)
        if self.is_closing:
            self.leave(turn)
            raise StoreUnavailable("this process is shutting down")

    def leave(self, turn: BlockingTurn) -> None:
        """Let a turn end."""
        self._turns.discard(turn)
        if self.is_closing:
            with self._turns_changed:
                self._turns_changed.notify_all()

    def run(self, flow: Flow[T], handler: Handler, *, single: Single | None = None) -> T:
        """Run an engine flow whose handler is this one; its claim is renewed until the flow ends."""
        turn = BlockingTurn(self, handler, single)
        try:
            return turn.run(flow)
        finally:
            turn.close()

    def turn(self) -> BlockingTurn:
        """Return a turn for work that is not called by us; whoever takes it closes it."""
        return BlockingTurn(self, _nobody)

    def apply(self, verb: Verb) -> Answer | Locked:
        """Apply one verb, and wake whoever waits for its record."""
        answer = self._batcher.apply(verb)
        self.signals.applied(verb)
        return answer

    def _send(self, verbs: Sequence[Verb]) -> Sequence[Answer | Locked]:
        return self.backend.sessions.run(self.backend.store.apply(verbs))

    def close(self, grace_seconds: float = 0.0) -> None:
        """Start nothing new, wait for what runs, let go of what does not end in time, and close every connection."""
        with self._turns_changed:
            self.is_closing = True
            self._turns_changed.wait_for(lambda: not self._turns, grace_seconds)
            if self._is_closed:
                return
            self._is_closed = True
        for watch in self.heartbeat.let_go():
            self._let_go(watch)
        if self._listener is not None:
            self._listener.close()
        if self._housekeeping is not None:
            self._housekeeping.close()
        self.heartbeat.close()
        self._batcher.close()
        self.backend.sessions.close()

    def _let_go(self, watch: Watch) -> None:
        """Give an attempt back that still runs; its next write is refused once a successor came (F078)."""
        watch.lose(Refusal.MOVED_ON)
        try:
            drive(let_go(watch.ownership), lambda ask: self.apply(watch.sends(cast("Apply", ask).verb)))
        except StoreFailure as failure:
            log.warning("an attempt was not given back (%s); its lease decides", failure.detail)


class BlockingTurn(Turn):
    """One request's turn in the blocking world."""

    performs: ClassVar[dict[type[Ask[Any]], Callable[[BlockingTurn, Any], Any]]]
    """What is done for each kind of ask; tests put others in their place."""
    transaction: BlockingTransaction | None = None
    """The open transaction of this turn; verbs run inside it while it is open."""
    _world: BlockingWorld
    _is_closed = False

    def __init__(self, world: BlockingWorld, handler: Handler, single: Single | None = None) -> None:
        if single is not None:
            self.single = single
            self.target = single.target
        world.enter(self)
        self._world = world
        self._handler = handler
        # What every turn gets later, for the reason that `AsyncTurn` has.
        self._watch = self.record = self.beside = None
        self._is_closed = False

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end."""
        is_over, value = go_on(flow, None, self.performs, self)
        assert is_over, f"nobody performs {value}"
        return value  # type: ignore[no-any-return]  # What the flow returned.

    def close(self) -> None:
        """End the renewal, and a transaction that nobody ended. The record is not released: the lease decides."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._watch is not None:
                self._world.heartbeat.forget(self._watch)
            if self.transaction is not None:
                self.transaction.rollback()
        finally:
            self._world.leave(self)

    @property
    def outbox(self) -> Outbox:
        """Return the store's outbox, or raise `MisuseError`."""
        return outbox_of(self._world.backend.store)

    def _join(self) -> None:
        if self.transaction is not None:
            raise MisuseError("A transaction of this attempt is already open; use that one.")
        backend = self._world.backend
        if backend.transaction is None:
            raise MisuseError(
                f"The {backend.store.capabilities.name} store has no transactions; use PostgreSQL or SQLite."
            )
        self.transaction = backend.transaction(self.target)

    def apply(self, ask: Apply) -> Answer | Locked:
        if self.transaction is not None:
            try:
                [answer] = self.transaction.run(self._world.backend.store.apply([ask.verb]))
            except StoreFailure as failure:
                # Asking again inside a transaction that failed is hopeless; it can only be rolled back.
                raise StoreUnavailable(f"the transaction failed and will be rolled back: {failure.detail}") from failure
            return answer
        verb = ask.verb
        if type(verb) is Suspend and self._watch is not None:
            self._watch.sends(verb)
        return self._world.apply(verb)

    def find(self, ask: Find) -> Record | None:
        backend = self._world.backend
        return backend.sessions.run(backend.store.find(ask.identity))

    def find_by_id(self, record_id: RecordId) -> Record | None:
        """Read a record by its public id; inside an open transaction, which may hold the only lock of a file."""
        backend = self._world.backend
        place = backend.sessions if self.transaction is None else self.transaction
        try:
            return place.run(backend.store.find_by_id(record_id))
        except StoreFailure as failure:
            raise StoreUnavailable(failure.detail) from failure

    def pause(self, ask: Pause) -> None:
        time.sleep(jittered(ask.seconds))

    def await_change(self, ask: AwaitChange) -> bool:
        moved = threading.Event()
        if not self._world.signals.join(ask.identity, moved.set, ask.waiters_limit):
            return False
        try:
            moved.wait(jittered(ask.seconds))
        finally:
            self._world.signals.leave(ask.identity, moved.set)
        return True

    def attend(self, ask: Attend) -> None:
        self.tell_claimed(ask)
        self._watch = self._world.heartbeat.watch(ask.answer.record, ask.lease_us, ask.renewal_seconds)

    def run_handler(self, ask: RunHandler) -> Returned[object] | Raised | Settled:
        self.record = ask.record
        try:
            with inside(ask.record):
                value = self._handler(ask.record, self)
            return self.ended(Returned(value))
        except Exception as error:  # noqa: BLE001 - every failure of a handler is an answer that the flow classifies.
            return self.ended(Raised(error))

    def call_effect(self, ask: CallEffect) -> Returned[Any] | Raised:
        try:
            return Returned(ask.call(self._open().connection if ask.is_local else ask.effect))
        except Exception as error:  # noqa: BLE001 - whatever a downstream's client raises, the flow classifies it.
            return Raised(error)

    def ended(self, end: Returned[object] | Raised) -> Returned[object] | Raised | Settled:
        """Say how an attempt ended, and undo a transaction that its handler left open."""
        is_settled = self.settled is not None and isinstance(end, Returned)
        if self.transaction is not None and self.single is None and not is_settled:
            # What is said of the attempt from now on must not go into it.
            self.transaction.rollback()
            self.transaction = None
        return super().ended(end)

    def transaction_begin(self, _: TransactionBegin) -> None:
        self._join()
        try:
            self._open().begin()
        except MisuseError:
            self.transaction = None  # It never began, so there is nothing to undo.
            raise

    def transaction_hold(self, ask: TransactionHold) -> Record | Locked | None:
        return self._open().run(self._world.backend.store.hold(ask.identity))

    def transaction_apply(self, ask: TransactionApply) -> Answer | Locked:
        self._moves = identity_of(ask.verb)
        [answer] = self._open().run(self._world.backend.store.apply([ask.verb]))
        return answer

    def transaction_settle(self, ask: TransactionSettle) -> Answer | Locked | None:
        self._moves = identity_of(ask.verb)
        return self._open().settle(settling(ask, self._world.backend.store, self.beside))

    def transaction_is_same(self, _: TransactionIsSame) -> bool:
        return self._open().is_same()

    def transaction_commit(self, _: TransactionCommit) -> None:
        self._open().commit()
        self.transaction = None
        if self._moves is not None:
            self._world.signals.wake(self._moves)

    def transaction_rollback(self, _: TransactionRollback) -> None:
        transaction, self.transaction = self._open(), None
        transaction.rollback()

    def barrier(self, ask: Barrier) -> Record | Locked | None:
        backend = self._world.backend
        return backend.sessions.run(backend.store.barrier(ask.identity))

    def ask_inbox(self, ask: AskInbox[T]) -> T:
        backend = self._world.backend
        return backend.sessions.run(ask.act(backend.store))

    def charge_velocity(self, ask: ChargeVelocity) -> int | None:
        backend = self._world.backend
        return backend.sessions.run(backend.store.charge(ask.charges, identity=ask.identity))

    def _open(self) -> BlockingTransaction:
        assert self.transaction is not None  # Only flows that were given a transaction ask for it.
        return self.transaction

    def keep_late(self, ask: KeepLate) -> None:
        backend = self._world.backend
        try:
            backend.sessions.run(backend.store.keep_late_result(ask.late, keep_us=ask.keep_us))
        except Exception as error:  # noqa: BLE001 - evidence for people; whoever brings it has worse to tell already.
            log.warning("a late result of %s was not kept (%s)", ask.late.record_id, type(error).__name__)


def _nobody(_record: Record, _turn: BlockingTurn) -> object:
    raise AssertionError("this turn has no handler of its own")


BlockingTurn.performs = {
    Apply: BlockingTurn.apply,
    Find: BlockingTurn.find,
    Draw: draw,
    MakeClaim: BlockingTurn.make_claim,
    Pause: BlockingTurn.pause,
    Elapsed: BlockingTurn.elapsed,
    AwaitChange: BlockingTurn.await_change,
    RunHandler: BlockingTurn.run_handler,
    TransactionBegin: BlockingTurn.transaction_begin,
    TransactionHold: BlockingTurn.transaction_hold,
    TransactionApply: BlockingTurn.transaction_apply,
    TransactionSettle: BlockingTurn.transaction_settle,
    TransactionIsSame: BlockingTurn.transaction_is_same,
    TransactionCommit: BlockingTurn.transaction_commit,
    TransactionRollback: BlockingTurn.transaction_rollback,
    Barrier: BlockingTurn.barrier,
    AskInbox: BlockingTurn.ask_inbox,
    ChargeVelocity: BlockingTurn.charge_velocity,
    CallEffect: BlockingTurn.call_effect,
    KeepTrying: BlockingTurn.keep_trying,
    KeepLate: BlockingTurn.keep_late,
    Tell: BlockingTurn.tell,
    TellClaimed: BlockingTurn.tell_claimed,
    Attend: BlockingTurn.attend,
    TellCompleted: BlockingTurn.tell_completed,
}
