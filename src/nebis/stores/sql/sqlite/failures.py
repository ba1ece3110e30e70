"""What an error of SQLite says about the write that it interrupted."""

from __future__ import annotations

import sqlite3

from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked, Spoilt, StoreFailure

_BUSY = frozenset([sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED])
# Before COMMIT nothing is on disk that recovery would take for committed, so each of these means: not applied. They
# are listed one by one, because a code that is not here may come from a SQLite that behaves in a new way.
_REFUSED = frozenset(
    [
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_INTERNAL,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_ABORT,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTFOUND,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_EMPTY,
        sqlite3.SQLITE_SCHEMA,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_MISUSE,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_RANGE,
        sqlite3.SQLITE_NOTADB,
    ]
)
# One row of several is to blame.
_ABOUT_A_ROW = frozenset([sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH])
# After these the connection is as good as before.
_HARMLESS = _BUSY | {sqlite3.SQLITE_CONSTRAINT}


def failure_of(error: Exception, *, in_commit: bool) -> StoreFailure:
    """Say whether the write was certainly not applied. What is not known is indefinite."""
    detail = f"{type(error).__name__}: {error}"
    code = primary_code(error)
    if code in _BUSY:
        return RowLocked(detail)
    if not isinstance(error, sqlite3.Error):
        # A value that the driver could not bind: nothing was sent.
        return IndefiniteFailure(detail) if in_commit else Spoilt(detail)
    if in_commit:
        # The commit record may be on disk although its sync failed; recovery after a crash would then honour it.
        return IndefiniteFailure(detail)
    if code in _ABOUT_A_ROW:
        return Spoilt(detail)
    if code in _REFUSED or isinstance(error, sqlite3.InterfaceError | sqlite3.ProgrammingError):
        return DefiniteFailure(detail)
    return IndefiniteFailure(detail)


def is_about_a_row(error: Exception) -> bool:
    """Tell whether a statement failed because of what it was to write, long before a commit."""
    return not isinstance(error, sqlite3.Error) or primary_code(error) in _ABOUT_A_ROW


def leaves_connection_usable(error: Exception) -> bool:
    """Tell whether the connection may be used again after the transaction was rolled back."""
    return primary_code(error) in _HARMLESS


def primary_code(error: Exception) -> int | None:
    """Return the primary result code; the extended one keeps it in its lowest byte."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
