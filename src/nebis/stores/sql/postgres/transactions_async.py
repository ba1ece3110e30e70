"""Transactions of the application on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from nebis.flow import Ask, Flow, drive_async
from nebis.ports.store import AsyncSessions
from nebis.stores.sql.postgres.async_connections import AsyncDriver, AsyncSource
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.transactions import TransactionTalk
from nebis.stores.sql.postgres.transactions_asks import Elsewhere
from nebis.stores.sql.postgres.transactions_home import Home

T = TypeVar("T")
C = TypeVar("C")


def _cannot() -> bool:
    return False


class AsyncTransactionDriver(AsyncDriver[C], Protocol[C]):
    """What a transaction needs of a driver besides; `perform` also knows `Start`, `Finish` and `Undo`."""

    def is_open(self, connection: C) -> bool:
        """Say whether the application has begun a transaction; raise `MisuseError` if we could not commit it."""
        ...

    def is_plain(self, connection: C) -> bool:
        """Say whether it is certain that nobody changed how the connection writes and reads values."""
        ...

    def can_finish_with(self, connection: C) -> bool:
        """Say whether `perform` knows `FinishWith` on this connection now."""
        ...


class Place(Protocol[C]):
    """Where a transaction's connection comes from and goes to."""

    is_ours: bool

    async def take(self) -> C:
        """Return a connection that nobody else uses."""
        ...

    async def give_back(self, connection: C, *, is_spoilt: bool) -> None:
        """Let go of it; a spoilt one is never used again."""
        ...


class OwnPlace(Generic[C]):
    """A connection of ours, or of the pool that the application gave us."""

    is_ours = True

    def __init__(self, source: AsyncSource[C]) -> None:
        self.take = source.take
        self.give_back = source.give_back


class JoinedPlace(Generic[C]):
    """The application's own connection, which stays open unless nobody can tell what it is in the middle of."""

    is_ours = False

    def __init__(self, connection: C, driver: AsyncDriver[C]) -> None:
        self._connection = connection
        self._driver = driver

    async def take(self) -> C:
        """Return the connection."""
        return self._connection

    async def give_back(self, connection: C, *, is_spoilt: bool) -> None:
        """Leave it to the application."""
        if is_spoilt:
            self._driver.discard(connection)


class Belongings(NamedTuple):
    """What every transaction of one store shares."""

    home: Home
    settings: Settings
    sessions: AsyncSessions


class AsyncPostgresTransaction(Generic[C]):
    """The asyncio twin of `PostgresTransaction`."""

    is_shielded = True

    def __init__(self, shared: Belongings, driver: AsyncTransactionDriver[C], place: Place[C]) -> None:
        self._shared = shared
        self._driver = driver
        self._place = place
        self._taken: tuple[C, TransactionTalk, Any] | None = None
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def connection(self) -> Any:
        """Return what the application writes its own rows with."""
        return self._open()[0]

    async def begin(self) -> None:
        """Start it; raise `MisuseError` for a connection that is already inside one that we could not commit."""
        try:
            await self._undisturbed(self._begin())
        except asyncio.CancelledError:
            # Whoever is cancelled here never sees the transaction, so it would keep its locks for ever.
            self._start(self._in_turn(self._rollback()))
            raise

    async def run(self, flow: Flow[T]) -> T:
        """Perform a store flow inside it."""
        return await self._undisturbed(self._drive(lambda talk: talk.hold(flow)))

    async def settle(self, flow: Flow[T]) -> T | None:
        """Perform the last store flow inside it, or return None if somebody else ended it.

        Where it commits in the same trip, that is finished whether or not the caller stays to hear of it (F017).
        """
        if self._open()[1].commits_with_last:
            return await self._detached(self._drive(lambda talk: talk.settle(flow, may_commit=True)))
        return await self._undisturbed(self._drive(lambda talk: talk.settle(flow)))

    async def is_same(self) -> bool:
        """Tell whether the transaction that `begin` started is still the current one."""
        return await self._detached(self._drive(TransactionTalk.is_same))

    async def commit(self) -> None:
        """Commit, whether or not the caller stays to hear of it, and let the connection go either way (F017)."""
        if self._open()[1].is_finished:
            await self._end()
        else:
            await self._detached(self._commit())

    async def rollback(self) -> None:
        """Undo everything, after what is still running; never raises."""
        await self._detached(self._rollback())

    async def _begin(self) -> None:
        home, settings, _ = self._shared
        connection = await self._place.take()
        try:
            is_open = self._driver.is_open(connection)
        except BaseException:
            await self._place.give_back(connection, is_spoilt=False)
            raise
        is_ours = self._place.is_ours
        is_plain = is_ours and self._driver.is_plain(connection)
        talk = TransactionTalk(
            home,
            settings,
            self._driver.describe,
            is_ours=is_ours,
            is_open=is_open,
            is_plain=is_plain,
            can_finish_with=partial(self._driver.can_finish_with, connection) if is_ours else _cannot,
        )
        self._taken = (connection, talk, self._driver.listen_to_warnings(connection, talk))
        try:
            await self._drive(TransactionTalk.begin)
        except BaseException:
            await self._end()
            raise

    async def _commit(self) -> None:
        try:
            await self._drive(TransactionTalk.commit)
        finally:
            await self._end()

    async def _rollback(self) -> None:
        if self._taken is None:
            return
        try:
            await self._drive(TransactionTalk.roll_back)
        finally:
            await self._end()

    def _undisturbed(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Do what must not be cancelled half-way: a connection of the application would not survive that."""
        return self._detached(work) if self.is_shielded or not self._place.is_ours else self._in_turn(work)

    async def _detached(self, work: Coroutine[Any, Any, T]) -> T:
        """Do one thing after the other, each in a task that no caller can cancel.

        Whoever waits is told by the task itself: a shield would tell it one turn of the loop later, and a single
        transaction does four things.
        """
        told: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._start(self._telling(work, told))
        return await told

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        # The loop itself holds tasks only weakly, and a detached one has nobody else.
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    async def _telling(self, work: Coroutine[Any, Any, T], told: asyncio.Future[T]) -> None:
        try:
            result = await self._in_turn(work)
        except asyncio.CancelledError:
            told.cancel()
            raise
        except BaseException as error:
            if not told.done():  # Otherwise its caller was cancelled meanwhile, and hears of nothing any more.
                told.set_exception(error)
            raise
        if not told.done():
            told.set_result(result)

    async def _in_turn(self, work: Coroutine[Any, Any, T]) -> T:
        await self._turn.acquire()  # Not with `async with`, which is two coroutines more at each step.
        try:
            return await work
        finally:
            self._turn.release()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieved: a detached task has nobody left to tell, and the loop would complain.

    def _drive(self, flow: Callable[[TransactionTalk], Flow[T]]) -> Coroutine[Any, Any, T]:
        return drive_async(flow(self._open()[1]), self._perform)

    def _perform(self, ask: Ask[Any]) -> Awaitable[Any] | Any:
        if isinstance(ask, Elsewhere):
            return self._shared.sessions.run(iter(ask.query))
        return self._driver.perform(self._open()[0], ask)

    def _open(self) -> tuple[C, TransactionTalk, Any]:
        assert self._taken is not None, "The transaction has not begun, or is over."
        return self._taken

    async def _end(self) -> None:
        connection, talk, listening = self._open()
        self._taken = None
        self._driver.stop_listening(connection, listening)
        await self._place.give_back(connection, is_spoilt=talk.is_spoilt)
