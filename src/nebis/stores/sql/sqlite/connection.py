"""One connection to the file: it performs what the store's flows ask."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote
from uuid import UUID

from nebis.errors import ConfigError, MisuseError
from nebis.flow import Ask
from nebis.ports.store import DefiniteFailure, IndefiniteFailure
from nebis.stores.sql.asks import Begin, Commit, Query, Rollback, Row, Write, Written
from nebis.stores.sql.sqlite.failures import failure_of, is_about_a_row, leaves_connection_usable, primary_code
from nebis.stores.sql.sqlite.journal import PAGES_PER_CHECKPOINT, GuardedCheckpoints, Journal
from nebis.stores.sql.sqlite.location import DatabaseFile
from nebis.stores.sql.sqlite.plural import BoundWrite, bound_write, bytes_of, run_plural

T = TypeVar("T")
P = ParamSpec("P")

_RETRY_SECONDS = 0.002
"""How often a busy file is tried again. SQLite's own timeout backs off to a tenth of a second, which a process that
writes all the time never leaves free: of eight such processes three were starved for five seconds."""

_MANY_BYTES = 1 << 20
"""More than this is written by a thread, although it only goes to memory and to the system's cache."""


class Connection:
    """A connection with its transaction, ours or the application's own; used by one thread at a time."""

    def __init__(
        self,
        raw: sqlite3.Connection,
        file: DatabaseFile,
        busy_seconds: float,
        checkpoints: GuardedCheckpoints | None = None,
    ) -> None:
        self.raw = raw
        self._cursor = raw.cursor()
        self._cursor.row_factory = None  # The application's own connection may make something else of its rows.
        self._busy_seconds = busy_seconds
        self._file = file
        self._checkpoints = checkpoints
        self.has_begun = False
        self.is_usable = True
        self.may_wait = True
        """Whether whoever uses it has time for a busy file, and for a checkpoint."""

    def perform(self, ask: Ask[Any]) -> Any:
        """Do what a flow asks; every error of the driver comes out as definite or indefinite."""
        try:
            match ask:
                case Query():
                    return self._query(ask)
                case Write():
                    return self.perform(bound_write(ask))
                case BoundWrite():
                    return self._write(ask)
                case Begin():
                    return self._begin()
                case Commit():
                    return self._commit()
                case Rollback():
                    return self._rollback()
                case _:
                    raise AssertionError(f"a SQLite connection cannot perform {type(ask).__name__}")
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:
            self.is_usable = self.is_usable and leaves_connection_usable(error)
            in_commit = isinstance(ask, Commit) or (isinstance(ask, BoundWrite) and not is_about_a_row(error))
            raise failure_of(error, in_commit=in_commit) from error

    def takes_long(self, ask: Ask[Any]) -> bool:
        """Tell whether an ask waits for the disk, or writes so much that an event loop should not wait for it."""
        if isinstance(ask, Query):
            return ask.members is not None and bytes_of(ask.members) > _MANY_BYTES
        return isinstance(ask, Commit | Write)

    @property
    def is_checkpoint_due(self) -> bool:
        """Tell whether settling will take as long as a checkpoint."""
        return self._checkpoints is not None and self._checkpoints.is_due

    @property
    def _patience(self) -> float:
        return self._busy_seconds if self.may_wait else 0.0

    def settle(self, *, may_checkpoint: bool = True) -> None:
        """Undo what an abandoned flow left open, and checkpoint if it is time."""
        try:
            self._rollback()
            if self._checkpoints is not None:
                self._checkpoints.take_note()
                if may_checkpoint and self.is_usable and self.may_wait:
                    self._checkpoints.checkpoint_when_due()
        except sqlite3.Error as error:
            # What was committed stays in the log, and the next connection goes on from there.
            self.is_usable = self.is_usable and leaves_connection_usable(error)

    def close(self) -> None:
        """Close; the last connection to leave folds the log into the file, when nobody else can be writing."""
        with suppress(sqlite3.Error):
            if self._checkpoints is not None:
                self._checkpoints.close()
        with suppress(sqlite3.Error):
            # A statement that failed stays with its cursor, and SQLite closes no file under a statement: whoever still
            # looks at the error would keep the file open, and all its locks.
            self._cursor.close()
        with suppress(sqlite3.Error):
            self.raw.close()

    def _begin(self) -> None:
        # A deferred transaction that upgrades later fails at once, whatever the timeout (F041).
        self._execute("BEGIN IMMEDIATE")
        self.has_begun = True
        # Now that nobody else can move on, the lock must be on the file that everybody else sees (F043).
        self._file.check()

    def _query(self, query: Query) -> list[Row]:
        self._refuse_if_lost()
        if query.members is None:
            return self._execute(query.statement.text, query.shared)
        # Whoever has begun holds the lock, and meets no busy file.
        execute = self._cursor.execute if self.has_begun else self._executed
        return run_plural(query, execute, self._fetch)

    def _write(self, write: BoundWrite) -> Written:
        self._refuse_if_lost()
        cursor = self._executed(write.text, write.values)
        if not self.has_begun:
            # As at `_begin`, but afterwards: if it is still there, it was there when this was committed (F043).
            try:
                self._file.check()
            except DefiniteFailure as failure:
                raise IndefiniteFailure(failure.detail) from failure
        return Written(cursor.rowcount, cursor.lastrowid or 0, write.now)

    def _executed(self, text: str, values: Sequence[Any]) -> sqlite3.Cursor:
        return patiently(self._patience, self._cursor.execute, text, values)

    def _fetch(self, text: str, values: Sequence[Any]) -> list[Row]:
        return patiently(self._patience, _fetched, self._cursor, text, values)

    def _execute(self, text: str, values: Mapping[str, object] = MappingProxyType({})) -> list[Row]:
        """Run one statement, again and again while the file is busy: a busy statement has done nothing."""
        return patiently(self._patience, _fetched, self._cursor, text, _bindable(values))

    def _commit(self) -> None:
        self._refuse_if_lost()
        self._execute("COMMIT")
        self.has_begun = False

    def _rollback(self) -> None:
        self.has_begun = False
        if self.raw.in_transaction:
            self.raw.execute("ROLLBACK")

    def _refuse_if_lost(self) -> None:
        """Stop where SQLite rolled back by itself: the next statement would be a transaction of its own (F019)."""
        if self.has_begun and not self.raw.in_transaction:
            raise DefiniteFailure("SQLite gave up the transaction, so nothing of it was applied; try again")


