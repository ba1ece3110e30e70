"""A transaction on SQLite that a library keeps."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from nebis.errors import MisuseError
from nebis.flow import Flow, drive
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, StoreFailure
from nebis.stores.sql.joining.keeper import AsyncHands, Hands, Keep, Keeper, Library, OnDriver, Standing
from nebis.stores.sql.sqlite.connection import Connection
from nebis.stores.sql.sqlite.failures import failure_of
from nebis.stores.sql.sqlite.transactions import SqliteTransaction

T = TypeVar("T")

Join = Callable[[sqlite3.Connection], Connection]
"""Checks that our promise can be kept on a connection of the application, and makes one of ours of it."""


def lent(join: Join, flow: Flow[T]) -> Flow[T]:
    """Perform a store flow inside the transaction that the application has open."""
    yield from Keep(_require_sqlite)
    raw, on_thread = _driver_of((yield from Keep(lambda keeper: keeper.lend())))
    answer: T = yield from OnDriver(lambda: on_thread(lambda: drive(flow, join(raw).perform)))
    return answer


class JoinedTransaction:
    """A transaction for blocking code."""

    def __init__(self, library: Library, join: Join) -> None:
        self._hands: Hands = library.hands()
        self._work = _Work(join)

    @property
    def connection(self) -> Any:
        """Return the connection or session as the application handed it in."""
        return self._hands.keeper.handle

    def begin(self) -> None:
        """Take the write lock."""
        self._hands.do(self._work.begin())

    def run(self, flow: Flow[T]) -> T:
        """Perform a store flow inside the transaction."""
        return self._hands.do(self._work.run(flow))

    def settle(self, flow: Flow[T]) -> T | None:
        """Perform the last store flow inside the transaction, or return None if somebody else ended it."""
        return self._hands.do(self._work.settle(flow))

    def is_same(self) -> bool:
        """Tell whether nobody else ended the transaction."""
        return self._hands.do(self._work.is_same())

    def commit(self) -> None:
        """Commit in the library's way."""
        self._hands.do(self._work.commit())

    def rollback(self) -> None:
        """Undo everything that is not committed."""
        with suppress(Exception):
            self._hands.do(self._work.rollback())


class AsyncJoinedTransaction:
    """A transaction for asyncio. A cancelled caller leaves, what runs goes on to its end."""

    is_shielded = True

    def __init__(self, library: Library, join: Join) -> None:
        self._hands: AsyncHands = library.async_hands()
        self._work = _Work(join)
        self._turn = asyncio.Lock()

    @property
    def connection(self) -> Any:
        """Return the connection or session as the application handed it in."""
        return self._hands.keeper.handle

    async def begin(self) -> None:
        """Take the write lock."""
        try:
            await self._undisturbed(self._work.begin())
        except asyncio.CancelledError:
            # Whoever is cancelled here never sees the transaction, so it would keep its lock for ever.
            await self.rollback()
            raise

    async def run(self, flow: Flow[T]) -> T:
        """Perform a store flow inside the transaction."""
        return await self._undisturbed(self._work.run(flow))

    async def settle(self, flow: Flow[T]) -> T | None:
        """Perform the last store flow inside the transaction, or return None if somebody else ended it."""
        return await self._undisturbed(self._work.settle(flow))

    async def is_same(self) -> bool:
        """Tell whether nobody else ended the transaction."""
        return await self._undisturbed(self._work.is_same())

    async def commit(self) -> None:
        """Commit in the library's way, whether or not the caller stays to hear of it."""
        await self._undisturbed(self._work.commit())

    async def rollback(self) -> None:
        """Undo everything, once what a cancelled caller left behind has ended."""
        with suppress(Exception):
            await self._undisturbed(self._work.rollback())

    async def _undisturbed(self, flow: Flow[T]) -> T:
        task = asyncio.get_running_loop().create_task(self._in_turn(flow))
        _running.add(task)
        task.add_done_callback(_forget)
        return await asyncio.shield(task)

    async def _in_turn(self, flow: Flow[T]) -> T:
        async with self._turn:
            return await self._hands.do(flow)


_running: set[asyncio.Task[Any]] = set()
"""The loop itself holds tasks only weakly, and a detached one has nobody else."""


