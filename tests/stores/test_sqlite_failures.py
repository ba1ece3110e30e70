"""What SQLite's errors prove, and what happens to a transaction that it gives up by itself."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebis.core.answers import Granted
from nebis.flow import Ask
from nebis.ports.store import BlockingBackend, DefiniteFailure, IndefiniteFailure, RowLocked, Spoilt
from nebis.stores.sql.asks import Begin, Commit, Query, Rollback, Write
from nebis.stores.sql.dialect import sqlite_dialect
from nebis.stores.sql.members import claiming_all
from nebis.stores.sql.sqlite.connection import Connection, open_connection
from nebis.stores.sql.sqlite.failures import failure_of
from nebis.stores.sql.sqlite.journal import chosen_journal
from nebis.stores.sql.sqlite.location import DatabaseFile
from nebis.stores.sql.statements import read_statements
from nebis.testing.conformance.specimens import START_US, claim
from tests.stores.sql_backends import opened_sqlite

RESULT_NAMES = [
    *("SQLITE_ERROR", "SQLITE_INTERNAL", "SQLITE_PERM", "SQLITE_ABORT", "SQLITE_BUSY", "SQLITE_LOCKED"),
    *("SQLITE_NOMEM", "SQLITE_READONLY", "SQLITE_INTERRUPT", "SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTFOUND"),
    *("SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_PROTOCOL", "SQLITE_EMPTY", "SQLITE_SCHEMA", "SQLITE_TOOBIG"),
    *("SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_MISUSE", "SQLITE_NOLFS", "SQLITE_AUTH", "SQLITE_FORMAT"),
    *("SQLITE_RANGE", "SQLITE_NOTADB"),
]
STATEMENTS = read_statements("""
-- name: count
SELECT count(*) FROM nebis_meta
-- name: write
INSERT INTO nebis_meta (name, value) VALUES (:name, :value)
""")


def error_of(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("something")
    error.sqlite_errorcode = code
    return error


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[BlockingBackend]:
    opened = opened_sqlite(tmp_path, busy_seconds=0.05)
    yield opened
    opened.sessions.close()


@pytest.fixture
def connection(backend: BlockingBackend, tmp_path: Path) -> Iterator[Connection]:
    opened = open_connection(DatabaseFile(tmp_path / "nebis.db"), chosen_journal("wal"), 0.05)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", RESULT_NAMES)
def test_every_result_code_before_the_commit_is_a_refusal(name: str) -> None:
    expected: type[DefiniteFailure] = DefiniteFailure
    if name in {"SQLITE_BUSY", "SQLITE_LOCKED"}:
        expected = RowLocked
    elif name in {"SQLITE_TOOBIG", "SQLITE_CONSTRAINT", "SQLITE_MISMATCH"}:
        expected = Spoilt

    failure = failure_of(error_of(getattr(sqlite3, name)), in_commit=False)

    assert type(failure) is expected


@pytest.mark.parametrize("name", RESULT_NAMES)
def test_every_result_code_of_a_commit_but_busy_is_indefinite(name: str) -> None:
    locked = name in {"SQLITE_BUSY", "SQLITE_LOCKED"}

    failure = failure_of(error_of(getattr(sqlite3, name)), in_commit=True)

    assert type(failure) is (RowLocked if locked else IndefiniteFailure)


def test_an_extended_code_is_judged_by_its_primary_one() -> None:
    assert type(failure_of(error_of(sqlite3.SQLITE_BUSY_SNAPSHOT), in_commit=False)) is RowLocked
    assert type(failure_of(error_of(sqlite3.SQLITE_IOERR_FSYNC), in_commit=True)) is IndefiniteFailure


@pytest.mark.parametrize("in_commit", [False, True])
def test_a_code_that_nobody_knows_is_indefinite(in_commit: bool) -> None:
    assert type(failure_of(error_of(0x63), in_commit=in_commit)) is IndefiniteFailure


def test_every_exception_class_of_the_driver_is_mapped() -> None:
    classes = [kind for kind in vars(sqlite3).values() if isinstance(kind, type) and issubclass(kind, sqlite3.Error)]

    judged = {kind.__name__: type(failure_of(kind("x"), in_commit=False)) for kind in classes}

    assert judged.pop("InterfaceError") is DefiniteFailure
    assert judged.pop("ProgrammingError") is DefiniteFailure
    assert set(judged.values()) == {IndefiniteFailure}
    assert len(judged) == 7


def test_a_file_that_others_keep_locked_is_definite_and_usable_later_f042(
    backend: BlockingBackend, tmp_path: Path
) -> None:
    other = sqlite3.connect(tmp_path / "nebis.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(RowLocked):
        backend.sessions.run(backend.store.apply([claim()], now=START_US))

    other.execute("ROLLBACK")
    other.close()
    (answer,) = backend.sessions.run(backend.store.apply([claim()], now=START_US))
    assert isinstance(answer, Granted)


def test_reading_does_not_wait_for_a_writer(backend: BlockingBackend, tmp_path: Path) -> None:
    backend.sessions.run(backend.store.apply([claim()], now=START_US))
    other = sqlite3.connect(tmp_path / "nebis.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    found = backend.sessions.run(backend.store.find(claim().identity))

    other.close()
    assert found is not None


def test_a_full_disk_loses_the_transaction_and_nothing_runs_on_its_own_f019(connection: Connection) -> None:
    pages = connection.raw.execute("PRAGMA page_count").fetchone()[0]
    connection.raw.execute(f"PRAGMA max_page_count = {pages + 2}")
    connection.perform(Begin())
    connection.perform(Query(STATEMENTS["write"], {"name": "first", "value": b"x"}))

    with pytest.raises(DefiniteFailure, match="full"):
        connection.perform(Query(STATEMENTS["write"], {"name": "large", "value": bytes(100_000)}))

    assert not connection.raw.in_transaction
    for ask in (Query(STATEMENTS["write"], {"name": "later", "value": b"x"}), Commit()):
        with pytest.raises(DefiniteFailure, match="gave up the transaction"):
            connection.perform(ask)
    connection.perform(Rollback())
    assert connection.perform(Query(STATEMENTS["count"])) == [(0,)]
    assert not connection.is_usable


def test_a_commit_that_fails_is_indefinite_and_the_connection_is_not_used_again(connection: Connection) -> None:
    connection.perform(Begin())
    connection.perform(Query(STATEMENTS["write"], {"name": "first", "value": b"x"}))
    # Nothing may be authorised any more: the commit fails after the rows are written.
    connection.raw.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)

    with pytest.raises(IndefiniteFailure):
        connection.perform(Commit())

    assert not connection.is_usable


def test_a_write_at_once_that_fails_is_indefinite_unless_a_row_is_to_blame(connection: Connection) -> None:
    """It is its own commit: nobody can tell before which of its steps a disk gave way."""
    statement = sqlite_dialect().statements.claim_all
    assert statement is not None
    claims = [claim(str(place)) for place in range(9)]
    for spoilt in ({"nonce": b"short"}, {"tenant": "\ud800"}):
        with pytest.raises(Spoilt):
            connection.perform(Write(statement, START_US, claiming_all([*claims, claim("spoilt", **spoilt)])))
    pages = connection.raw.execute("PRAGMA page_count").fetchone()[0]
    connection.raw.execute(f"PRAGMA max_page_count = {pages}")
    large = claiming_all([claim(str(place), command=bytes(50_000)) for place in range(9)])

    with pytest.raises(IndefiniteFailure, match="full"):
        connection.perform(Write(statement, START_US, large))

    assert not connection.is_usable
    assert connection.raw.execute("SELECT count(*) FROM nebis_record").fetchone() == (0,)


def test_a_write_at_once_waits_for_a_file_that_others_keep_locked_f042(connection: Connection, tmp_path: Path) -> None:
    statement = sqlite_dialect().statements.claim_all
    assert statement is not None
    write = Write(statement, START_US, claiming_all([claim(str(place)) for place in range(9)]))
    other = sqlite3.connect(tmp_path / "nebis.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(RowLocked):
        connection.perform(write)

    other.execute("ROLLBACK")
    other.close()
    assert connection.perform(write).number == 9


def test_a_connection_that_is_given_up_lets_go_of_the_file_while_somebody_still_looks_at_the_error(
    tmp_path: Path,
) -> None:
    opened_sqlite(tmp_path, busy_seconds=0.05).sessions.close()
    connection = open_connection(DatabaseFile(tmp_path / "nebis.db"), chosen_journal("wal"), 0.05)
    connection.perform(Begin())
    with pytest.raises(DefiniteFailure) as held:
        connection.perform(Query(STATEMENTS["write"], {"name": "first", "value": None}))

    connection.close()

    assert held.traceback
    # The last one that leaves takes the log away.
    assert [path.name for path in tmp_path.glob("nebis.db*")] == ["nebis.db"]


def test_a_value_that_cannot_be_bound_is_definite(connection: Connection) -> None:
    for value in (2**63, "\ud800"):
        with pytest.raises(DefiniteFailure):
            connection.perform(Query(STATEMENTS["write"], {"name": "x", "value": value}))


def test_an_ask_of_another_kind_is_a_mistake(connection: Connection) -> None:
    with pytest.raises(AssertionError, match="cannot perform Ask"):
        connection.perform(Ask())