def open_connection(file: DatabaseFile, journal: Journal, busy_seconds: float) -> Connection:
    """Open the file, ready for work; raise `ConfigError` for what must be corrected before anything can work."""
    file.check()
    raw = _ready(file, journal, busy_seconds)
    if journal is not Journal.WAL_GUARDED:
        return Connection(raw, file, busy_seconds)
    try:
        copier = _ready(file, journal, busy_seconds)
    except BaseException:
        raw.close()
        raise
    return Connection(raw, file, busy_seconds, GuardedCheckpoints(raw, copier))


def join_connection(raw: object, file: DatabaseFile, journal: Journal, busy_seconds: float) -> Connection:
    """Take the application's own connection; raise `MisuseError` unless our promise can be kept on it."""
    if not isinstance(raw, sqlite3.Connection):
        raise MisuseError(f"{type(raw).__name__} is no sqlite3.Connection; hand in one that is open on {file.path}.")
    if raw.in_transaction:
        raise MisuseError("The connection is already in a transaction; commit or roll back before you hand it in.")
    try:
        _require_file(raw, file)
        _make_durable(raw, journal)
    except sqlite3.Error as error:
        raise failure_of(error, in_commit=False) from error
    return Connection(raw, file, busy_seconds)


def lend_connection(raw: object, file: DatabaseFile, busy_seconds: float) -> Connection:
    """Use the application's own connection inside its transaction; how durable that is stays its affair."""
    if not isinstance(raw, sqlite3.Connection):
        raise MisuseError(f"{type(raw).__name__} is no sqlite3.Connection; hand in one that is open on {file.path}.")
    if not raw.in_transaction and raw.isolation_level is None:
        raise MisuseError("The connection is in no transaction that could be committed; begin one first.")
    try:
        _require_file(raw, file)
    except sqlite3.Error as error:
        raise failure_of(error, in_commit=False) from error
    return Connection(raw, file, busy_seconds)


