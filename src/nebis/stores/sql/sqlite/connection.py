"""One connection to the file: it performs what the store's flows ask."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote
from uuid import UUID

from nebis.errors import ConfigError
from nebis.flow import Ask
from nebis.ports.store import DefiniteFailure
from nebis.stores.sql.asks import Begin, Commit, Query, Rollback, Row
from nebis.stores.sql.sqlite.failures import failure_of, leaves_connection_usable, primary_code
from nebis.stores.sql.sqlite.journal import GuardedCheckpoints, Journal
from nebis.stores.sql.sqlite.location import DatabaseFile

_SWITCH_RETRY_SECONDS = 0.02


class Connection:
    """A connection with its transaction; used by one thread at a time."""

    def __init__(self, file: DatabaseFile, journal: Journal, busy_seconds: float) -> None:
        file.check()
        self._raw = _connect(file, busy_seconds)
        self._checkpoints: GuardedCheckpoints | None = None
        try:
            _prepare(self._raw, journal, busy_seconds)
            if journal is Journal.WAL_GUARDED:
                copier = _connect(file, busy_seconds)
                _prepare(copier, journal, busy_seconds)
                self._checkpoints = GuardedCheckpoints(self._raw, copier)
        except BaseException:
            self._raw.close()
            raise
        self._file = file
        self._has_begun = False
        self.is_usable = True

    def perform(self, ask: Ask[Any]) -> Any:
        """Do what a flow asks; every error of the driver comes out as definite or indefinite."""
        try:
            match ask:
                case Query():
                    return self._query(ask)
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
            raise failure_of(error, in_commit=isinstance(ask, Commit)) from error

    def settle(self) -> None:
        """Undo what an abandoned flow left open, and checkpoint if it is time."""
        try:
            self._rollback()
            if self.is_usable and self._checkpoints is not None:
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
            self._raw.close()

    def _begin(self) -> None:
        # A deferred transaction that upgrades later fails at once, whatever the timeout (F041).
        self._raw.execute("BEGIN IMMEDIATE")
        self._has_begun = True
        # Now that nobody else can move on, the lock must be on the file that everybody else sees (F043).
        self._file.check()

    def _query(self, query: Query) -> list[Row]:
        self._refuse_if_lost()
        if query.members is None:
            return self._raw.execute(query.statement.text, _bindable(query.shared)).fetchall()
        return [
            row
            for member in query.members
            for row in self._raw.execute(query.statement.text, _bindable({**query.shared, **member})).fetchall()
        ]

    def _commit(self) -> None:
        self._refuse_if_lost()
        self._raw.execute("COMMIT")
        self._has_begun = False

    def _rollback(self) -> None:
        self._has_begun = False
        if self._raw.in_transaction:
            self._raw.execute("ROLLBACK")

    def _refuse_if_lost(self) -> None:
        """Stop where SQLite rolled back by itself: the next statement would be a transaction of its own (F019)."""
        if self._has_begun and not self._raw.in_transaction:
            raise DefiniteFailure("SQLite gave up the transaction, so nothing of it was applied; try again")


def _bindable(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: value.bytes if isinstance(value, UUID) else value for name, value in values.items()}


def _connect(file: DatabaseFile, busy_seconds: float) -> sqlite3.Connection:
    is_new = not file.path.exists()
    # A file that is known must never be created anew: that would be a second, empty memory of the same keys.
    mode = "rw" if file.was_opened else "rwc"
    try:
        raw = sqlite3.connect(
            f"file:{quote(str(file.path))}?mode={mode}",
            uri=True,
            timeout=busy_seconds,
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
        # With less than FULL a commit that was told to the client may vanish when the power fails (I11).
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute("PRAGMA fullfsync = ON")
        raw.execute("PRAGMA checkpoint_fullfsync = ON")
        raw.execute("PRAGMA foreign_keys = ON")
        if journal is Journal.WAL_GUARDED:
            raw.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    except sqlite3.Error as error:
        if primary_code(error) == sqlite3.SQLITE_NOTADB:
            raise ConfigError(["the file of the store is not a SQLite database; name another file"]) from error
        raise failure_of(error, in_commit=False) from error


def _switch_journal(raw: sqlite3.Connection, wanted: str, busy_seconds: float) -> None:
    """Bring the file into the wanted mode. Of several starters one switches; SQLite does not let the others wait."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            if raw.execute("PRAGMA journal_mode").fetchone()[0] == wanted:
                return
            found = raw.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_SWITCH_RETRY_SECONDS)
            continue
        if found != wanted:
            raise ConfigError([f"the file system does not allow SQLite's journal mode {wanted} (it stays {found})"])
        return
