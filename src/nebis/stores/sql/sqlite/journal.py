"""How the file is journalled, and how checkpoints keep clear of the WAL-reset bug of older versions of SQLite.

Why and what was measured: docs/decisions/0002-sqlite-wal-reset.md.
"""

from __future__ import annotations

import sqlite3
from enum import StrEnum

_CHANGES_PER_CHECKPOINT = 30_000
"""Rows changed by one process before it checkpoints, three for each key: some sixty megabytes of log. Pages that change
often are copied once for all, and the disk is waited for once."""

_CHANGES_PER_COMMIT = 10
"""What a commit counts for besides its rows: it writes whole pages, however few rows are new on them."""

PAGES_PER_CHECKPOINT = 15_000
"""About as much where SQLite checkpoints by itself, which it does after a thousand pages unless it is told."""


class Journal(StrEnum):
    """How a transaction becomes durable."""

    WAL = "wal"
    """A log that SQLite checkpoints by itself."""
    WAL_GUARDED = "wal-guarded"
    """The same log, checkpointed by us and only while nobody can write: for versions with the WAL-reset bug."""
    ROLLBACK = "rollback"
    """No log at all: slower, but proof against the bug even where other programs write to the same file."""

    @property
    def is_wal(self) -> bool:
        """Tell whether the file is in WAL mode."""
        return self is not Journal.ROLLBACK

    @property
    def assumption(self) -> str:
        """Say what this way of journalling rests on."""
        match self:
            case Journal.WAL:
                return f"SQLite {sqlite3.sqlite_version} journals with WAL and is free of the WAL-reset bug"
            case Journal.WAL_GUARDED:
                return (
                    f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug: nebis checkpoints only while it holds the "
                    "write lock; other programs that write to this file must set wal_autocheckpoint=0, or open the "
                    'store with journal="rollback"'
                )
            case Journal.ROLLBACK:
                return f"SQLite {sqlite3.sqlite_version} journals with a rollback journal"


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Tell whether a checkpoint that meets a write can lose pages in this version of SQLite."""
    if version >= (3, 51, 3):
        return False
    # The fix was carried back to two older lines.
    return not ((3, 50, 7) <= version < (3, 51, 0) or (3, 44, 6) <= version < (3, 45, 0))


def chosen_journal(wanted: str) -> Journal:
    """Return how to journal, from the wish "wal" or "rollback" and the version of SQLite."""
    if wanted == "wal" and has_wal_reset_bug(sqlite3.sqlite_version_info):
        return Journal.WAL_GUARDED
    return Journal(wanted)


class GuardedCheckpoints:
    """Checkpoints that never overlap a write, by anybody: one connection holds the write lock, another copies."""

    def __init__(self, writer: sqlite3.Connection, copier: sqlite3.Connection) -> None:
        self._writer = writer
        self._copier = copier
        # The first write of a process checkpoints what one that was killed left behind.
        self._changes_at_last = writer.total_changes - _CHANGES_PER_CHECKPOINT
        self._changes_seen = writer.total_changes
        self._commits = 0

    def take_note(self) -> None:
        """Count a commit, if there was one."""
        changes = self._writer.total_changes
        if changes != self._changes_seen:
            self._changes_seen = changes
            self._commits += 1

    @property
    def is_due(self) -> bool:
        """Tell whether enough was written since the last time."""
        changes = self._writer.total_changes - self._changes_at_last
        return changes + _CHANGES_PER_COMMIT * self._commits > _CHANGES_PER_CHECKPOINT

    def checkpoint_when_due(self) -> None:
        """Copy the log into the database if enough was written since the last time; a later write tries again."""
        if not self.is_due:
            return
        changes = self._writer.total_changes
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            self._copier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            self._writer.execute("ROLLBACK")
        self._changes_at_last, self._commits = changes, 0

    def close(self) -> None:
        """Close the second connection."""
        self._copier.close()
