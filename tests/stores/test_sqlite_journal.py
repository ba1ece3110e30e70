"""Journalling: durable in every mode, and clear of the WAL-reset bug (docs/decisions/0002-sqlite-wal-reset.md)."""

import sqlite3
import subprocess
from pathlib import Path

import pytest

from nebis.core.record import State
from nebis.stores.sql.sqlite import journal as journals
from nebis.stores.sql.sqlite import open_blocking
from nebis.stores.sql.sqlite.connection import Connection, open_connection
from nebis.stores.sql.sqlite.journal import Journal, chosen_journal, has_wal_reset_bug
from nebis.stores.sql.sqlite.location import DatabaseFile
from nebis.testing.conformance.specimens import START_US, claim
from tests.stores.sql_backends import sqlite_url

FULL = 2


@pytest.mark.parametrize(
    ("version", "has_bug"),
    [
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 49, 2), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
        ((3, 54, 1), False),
    ],
)
def test_versions_with_the_bug_are_known(version: tuple[int, ...], has_bug: bool) -> None:
    assert has_wal_reset_bug(version) is has_bug


@pytest.mark.parametrize(
    ("version", "wish", "chosen"),
    [
        ((3, 40, 1), "wal", Journal.WAL_GUARDED),
        ((3, 51, 3), "wal", Journal.WAL),
        ((3, 40, 1), "rollback", Journal.ROLLBACK),
        ((3, 51, 3), "rollback", Journal.ROLLBACK),
    ],
)
def test_the_version_decides_how_wal_is_used(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], wish: str, chosen: Journal
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)

    assert chosen_journal(wish) is chosen


@pytest.mark.parametrize("journal", Journal)
def test_every_connection_syncs_each_commit(tmp_path: Path, journal: Journal) -> None:
    connection = open_connection(DatabaseFile(tmp_path / "nebis.db"), journal, 1.0)

    settings = {name: _pragma(connection, name) for name in ("synchronous", "journal_mode", "wal_autocheckpoint")}
    connection.close()

    assert settings["synchronous"] == FULL
    assert settings["journal_mode"] == ("wal" if journal.is_wal else "truncate")
    assert (settings["wal_autocheckpoint"] == 0) is (journal is Journal.WAL_GUARDED)


@pytest.mark.parametrize("journal", ["wal", "rollback"])
def test_the_start_up_report_says_how_the_file_is_journalled(tmp_path: Path, journal: str) -> None:
    wish = "wal" if journal == "wal" else "rollback"
    backend = open_blocking(sqlite_url(tmp_path), journal=wish)  # type: ignore[arg-type] # A literal, by way of pytest.

    assumptions = backend.store.capabilities.assumptions

    assert chosen_journal(journal).assumption in assumptions
    assert f"SQLite {sqlite3.sqlite_version}" in assumptions[-1]


def log_bytes_after_many_claims(folder: Path) -> int:
    folder.mkdir()
    backend = open_blocking(sqlite_url(folder))
    backend.sessions.run(backend.store.migrate())
    for batch in range(30):
        verbs = [claim(f"{batch}-{number}") for number in range(20)]
        backend.sessions.run(backend.store.apply(verbs, now=START_US))
    size = (folder / "nebis.db-wal").stat().st_size
    counts = backend.sessions.run(backend.store.count(now=START_US))
    backend.sessions.close()
    assert counts.by_state[State.IN_PROGRESS] == 600
    return size


def test_guarded_checkpoints_keep_the_log_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    monkeypatch.setattr(journals, "_CHANGES_PER_CHECKPOINT", 50)
    short = log_bytes_after_many_claims(tmp_path / "often")
    monkeypatch.setattr(journals, "_CHANGES_PER_CHECKPOINT", 1_000_000)
    long = log_bytes_after_many_claims(tmp_path / "never")

    assert short * 5 < long


def test_a_guarded_checkpoint_waits_for_the_write_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug needs a checkpoint and a write at once; where others are writing, no checkpoint begins."""
    monkeypatch.setattr(journals, "_CHANGES_PER_CHECKPOINT", 0)
    connection = open_connection(DatabaseFile(tmp_path / "nebis.db"), Journal.WAL_GUARDED, 0.02)
    connection.raw.execute("CREATE TABLE numbers (number INTEGER)")
    connection.raw.execute("INSERT INTO numbers VALUES (1)")
    other = sqlite3.connect(tmp_path / "nebis.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    log_before = _frames_in_database(tmp_path)

    connection.settle()
    log_during = _frames_in_database(tmp_path)
    other.execute("ROLLBACK")
    connection.settle()
    log_after = _frames_in_database(tmp_path)
    other.close()
    connection.close()

    assert log_before == log_during
    assert log_after != log_before


def _frames_in_database(folder: Path) -> bytes:
    """Return the database without its log: it changes exactly when a checkpoint copies something into it."""
    # By another process: closing the file here would take this process's locks on it away.
    return subprocess.run(["cat", folder / "nebis.db"], check=True, capture_output=True).stdout


def test_a_log_that_a_killed_process_left_is_folded_in_by_the_first_write(tmp_path: Path) -> None:
    connection = open_connection(DatabaseFile(tmp_path / "nebis.db"), Journal.WAL_GUARDED, 0.5)
    before = _frames_in_database(tmp_path)

    connection.raw.execute("CREATE TABLE numbers (number INTEGER)")
    connection.raw.execute("INSERT INTO numbers VALUES (1)")
    connection.settle()
    after = _frames_in_database(tmp_path)
    connection.close()

    assert before != after


def _pragma(connection: Connection, name: str) -> object:
    return connection.raw.execute(f"PRAGMA {name}").fetchone()[0]
