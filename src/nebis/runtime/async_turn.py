"""One request's turn in the asyncio world: performs what its flow asks for."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar

from nebis.core.answers import Answer, Locked
from nebis.core.record import Record, RecordId
from nebis.core.verbs import Suspend, Verb, identity_of
from nebis.errors import ClaimLost, EffectTimedOut, MisuseError, StoreUnavailable
from nebis.flow import Ask, Flow, drive_async
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
    make_returned,
)
from nebis.ports.inbox import AskInbox
from nebis.ports.outbox import Outbox, outbox_of
from nebis.ports.store import AsyncTransaction, StoreFailure
from nebis.ports.velocity import ChargeVelocity
from nebis.runtime.entropy import draw
from nebis.runtime.jitter import jittered
from nebis.runtime.recursion import running
from nebis.runtime.settling import settling
from nebis.runtime.single import Single
from nebis.runtime.turn import Turn

if TYPE_CHECKING:
    from nebis.runtime.eventloop import AsyncWorld

log = logging.getLogger("nebis")

T = TypeVar("T")
_NOTHING: Final[frozenset[Any]] = frozenset()
AsyncHandler = Callable[[Record, "AsyncTurn"], Awaitable[object]]


class AsyncTurn(Turn):
    """One request's turn in the asyncio world."""

    performs: ClassVar[Mapping[type[Ask[Any]], Performer]]
    """What is done for each kind of ask; tests put others in their place."""
    is_driven: ClassVar[bool] = False
    """Whether the world runs the handler; else whoever took this turn does."""
    task: asyncio.Task[None] | None = None
    """Where the handler runs, if that is a task of ours; it is stopped once another attempt took over."""
    transaction: AsyncTransaction | None = None
    """The open transaction of this turn; verbs run inside it while it is open."""
    _world: AsyncWorld
    _is_in_handler: bool = False
    _detached: set[asyncio.Task[Any]] | frozenset[asyncio.Task[Any]] = _NOTHING
    """Effects that are under way."""

    def __init__(self, world: AsyncWorld, handler: AsyncHandler, single: Single | None = None) -> None:
        self._world = world
        self._handler = handler
        # Their defaults stand in the class too; but each usual turn asks for them, and finds at once what is its own.
        # What every turn gets later is set now too: where many have begun before the first one gets it, as after a
        # start under load, the interpreter has no room left for it and makes a dict for each of them, for ever.
        self.transaction = self.settled = self._watch = self._ledger = self.record = self.task = self.beside = None
        self._is_in_handler = False
        self.single, self.target = (None, None) if single is None else (single, single.target)
        self._detached = _NOTHING

    def perform(self, ask: Ask[Any]) -> Awaitable[Any] | Any:
        """Do what a flow asks for, or return what does."""
        return self.performs[type(ask)](self, ask)

    async def close(self) -> None:
        """End the renewal, and a transaction that nobody ended. The record is not released: the lease decides."""
        self.forget()
        if self.transaction is not None:
            await self.transaction.rollback()

    def forget(self) -> None:
        """End the renewal."""
        if self._watch is not None:
            self._world.heartbeat.forget(self._watch)

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
        self.transaction.is_shielded = self.task is None or self._is_in_handler

    def apply(self, ask: Apply) -> Awaitable[Answer | Locked]:
        verb = ask.verb
        if self.transaction is not None:
            return self._apply_inside(self.transaction, verb)
        if self._watch is not None and isinstance(verb, Suspend):
            verb = self._watch.sends(verb)
        if self.task is not None and not self._is_in_handler:
            return self._world.carry(verb)
        return self._world.apply(verb)

    async def _apply_inside(self, transaction: AsyncTransaction, verb: Verb) -> Answer | Locked:
        try:
            [answer] = await transaction.run(self._world.backend.store.apply([verb]))
        except StoreFailure as failure:
            # Asking again inside a transaction that failed is hopeless; it can only be rolled back.
            raise StoreUnavailable(f"the transaction failed and will be rolled back: {failure.detail}") from failure
        return answer

    async def find(self, ask: Find) -> Record | None:
        backend = self._world.backend
        return await backend.sessions.run(backend.store.find(ask.identity))

    async def find_by_id(self, record_id: RecordId) -> Record | None:
        """Read a record by its public id; inside an open transaction, which may hold the only lock of a file."""
        backend = self._world.backend
        place = backend.sessions if self.transaction is None else self.transaction
        try:
            return await place.run(backend.store.find_by_id(record_id))
        except StoreFailure as failure:
            raise StoreUnavailable(failure.detail) from failure

    async def pause(self, ask: Pause) -> None:
        await asyncio.sleep(jittered(ask.seconds))

    async def await_change(self, ask: AwaitChange) -> bool:
        loop = asyncio.get_running_loop()
        moved = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(moved.set)

        if not self._world.signals.join(ask.identity, wake, ask.waiters_limit):
            return False
        try:
            await asyncio.wait_for(moved.wait(), jittered(ask.seconds))
        except TimeoutError:
            return True
        finally:
            self._world.signals.leave(ask.identity, wake)
        return True

    def attend(self, ask: Attend) -> None:
        self.tell_claimed(ask)
        # Driven, it has a handler of ours, which may have to be stopped.
        owner = self if self.is_driven else None
        self._watch = self._world.heartbeat.watch(ask.answer.record, ask.lease_us, ask.renewal_seconds, owner)

    async def run_handler(self, ask: RunHandler) -> Returned[object] | Raised | Settled:
        record = self.record = ask.record
        task = self.task
        assert task is not None  # A turn without one has no handler of its own.
        # Never put back: the context is that of this task alone, and what it holds is emptied.
        mark = [record.identity]
        running.set((*running.get(), mark))
        self._is_in_handler = True
        if self.transaction is not None:
            self.transaction.is_shielded = True  # Handlers may be cancelled, by themselves too.
        if self._watch is not None and self._watch.lost_reason is not None:
            self.stop_handler()  # Nobody was to be stopped when it was lost.
        end: Returned[object] | Raised
        try:
            end = make_returned(await self._handler(record, self))
        except asyncio.CancelledError:
            if not self.is_lost:
                raise
            task.uncancel()
            end = Raised(ClaimLost(record.operation, "another attempt took over"))
        except Exception as error:  # noqa: BLE001 - every failure of a handler is an answer that the flow classifies.
            end = Raised(error)
        finally:
            mark.clear()
        self._is_in_handler = False
        if self.has_to_rest:
            await self.rest()
        if self.transaction is not None:
            self.transaction.is_shielded = False
        return self.ended(end)

    async def detached(self, flow: Flow[T]) -> T:
        """Run an effect in a task of our own: whoever cancels its caller only stops waiting for it (F075)."""
        task = asyncio.get_running_loop().create_task(drive_async(flow, self.perform))
        self._detached = {*self._detached, task}
        task.add_done_callback(self._reattached)
        await asyncio.wait((task,))
        return task.result()

    @property
    def has_to_rest(self) -> bool:
        """Tell whether `rest` has anything to do; mostly it has not, and a coroutine is spared."""
        return bool(self._detached) or self.transaction is not None

    async def rest(self) -> None:
        """Wait for effects whose caller was cancelled, or did not wait: only their end tells what is known.

        A transaction that was left behind in the same way is undone: what is said of the attempt must not go into it.
        """
        if self._detached:
            await asyncio.wait(self._detached)
        if self.single is None and self.transaction is not None:
            transaction, self.transaction = self.transaction, None
            await transaction.rollback()

    def _reattached(self, task: asyncio.Task[Any]) -> None:
        self._detached = self._detached - {task}
        if not task.cancelled():
            task.exception()  # Retrieved here too: a caller that was cancelled will not ask for it.

    def stop_handler(self) -> None:
        """Have the handler cancelled whose claim another attempt took; called from the heartbeat's thread."""
        task = self.task
        if task is not None:  # A handler that is yet to run looks for itself first.
            task.get_loop().call_soon_threadsafe(self._cancel_handler, task)

    def _cancel_handler(self, task: asyncio.Task[None]) -> None:
        """Cancel the handler once, never a write of ours."""
        if self._is_in_handler:
            self._is_in_handler = False
            task.cancel()

    async def call_effect(self, ask: CallEffect) -> Returned[Any] | Raised:
        limit = asyncio.timeout(ask.timeout_seconds)
        try:
            async with limit:
                value = ask.call(self._open().connection if ask.is_local else ask.effect)
                return Returned(await value if inspect.isawaitable(value) else value)
        except TimeoutError as error:
            is_ours = limit.expired() and ask.timeout_seconds is not None
            return Raised(EffectTimedOut(ask.effect.name, ask.timeout_seconds or 0.0) if is_ours else error)
        except Exception as error:  # noqa: BLE001 - whatever a downstream's client raises, the flow classifies it.
            return Raised(error)

    async def transaction_begin(self, _: TransactionBegin) -> None:
        self._join()
        try:
            await self._open().begin()
        except MisuseError:
            self.transaction = None  # It never began, so there is nothing to undo.
            raise

    async def transaction_hold(self, ask: TransactionHold) -> Record | Locked | None:
        return await self._open().run(self._world.backend.store.hold(ask.identity))

    async def transaction_apply(self, ask: TransactionApply) -> Answer | Locked:
        self._moves = identity_of(ask.verb)
        [answer] = await self._open().run(self._world.backend.store.apply([ask.verb]))
        return answer

    async def transaction_settle(self, ask: TransactionSettle) -> Answer | Locked | None:
        self._moves = identity_of(ask.verb)
        return await self._open().settle(settling(ask, self._world.backend.store, self.beside))

    async def transaction_is_same(self, _: TransactionIsSame) -> bool:
        return await self._open().is_same()

    async def transaction_commit(self, _: TransactionCommit) -> None:
        await self._open().commit()
        self.transaction = None
        if self._moves is not None:
            self._world.signals.wake(self._moves)

    async def transaction_rollback(self, _: TransactionRollback) -> None:
        transaction, self.transaction = self._open(), None
        await transaction.rollback()

    async def barrier(self, ask: Barrier) -> Record | Locked | None:
        backend = self._world.backend
        return await backend.sessions.run(backend.store.barrier(ask.identity))

    async def ask_inbox(self, ask: AskInbox[T]) -> T:
        backend = self._world.backend
        return await backend.sessions.run(ask.act(backend.store))

    async def charge_velocity(self, ask: ChargeVelocity) -> int | None:
        backend = self._world.backend
        return await backend.sessions.run(backend.store.charge(ask.charges, identity=ask.identity))

    def _open(self) -> AsyncTransaction:
        assert self.transaction is not None  # Only flows that were given a transaction ask for it.
        return self.transaction

    async def keep_late(self, ask: KeepLate) -> None:
        backend = self._world.backend
        try:
            await backend.sessions.run(backend.store.keep_late_result(ask.late, keep_us=ask.keep_us))
        except Exception as error:  # noqa: BLE001 - evidence for people; whoever brings it has worse to tell already.
            log.warning("a late result of %s was not kept (%s)", ask.late.record_id, type(error).__name__)


