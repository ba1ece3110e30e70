"""The blocking façade."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, Unpack, cast, overload
from uuid import UUID

from nebis.answering import Execution, answer_of, answered, original
from nebis.catalogue import Catalogue
from nebis.consuming import ATTEMPTS_LIMIT, Consumer, Dedup
from nebis.core.fingerprint import FingerprintVersions
from nebis.core.identity import Scope
from nebis.core.record import EffectsMode, Record, RecordId
from nebis.core.secret import Purpose, Secrets
from nebis.deadline import Deadline
from nebis.declaration import AttemptView, Declaration, PolicyOptions, checked_resource
from nebis.delivery import Incoming
from nebis.effects import Query, Recall, Undo
from nebis.errors import MisuseError, StoreUnavailable
from nebis.flow import drive
from nebis.flows.attach import attach_resource, extend_retention
from nebis.flows.effect import run_effect
from nebis.flows.execute import begin, concluded, execute
from nebis.flows.request import Disposition, Ending, Request, classify
from nebis.flows.single import execute_single
from nebis.flows.step import run_step
from nebis.handling import make_handling
from nebis.planning import plan_effect, plan_step
from nebis.policy import GRACE, microseconds
from nebis.ports.asks import Raised, Returned
from nebis.ports.store import StoreFailure
from nebis.recovery import Patience, Recovery, Report, perform_blocking
from nebis.runtime.blocking import BlockingTurn, BlockingWorld
from nebis.runtime.single import Single
from nebis.stores import open_blocking
from nebis.transaction import Transaction

C = TypeVar("C")
R = TypeVar("R")


class Attempt(AttemptView):
    """One try at running an operation, in the hands of its handler."""

    __slots__ = ("_turn",)

    def __init__(self, record: Record, turn: BlockingTurn, request: Request) -> None:
        super().__init__(record, request)
        self._turn = turn

    @property
    def lost(self) -> bool:
        """Tell whether another attempt took over; stop as soon as you can, whatever you write is refused."""
        return self._turn.is_lost

    def resource(self, type: str, id: str) -> None:  # noqa: A002 - the words of `nebis list --resource`.
        """Name what this operation works on; shown while it runs, in `show` and `list`, and in the tombstone."""
        self._turn.run(attach_resource(self.record, self._request.policy, checked_resource(type, id)))

    def effect(
        self,
        name: str,
        call: Callable[..., Any],
        /,
        *arguments: Any,
        recall: Recall,
        returns: object | None = None,
        timeout: timedelta | None = None,
        **named: Any,
    ) -> Any:
        """Call a downstream once for this record, whatever happens to the attempts; return its result.

        The intent and a derived key are stored before the call, the result after it; a later attempt gets that result
        without calling. The call gets `idempotency_key=` (and `fence=`, `timeout_seconds=`, `deadline=`) where it takes
        them. Its result goes through the type that it is annotated with, or `returns`. `Rejected` raised by the call is
        stored and raised again; `Retryable` says that it never reached the downstream. Anything else, and an answer
        that is not there in time, leaves the effect open: the next attempt asks again where its class allows.
        """
        if self._turn.transaction is not None:
            raise MisuseError(
                "An effect inside an open transaction could happen and be rolled back here; call it before."
            )
        planned = plan_effect(
            self._request, self.record, name, call, (arguments, named), recall=recall, returns=returns, timeout=timeout
        )
        flow = run_effect(self.record, self._request.policy, self._turn.ledger, planned.plan)
        return planned.decode(self._turn.run(flow))

    def step(
        self,
        name: str,
        call: Callable[..., Any],
        /,
        *arguments: Any,
        connection: object | None = None,
        returns: object | None = None,
        **named: Any,
    ) -> Any:
        """Run a local step once for this record: its rows and its checkpoint commit together; return its result.

        `call` gets the transaction's connection and then the arguments; without `connection=` it is one to the
        store's own database. With it, reserve, call and settle can be written around external effects.
        """
        planned = plan_step(self._request, self.record, name, call, (arguments, named), returns=returns)
        self._turn.target = connection
        flow = run_step(self.record, self._request.policy, self._turn.ledger, planned.plan)
        return planned.decode(self._turn.run(flow))

    def original(self, operation_id: str | UUID) -> Any:
        """Return what the operation of that id was answered, where this request repeats it under a fresh key.

        For a handler that finds a unique row of its own made already. None: nothing is kept, answer from the row.
        Raises `NaturalKeyReused` if that one was asked for something else, `OriginalUnsettled` if it still runs.
        """
        found = self._turn.find_by_id(RecordId(UUID(str(operation_id))))
        return original(self._request, self.record, found)

    def extend_retention(self, span: timedelta) -> None:
        """Keep the answer for at least that long from now: upward only, a shorter span changes nothing."""
        self._turn.run(extend_retention(self.record, self._request.policy, microseconds(span)))

    def transaction(self, target: object | None = None) -> Transaction:
        """Open a transaction whose rows and outcome are committed together; call `tx.finish(result)` inside it.

        Without a target it runs on a connection to the store's own database, `tx.connection`. With one it joins a
        connection or session that the application already has there.
        """
        return Transaction(self._turn, target, self.record, self._request)


class Operation(Generic[C, R]):
    """A function that runs once per key, however often it is called."""

    def __init__(self, nebis: Nebis, declaration: Declaration[C, R], handler: Callable[..., R]) -> None:
        functools.update_wrapper(self, handler)
        self.declaration = declaration
        self.handler = handler
        self._nebis = nebis

    @property
    def name(self) -> str:
        """Return the name under which records of this operation are stored."""
        return self.declaration.name

    def __call__(
        self, *, key: str, tenant: str, command: C, connection: object | None = None, deadline: Deadline | None = None
    ) -> R:
        """Run, or answer with what an earlier run left; raise `NotYet`, `InDoubt`, `Rejected` or a `RequestError`."""
        return answer_of(self.declaration, self._ending(key, tenant, command, connection, deadline))

    def execute(
        self, *, key: str, tenant: str, command: C, connection: object | None = None, deadline: Deadline | None = None
    ) -> Execution[R]:
        """Do as a call does, and also say whether the result is a replay and under which id it is known."""
        return answered(self.declaration, self._ending(key, tenant, command, connection, deadline))

    def _ending(
        self, key: str, tenant: str, command: C, connection: object | None, deadline: Deadline | None
    ) -> Ending:
        world, secrets = self._nebis.opened()
        request = self.declaration.call(secrets, key=key, tenant=tenant, command=command, deadline=deadline)
        handle = self.handling(request, command)
        if self.declaration.policy.single_transaction:
            return world.run(execute_single(request), handle, single=Single(connection))
        if connection is None:
            return world.run(execute(request), handle)
        raise MisuseError("connection= is for single_transaction; others join it with attempt.transaction.")

    def resumed(self, secrets: Secrets, record: Record) -> tuple[Request, Callable[[Record, BlockingTurn], R]]:
        """Return what runs a stored record without a client; raise `RecordCorrupt` if its command cannot be read."""
        request, command = self.declaration.resume(secrets, record)
        return request, self.handling(request, command)

    def handling(self, request: Request, command: C) -> Callable[[Record, BlockingTurn], R]:
        """Return what runs the handler with a command, as the owner of its record."""
        return make_handling(self.declaration, self.handler, Attempt, request, command)


class OpenAttempt:
    """An attempt that an integration runs by itself: it owns the record until it is settled or abandoned."""

    def __init__(self, record: Record, turn: BlockingTurn, request: Request) -> None:
        turn.record = record
        self.attempt = Attempt(record, turn, request)
        self._record = record
        self._turn = turn
        self._request = request

    def settle(self, end: Returned[Any] | Raised) -> Ending:
        """Store how it ended, and say what its caller may be told now that the store confirmed it."""
        try:
            return self._turn.run(concluded(self._request, self._record, self._turn.ended(end)))
        finally:
            self._turn.close()

    def abandon(self) -> None:
        """Let go without a word, as a crash would: the lease decides."""
        self._turn.close()


class Declares(Protocol):
    """What `Nebis.operation` returns: a decorator that keeps the types of the function it is put on."""

    @overload
    def __call__(self, handler: Callable[[Attempt, C], R], /) -> Operation[C, R]: ...
    @overload
    def __call__(self, handler: Callable[[C], R], /) -> Operation[C, R]: ...


class Consumes(Protocol):
    """What `Nebis.consumer` returns: a decorator for a function of a message."""

    @overload
    def __call__(self, handler: Callable[[Attempt, Incoming[Any]], None], /) -> Consumer: ...
    @overload
    def __call__(self, handler: Callable[[Incoming[Any]], None], /) -> Consumer: ...


class Nebis(Catalogue[Operation[Any, Any]]):
    """An idempotency store and the operations that it protects, for blocking code."""

    _opened: tuple[int, BlockingWorld, Secrets] | None = None

    def operation(
        self,
        name: str,
        *,
        effects: EffectsMode | None = None,
        scope: Scope | None = None,
        fingerprint: FingerprintVersions | None = None,
        classify: Callable[[Exception], Disposition] = classify,
        undo: Mapping[str, Undo] | None = None,
        queries: Mapping[str, Query] | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> Declares:
        """Declare a function of (attempt, command) or (command) that runs once per key.

        `effects` has no default: it decides what a crash means. The name is stored with each record and never changes.
        `undo` says, by the name of an effect, how to undo it if the operation is rejected after it; `queries` how to
        ask what became of it while that is in doubt.
        """
        declares = self._declares(
            name,
            lambda declaration, handler: Operation(self, declaration, handler),
            is_async=False,
            effects=effects,
            scope=scope,
            fingerprint=fingerprint,
            classify=classify,
            undo=undo,
            queries=queries,
            options=policy,
        )
        return cast("Declares", declares)

    def consumer(
        self,
        name: str,
        *,
        effects: EffectsMode | None = None,
        dedup: Dedup | None = None,
        sequence: bool = False,
        attempts_limit: int = ATTEMPTS_LIMIT,
        fingerprint: FingerprintVersions | None = None,
        undo: Mapping[str, Undo] | None = None,
        queries: Mapping[str, Query] | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> Consumes:
        """Declare a function of (attempt, message: Incoming[T]), or of the message alone, that runs once per message.

        Two deliveries are one message if they have the same id, or if `dedup` makes the same of them. With `sequence`,
        offsets count too: the last one applied of each partition is kept in the handler's own transaction. A message
        that fails `attempts_limit` times is parked; `nebis inbox` shows it.
        """
        declares = self._consumes(
            name,
            functools.partial(Operation, self),
            functools.partial(Consumer, self),
            is_async=False,
            effects=effects,
            dedup=dedup,
            sequence=sequence,
            attempts_limit=attempts_limit,
            fingerprint=fingerprint,
            undo=undo,
            queries=queries,
            options=policy,
        )
        return cast("Consumes", declares)

    def begin(self, request: Request) -> OpenAttempt | Ending:
        """Claim for an integration that runs the work itself; or say how the request ends without running."""
        world, _ = self.opened()
        turn = world.turn()
        try:
            begun = turn.run(begin(request))
        except BaseException:
            turn.close()
            raise
        if isinstance(begun, Record):
            return OpenAttempt(begun, turn, request)
        turn.close()
        return begun

    def find(self, record_id: RecordId) -> Record | None:
        """Read a record by its public id, whosever it is; raise `StoreUnavailable` if it cannot be read now."""
        world, _ = self.opened()
        try:
            return world.backend.sessions.run(world.backend.store.find_by_id(record_id))
        except StoreFailure as failure:
            raise StoreUnavailable(failure.detail) from failure

    def open(self) -> None:
        """Connect, bring the schema up to date, and refuse a wrong secret; otherwise the first call does."""
        self.opened()

    def opened(self) -> tuple[BlockingWorld, Secrets]:
        """Return the running world of this process; a forked child opens its own (F094)."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            opened = self._open_once()
        return opened[1], opened[2]

    def _open_once(self) -> tuple[int, BlockingWorld, Secrets]:
        with _opening:
            if self._opened is not None and self._opened[0] == os.getpid():
                return self._opened
            backend = open_blocking(self._location, **self._store_options)
            try:
                secrets = backend.sessions.run(self._start(backend.store))
                world = BlockingWorld(
                    backend,
                    self._observers,
                    keeps_house=self._keeps_house,
                    recover=functools.partial(self.recover, Patience()),
                )
            except StoreFailure as failure:
                backend.sessions.close()
                raise StoreUnavailable(failure.detail) from failure
            except BaseException:
                backend.sessions.close()
                raise
            self._leave_to_parent()
            self._opened = (os.getpid(), world, secrets)
            return self._opened

    def token_keys(self) -> tuple[bytes, ...]:
        """Return the keys that a downstream checks one-time tokens with; they are good for nothing else."""
        _, secrets = self.opened()
        return tuple(secret.derive(Purpose.TOKEN) for secret in secrets.keyring)

    def recover(self, patience: Patience, may_go_on: Callable[[], bool] = lambda: True) -> Report:
        """Look once after every record whose owner is gone or that is in doubt, and say what was done."""
        world, secrets = self.opened()
        report, recovery = (
            Report(),
            Recovery(
                operations=self.operations,
                endpoints=self.endpoints,
                secrets=secrets,
                patience=patience,
                may_go_on=lambda: may_go_on() and not world.is_closing,
            ),
        )
        drive(recovery.once(report), functools.partial(perform_blocking, world))
        for consumer in list(self.consumers.values()):
            report.redriven += consumer.redrive_due(recovery.may_go_on)
        return report

    def close(self, grace: timedelta = GRACE) -> None:
        """Start nothing new, wait for running attempts, let go of those that do not end in time, and close.

        What is clean is given back and what is dirty and resumable is suspended, so that another process can go on at
        once; a handler that still runs then has its writes refused.
        """
        opened = self._opened
        if opened is not None and opened[0] == os.getpid():
            opened[1].close(grace.total_seconds())
        with _opening:
            self._leave_to_parent()
            if self._opened is opened:
                self._opened = None

    def _leave_to_parent(self) -> None:
        """Forget what a parent process opened, without letting go of it: its sessions could end with ours (F094)."""
        if self._opened is not None and self._opened[0] != os.getpid():
            _inherited.append(self._opened[1])
            self._opened = None

    def __enter__(self) -> Self:
        """Open the store."""
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()


_inherited: list[BlockingWorld] = []
"""Worlds of parent processes, kept so that nothing in this one ever closes their connections."""

_opening = threading.RLock()
"""One store is opened at a time: opening is rare, and a lock per object would not survive a fork."""


def _forked() -> None:
    global _opening  # noqa: PLW0603 - the parent's lock may have been held by a thread that the child does not have.
    _opening = threading.RLock()


os.register_at_fork(after_in_child=_forked)