def _forget(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # Retrieved: a detached task has nobody left to tell, and the loop would complain.


class _Work:
    """What is done inside a transaction that a library keeps, as flows: the same for both worlds."""

    def __init__(self, join: Join) -> None:
        self._join = join
        self._on_thread: Callable[[Callable[[], Any]], Any] = _here
        self._inner: SqliteTransaction | None = None
        self._is_begun = False

    def begin(self) -> Flow[None]:
        """Begin in the library's way; what the application had open stays as it was if we cannot join it."""
        try:
            was_open = yield from Keep(_checked)
            yield from self._join_or_leave(was_open=was_open)
        except (MisuseError, StoreFailure):
            raise
        except Exception as error:
            raise DefiniteFailure(f"the library gave no connection ({type(error).__name__})") from error
        self._is_begun = True

    def _join_or_leave(self, *, was_open: bool) -> Flow[None]:
        try:
            raw, self._on_thread = _driver_of((yield from Keep(lambda keeper: keeper.begin())))
            inner = SqliteTransaction(_Lent(lambda: self._join(_fresh(raw, was_open=was_open))))
            yield from OnDriver(lambda: self._on_thread(inner.begin))
        except BaseException:
            if not was_open:
                with suppress(Exception):
                    yield from Keep(lambda keeper: keeper.rollback())
            raise
        self._inner = inner

    def run(self, flow: Flow[T]) -> Flow[T]:
        yield from self._require_current()
        answer: T = yield from OnDriver(lambda: self._on_thread(lambda: self._begun().run(flow)))
        return answer

    def settle(self, flow: Flow[T]) -> Flow[T | None]:
        return (yield from self.run(flow)) if (yield from self.is_same()) else None

    def is_same(self) -> Flow[bool]:
        """Compare the library's transactions, then look for our savepoint in SQLite's."""
        if (yield from Keep(lambda keeper: keeper.standing())) is Standing.ENDED:
            return False
        yield from self._require_current()
        return bool((yield from OnDriver(lambda: self._on_thread(self._begun().is_same))))

    def commit(self) -> Flow[None]:
        yield from self._require_current()
        try:
            yield from Keep(lambda keeper: keeper.flush())
        except Exception as error:
            raise DefiniteFailure(f"what the session held back was refused ({type(error).__name__})") from error
        try:
            yield from Keep(lambda keeper: keeper.commit())
        except Exception as error:
            refusal = yield from _refusal(error)
            if refusal is None:
                raise IndefiniteFailure(f"the library lost the commit ({type(error).__name__})") from error
            raise failure_of(refusal, in_commit=True) from error
        self._is_begun = False

    def rollback(self) -> Flow[None]:
        """Roll back in the library's way, or throw the connection away."""
        if not self._is_begun:
            return
        self._is_begun = False
        try:
            yield from Keep(lambda keeper: keeper.rollback())
        except Exception:  # noqa: BLE001 - whatever it is, nobody else may get such a connection.
            yield from Keep(lambda keeper: keeper.discard())

    def _require_current(self) -> Flow[None]:
        """Stop before anything is sent on a connection that may be somebody else's by now."""
        if (yield from Keep(lambda keeper: keeper.standing())) is not Standing.CURRENT:
            raise DefiniteFailure("the transaction failed or was ended inside its block")

    def _begun(self) -> SqliteTransaction:
        assert self._inner is not None, "The transaction has not begun."
        return self._inner


class _Lent:
    """A connection that its library takes back by itself."""

    def __init__(self, take: Callable[[], Connection]) -> None:
        self.take = take

    def give_back(self) -> None:
        """Leave the rest to the library, which rolls back."""


def _checked(keeper: Keeper) -> bool:
    _require_sqlite(keeper)
    return keeper.is_open()


def _require_sqlite(keeper: Keeper) -> None:
    if keeper.dialect != "sqlite":
        raise MisuseError(
            f"The connection is on {keeper.dialect}, the store in SQLite; hand in a connection to the store's own file."
        )


def _fresh(raw: sqlite3.Connection, *, was_open: bool) -> sqlite3.Connection:
    """End what a library began just now: a deferred transaction cannot be trusted to get the write lock (F041)."""
    if raw.in_transaction and not was_open:
        raw.execute("ROLLBACK")
    return raw


def _driver_of(raw: Any) -> tuple[sqlite3.Connection, Callable[[Callable[[], Any]], Any]]:
    """Return the connection, and how to call something on the thread that it belongs to."""
    if isinstance(raw, sqlite3.Connection):
        return raw, _here
    if type(raw).__module__.partition(".")[0] == "aiosqlite":
        # Neither has a public name; without them nothing but single statements can be sent to that thread.
        return raw._conn, raw._execute  # noqa: SLF001
    raise MisuseError(f"Nebis cannot use the driver of {type(raw).__module__}; use sqlite3 or aiosqlite.")


def _here(act: Callable[[], Any]) -> Any:
    return act()


def _refusal(error: Exception) -> Flow[Exception | None]:
    return (yield from Keep(lambda keeper: keeper.refusal_of_commit(error)))