Performer: TypeAlias = Callable[[AsyncTurn, Any], Awaitable[Any] | Any]
AsyncTurn.performs = {
    Apply: AsyncTurn.apply,
    Find: AsyncTurn.find,
    Draw: draw,
    MakeClaim: AsyncTurn.make_claim,
    Pause: AsyncTurn.pause,
    Elapsed: AsyncTurn.elapsed,
    AwaitChange: AsyncTurn.await_change,
    RunHandler: AsyncTurn.run_handler,
    TransactionBegin: AsyncTurn.transaction_begin,
    TransactionHold: AsyncTurn.transaction_hold,
    TransactionApply: AsyncTurn.transaction_apply,
    TransactionSettle: AsyncTurn.transaction_settle,
    TransactionIsSame: AsyncTurn.transaction_is_same,
    TransactionCommit: AsyncTurn.transaction_commit,
    TransactionRollback: AsyncTurn.transaction_rollback,
    Barrier: AsyncTurn.barrier,
    AskInbox: AsyncTurn.ask_inbox,
    ChargeVelocity: AsyncTurn.charge_velocity,
    CallEffect: AsyncTurn.call_effect,
    KeepTrying: AsyncTurn.keep_trying,
    KeepLate: AsyncTurn.keep_late,
    Tell: AsyncTurn.tell,
    TellClaimed: AsyncTurn.tell_claimed,
    Attend: AsyncTurn.attend,
    TellCompleted: AsyncTurn.tell_completed,
}