def _require_file(raw: sqlite3.Connection, file: DatabaseFile) -> None:
    if raw.text_factory is not str:
        raise MisuseError("The connection has a text_factory of its own; hand in one that reads text as str.")
    places = {name: place for _, name, place in raw.cursor().execute("PRAGMA database_list")}
    if not file.is_at(places["main"]):
        raise MisuseError(f"The connection is open on another file; hand in one that is open on {file.path}.")


def _bindable(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: value.bytes if isinstance(value, UUID) else value for name, value in values.items()}


def _fetched(cursor: sqlite3.Cursor, text: str, values: Any) -> list[Row]:
    return cursor.execute(text, values).fetchall()


def _ready(file: DatabaseFile, journal: Journal, busy_seconds: float) -> sqlite3.Connection:
    raw = _connect(file)
    try:
        _prepare(raw, journal, busy_seconds)
    except BaseException:
        raw.close()
        raise
    return raw


def _connect(file: DatabaseFile) -> sqlite3.Connection:
    is_new = not file.path.exists()
    # A file that is known must never be created anew: that would be a second, empty memory of the same keys.
    mode = "rw" if file.was_opened else "rwc"
    try:
        raw = sqlite3.connect(
            f"file:{quote(str(file.path))}?mode={mode}",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        if file.was_opened:
            raise failure_of(error, in_commit=False) from error
        raise ConfigError([f"{file.path} cannot be opened ({error}); check the path and its permissions"]) from error
    if is_new:
        # It will hold the root secret and every stored answer.
        file.path.chmod(0o600)
    if not file.was_opened:
        file.remember()
    return raw


def _prepare(raw: sqlite3.Connection, journal: Journal, busy_seconds: float) -> None:
    try:
        _switch_journal(raw, "wal" if journal.is_wal else "truncate", busy_seconds)
        raw.execute("PRAGMA foreign_keys = ON")
        _make_durable(raw, journal)
        if journal is Journal.WAL:
            raw.execute(f"PRAGMA wal_autocheckpoint = {PAGES_PER_CHECKPOINT}").fetchall()
    except sqlite3.Error as error:
        if primary_code(error) == sqlite3.SQLITE_NOTADB:
            raise ConfigError(["the file of the store is not a SQLite database; name another file"]) from error
        raise failure_of(error, in_commit=False) from error


def _make_durable(raw: sqlite3.Connection, journal: Journal) -> None:
    # With less than FULL a commit that was told to the client may vanish when the power fails (I11).
    raw.execute("PRAGMA synchronous = FULL")
    raw.execute("PRAGMA fullfsync = ON")
    raw.execute("PRAGMA checkpoint_fullfsync = ON")
    if journal is Journal.WAL_GUARDED:
        raw.execute("PRAGMA wal_autocheckpoint = 0").fetchall()


def _switch_journal(raw: sqlite3.Connection, wanted: str, busy_seconds: float) -> None:
    """Bring the file into the wanted mode. Of several starters one switches, the others find it done."""

    def switch() -> str:
        mode: str = raw.execute("PRAGMA journal_mode").fetchone()[0]
        if mode != wanted:
            mode = raw.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
        return mode

    found = patiently(busy_seconds, switch)
    if found != wanted:
        raise ConfigError([f"the file system does not allow SQLite's journal mode {wanted} (it stays {found})"])


def patiently(busy_seconds: float, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Try until the file is not busy, or for so long; then let the caller see that it was."""
    deadline: float | None = None
    while True:
        try:
            return act(*args, **kwargs)
        except sqlite3.OperationalError as error:
            now = time.monotonic()
            deadline = now + busy_seconds if deadline is None else deadline
            if primary_code(error) != sqlite3.SQLITE_BUSY or now >= deadline:
                raise
        time.sleep(_RETRY_SECONDS)
