"""A joined transaction on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from nebis.errors import MisuseError
from nebis.flow import Flow
from nebis.ports.store import DefiniteFailure, IndefiniteFailure
from nebis.stores.sql.joining.keeper import Keep, OnDriver
from nebis.stores.sql.sqlite.connection import Connection
from nebis.stores.sql.sqlite.failures import failure_of
from nebis.stores.sql.sqlite.transactions import SqliteTransaction

T = TypeVar("T")

Join = Callable[[sqlite3.Connection], Connection]
"""Checks that our promise can be kept on a connection of the application, and makes one of ours of it."""


class SqliteScript:
    """What is said to SQLite inside a transaction that a library keeps."""

    def __init__(self, join: Join) -> None:
        self._join = join
        self._on_thread: Callable[[Callable[[], Any]], Any] = _here
        self._inner: SqliteTransaction | None = None
        self._is_begun = False

    def begin(self) -> Flow[None]:
        """Take the write lock, or raise `MisuseError` where we could not keep our promise."""
        was_open = yield from Keep(_checked)
        try:
            raw, self._on_thread = _driver_of((yield from Keep(lambda keeper: keeper.begin())))
            self._inner = SqliteTransaction(_Lent(lambda: self._join(_fresh(raw, was_open=was_open))))
            yield from OnDriver(lambda: self._on_thread(self._begun().begin))
        except BaseException:
            # What the application had open before stays as it was.
            if not was_open:
                yield from Keep(lambda keeper: keeper.rollback())
            raise
        self._is_begun = True

    def run(self, flow: Flow[T]) -> Flow[T]:
        """Perform a store flow inside the transaction."""
        yield from self._require_current()
        answer: T = yield from OnDriver(lambda: self._on_thread(lambda: self._begun().run(flow)))
        return answer

    def is_same(self) -> Flow[bool]:
        """Compare the library's transactions, then look for our savepoint in SQLite's."""
        if (yield from Keep(lambda keeper: keeper.is_current() and keeper.has_failed())):
            return True  # Rolled back as a whole, which the next statement of ours will say.
        if not (yield from Keep(lambda keeper: keeper.is_current())):
            return False
        return bool((yield from OnDriver(lambda: self._on_thread(self._begun().is_same))))

    def commit(self) -> Flow[None]:
        """Flush and commit in the library's way."""
        yield from self._require_current()
        try:
            yield from Keep(lambda keeper: keeper.flush())
        except Exception as error:
            raise DefiniteFailure(f"what the session held back was refused ({type(error).__name__})") from error
        try:
            yield from Keep(lambda keeper: keeper.commit())
        except Exception as error:
            refusal = yield from Keep(lambda keeper: keeper.refusal_of_commit(error))
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
        except Exception:  # noqa: BLE001 - it can still be thrown away.
            yield from Keep(lambda keeper: keeper.discard())

    def _require_current(self) -> Flow[None]:
        """Stop before anything is sent on a connection that may be somebody else's by now."""
        if (yield from Keep(lambda keeper: keeper.has_failed() or not keeper.is_current())):
            raise DefiniteFailure("the transaction was ended or has failed inside its block")

    def _begun(self) -> SqliteTransaction:
        assert self._inner is not None, "The transaction has not begun."
        return self._inner


class _Lent:
    """A connection that its library takes back by itself."""

    def __init__(self, take: Callable[[], Connection]) -> None:
        self.take = take

    def give_back(self) -> None:
        """Leave the rest to the library, which rolls back."""


def _checked(keeper: Any) -> bool:
    if keeper.dialect != "sqlite":
        raise MisuseError(
            f"The connection is on {keeper.dialect}, the store in SQLite; hand in a connection to the store's own file."
        )
    return bool(keeper.is_open())


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
