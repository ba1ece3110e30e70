"""The asyncio façade."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar, Unpack, cast, overload

from nebis.answering import Execution, answer_of, answered
from nebis.async_attempt import AsyncAttempt, AsyncOpenAttempt, Beginning
from nebis.catalogue import Catalogue
from nebis.consuming import ATTEMPTS_LIMIT, AsyncConsumer, Dedup
from nebis.core.fingerprint import FingerprintVersions
from nebis.core.identity import Scope
from nebis.core.marks import Marks
from nebis.core.record import EffectsMode, Record, RecordId
from nebis.core.replaying import Ended
from nebis.core.secret import Purpose, Secrets
from nebis.deadline import Deadline
from nebis.declaration import Declaration, PolicyOptions
from nebis.delivery import Incoming
from nebis.effects import Query, Undo
from nebis.errors import MisuseError, StoreUnavailable
from nebis.flow import drive_async
from nebis.flows.execute import execute
from nebis.flows.request import Disposition, Ending, Request, classify
from nebis.flows.single import execute_single
from nebis.handling import make_handling
from nebis.policy import GRACE
from nebis.ports.store import StoreFailure
from nebis.recovery import Patience, Recovery, Report, perform_async
from nebis.runtime.async_turn import AsyncTurn
from nebis.runtime.eventloop import AsyncWorld
from nebis.runtime.single import Single
from nebis.stores import open_async

C = TypeVar("C")
R = TypeVar("R")

_running_loop: Final = asyncio.get_running_loop


class AsyncOperation(Generic[C, R]):
    """A function that runs once per key, however often it is called."""

    def __init__(self, nebis: AsyncNebis, declaration: Declaration[C, R], handler: Callable[..., Awaitable[R]]) -> None:
        functools.update_wrapper(self, handler)
        self.declaration = declaration
        self.handler = handler
        self._nebis = nebis

    @property
    def name(self) -> str:
        """Return the name under which records of this operation are stored."""
        return self.declaration.name

    async def __call__(
        self, *, key: str, tenant: str, command: C, connection: object | None = None, deadline: Deadline | None = None
    ) -> R:
        """Run, or answer with what an earlier run left; raise `NotYet`, `InDoubt`, `Rejected` or a `RequestError`."""
        opened = self._nebis.opened_here() or await self._nebis.opened()
        return answer_of(self.declaration, await self._ending(opened, key, tenant, command, connection, deadline))

    async def execute(
        self, *, key: str, tenant: str, command: C, connection: object | None = None, deadline: Deadline | None = None
    ) -> Execution[R]:
        """Do as a call does, and also say whether the result is a replay and under which id it is known.

        Cancelling the caller detaches it; the attempt goes on, and the same key finds its outcome.
        """
        opened = self._nebis.opened_here() or await self._nebis.opened()
        return answered(self.declaration, await self._ending(opened, key, tenant, command, connection, deadline))

    def _ending(  # noqa: PLR0917 - every call comes through here.
        self,
        opened: tuple[AsyncWorld, Secrets],
        key: str,
        tenant: str,
        command: C,
        connection: object | None,
        deadline: Deadline | None,
    ) -> Awaitable[Ending]:
        """Begin, and return what tells how it ends: a new key waits for its turn, and for no coroutine besides."""
        world, secrets = opened
        declaration = self.declaration
        marks = declaration.marks(secrets, key, tenant, command)
        if deadline is None and declaration.may_retell and (told := world.retelling.ask(marks.identity)) is not None:
            return self._retold(opened, marks, told, key, tenant, command, connection)
        return self._run(world, declaration.call_of(marks, secrets, command, deadline), command, connection)

    async def _retold(  # noqa: PLR0917 - as above.
        self,
        opened: tuple[AsyncWorld, Secrets],
        marks: Marks,
        told: Awaitable[Ended | None],
        key: str,
        tenant: str,
        command: C,
        connection: object | None,
    ) -> Ending:
        world, secrets = opened
        ending = world.retelling.ending(marks, await told)
        if ending is not None:
            return ending
        # Whoever holds the command may have changed it meanwhile.
        marks = self.declaration.marks(secrets, key, tenant, command)
        return await self._run(world, self.declaration.call_of(marks, secrets, command), command, connection)

    def _run(self, world: AsyncWorld, request: Request, command: C, connection: object | None) -> Awaitable[Ending]:
        handle = self.handling(request, command)
        if self.declaration.policy.single_transaction:
            return world.run(execute_single(request), handle, single=Single(connection))
        if connection is None:
            return world.run(execute(request), handle)
        raise MisuseError("connection= is for single_transaction; others join it with attempt.transaction.")

    def resumed(self, secrets: Secrets, record: Record) -> tuple[Request, Callable[[Record, AsyncTurn], Awaitable[R]]]:
        """Return what runs a stored record without a client; raise `RecordCorrupt` if its command cannot be read."""
        request, command = self.declaration.resume(secrets, record)
        return request, self.handling(request, command)

    def handling(self, request: Request, command: C) -> Callable[[Record, AsyncTurn], Awaitable[R]]:
        """Return what runs the handler with a command, as the owner of its record."""
        return make_handling(self.declaration, self.handler, AsyncAttempt, request, command)


class AsyncDeclares(Protocol):
    """What `AsyncNebis.operation` returns: a decorator that keeps the types of the function it is put on."""

    @overload
    def __call__(self, handler: Callable[[AsyncAttempt, C], Awaitable[R]], /) -> AsyncOperation[C, R]: ...
    @overload
    def __call__(self, handler: Callable[[C], Awaitable[R]], /) -> AsyncOperation[C, R]: ...


class AsyncConsumes(Protocol):
    """What `AsyncNebis.consumer` returns: a decorator for a function of a message."""

    @overload
    def __call__(self, handler: Callable[[AsyncAttempt, Incoming[Any]], Awaitable[None]], /) -> AsyncConsumer: ...
    @overload
    def __call__(self, handler: Callable[[Incoming[Any]], Awaitable[None]], /) -> AsyncConsumer: ...


class Opened(NamedTuple):
    """A running world, and where it belongs."""

    process: int
    loop: asyncio.AbstractEventLoop
    here: tuple[AsyncWorld, Secrets]
    """What every request on that loop needs."""


class AsyncNebis(Catalogue[AsyncOperation[Any, Any]]):
    """An idempotency store and the operations that it protects, for asyncio code."""

    _opened: Opened | None = None
    _opening: asyncio.Task[Opened] | None = None

    @functools.cached_property
    def adopted(self) -> set[asyncio.Task[Any]]:
        """Return the tasks that hold an attempt and whose own callers may be gone; `close` waits for them."""
        return set()

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
    ) -> AsyncDeclares:
        """Declare a coroutine function of (attempt, command) or (command) that runs once per key.

        `effects` has no default: it decides what a crash means. The name is stored with each record and never changes.
        `undo` says, by the name of an effect, how to undo it if the operation is rejected after it; `queries` how to
        ask what became of it while that is in doubt.
        """
        declares = self._declares(
            name,
            functools.partial(AsyncOperation, self),
            is_async=True,
            effects=effects,
            scope=scope,
            fingerprint=fingerprint,
            classify=classify,
            undo=undo,
            queries=queries,
            options=policy,
        )
        return cast("AsyncDeclares", declares)

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
    ) -> AsyncConsumes:
        """Declare a coroutine function of (attempt, message: Incoming[T]), or of the message alone: once per message.

        Two deliveries are one message if they have the same id, or if `dedup` makes the same of them. With `sequence`,
        offsets count too: the last one applied of each partition is kept in the handler's own transaction. A message
        that fails `attempts_limit` times is parked; `nebis inbox` shows it.
        """
        declares = self._consumes(
            name,
            functools.partial(AsyncOperation, self),
            functools.partial(AsyncConsumer, self),
            is_async=True,
            effects=effects,
            dedup=dedup,
            sequence=sequence,
            attempts_limit=attempts_limit,
            fingerprint=fingerprint,
            undo=undo,
            queries=queries,
            options=policy,
        )
        return cast("AsyncConsumes", declares)

    async def begin(self, request: Request) -> AsyncOpenAttempt | Ending:
        """Claim for an integration that runs the work itself; or say how the request ends without running."""
        world, _ = self.opened_here() or await self.opened()
        known = await world.retelling.known(request)
        if known is not None:
            return known
        beginning = Beginning(world, request)
        ended = beginning.begin()
        try:
            return beginning.opened(await ended)
        except BaseException:
            beginning.abandon()
            raise

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Let `close` wait for a task that holds an attempt, whose own caller may be gone."""
        self.adopted.add(task)
        task.add_done_callback(self.adopted.discard)

    async def find(self, record_id: RecordId) -> Record | None:
        """Read a record by its public id, whosever it is; raise `StoreUnavailable` if it cannot be read now."""
        world, _ = await self.opened()
        try:
            return await world.backend.sessions.run(world.backend.store.find_by_id(record_id))
        except StoreFailure as failure:
            raise StoreUnavailable(failure.detail) from failure

    async def open(self) -> None:
        """Connect, bring the schema up to date, and refuse a wrong secret; otherwise the first call does."""
        await self.opened()

    async def opened(self) -> tuple[AsyncWorld, Secrets]:
        """Return the running world of this loop; a forked child opens its own (F094)."""
        if here := self.opened_here():
            return here
        opened, loop = self._opened, asyncio.get_running_loop()
        if opened is not None and opened.process == os.getpid() and not opened.loop.is_closed():
            raise MisuseError(
                "This AsyncNebis is open on another event loop; close it there, or make one for each loop."
            )
        if self._opening is None or self._opening.done() or self._opening.get_loop() is not loop:
            self._opening = loop.create_task(self._open(loop))
        return (await asyncio.shield(self._opening)).here

    def opened_here(self) -> tuple[AsyncWorld, Secrets] | None:
        """Return what is open on this loop already; every request asks, so it costs no coroutine, and makes nothing."""
        opened = self._opened
        return None if opened is None or opened.loop is not _running_loop() else opened.here

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Opened:
        # Opening logs in once to look at the server, which must not hold up the loop.
        backend = await asyncio.to_thread(open_async, self._location, **self._store_options)
        try:
            secrets = await backend.sessions.run(self._start(backend.store))
            world = AsyncWorld(
                backend,
                self._observers,
                keeps_house=self._keeps_house,
                recover=functools.partial(self._recover_on, loop, Patience()),
            )
        except BaseException as error:  # Whatever it was, nobody else knows of these connections.
            await backend.sessions.close()
            if isinstance(error, StoreFailure):
                raise StoreUnavailable(error.detail) from error
            raise
        self._opened = Opened(os.getpid(), loop, (world, secrets))
        return self._opened

    async def token_keys(self) -> tuple[bytes, ...]:
        """Return the keys that a downstream checks one-time tokens with; they are good for nothing else."""
        _, secrets = await self.opened()
        return tuple(secret.derive(Purpose.TOKEN) for secret in secrets.keyring)

    async def recover(self, patience: Patience, may_go_on: Callable[[], bool] = lambda: True) -> Report:
        """Look once after every record whose owner is gone or that is in doubt, and say what was done."""
        world, secrets = await self.opened()
        report = Report()
        recovery = Recovery(
            operations=self.operations,
            endpoints=self.endpoints,
            secrets=secrets,
            patience=patience,
            may_go_on=lambda: may_go_on() and not world.is_closing,
        )
        await drive_async(recovery.once(report), functools.partial(perform_async, world))
        for consumer in list(self.consumers.values()):
            report.redriven += await consumer.redrive_due(recovery.may_go_on)
        return report

    def _recover_on(self, loop: asyncio.AbstractEventLoop, patience: Patience) -> None:
        """Recover from the housekeeping's thread; handlers run on the loop, as always."""
        asyncio.run_coroutine_threadsafe(self.recover(patience), loop).result()

    async def close(self, grace: timedelta = GRACE) -> None:
        """Start nothing new, wait for running attempts, let go of those that do not end in time, and close.

        What is clean is given back and what is dirty and resumable is suspended, so that another process can go on at
        once; a handler that still runs then is cancelled.
        """
        opened = self._opened
        if opened is None or opened.process != os.getpid():
            self._opened = None
            return
        ends_at = time.monotonic() + grace.total_seconds()
        world, _ = opened.here
        world.is_closing = True
        # What is claimed now is still attempted, in a task that is then among the adopted ones.
        while under_way := {*self.adopted, *world.waiters()}:
            _, left = await asyncio.wait(under_way, timeout=max(0.0, ends_at - time.monotonic()))
            if left:
                break
        await world.close(max(0.0, ends_at - time.monotonic()))
        if self._opened is opened:
            self._opened = None

    async def __aenter__(self) -> Self:
        """Open the store."""
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        await self.close()
