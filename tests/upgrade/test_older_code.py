"""Old code on the new schema, and new code on old data (F115)."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace

import psycopg
import pytest

from nebis import Attempt, Local, Nebis, SchemaMismatch
from nebis.ports.store import BlockingBackend
from nebis.stores import open_blocking
from nebis.stores.sql.dialect import Dialect, postgres_dialect, sqlite_dialect
from nebis.stores.sql.migrations import migrate, read_migration, survey, verify
from nebis.testing.conformance.specimens import START_US, claim
from tests.upgrade.older_code import older, older_code, opened_by_older_code


@dataclass(frozen=True)
class Pay:
    invoice: str


def serving(nebis: Nebis, ran: list[str]) -> Callable[[str], str]:
    """Declare an operation that notes each of its runs; return a way to call it by key."""

    @nebis.operation("pay", effects=Local)
    def pay(attempt: Attempt, command: Pay) -> str:
        ran.append(command.invoice)
        return f"paid {command.invoice} as {attempt.new_id('payment')}"

    return lambda key: pay(tenant="acct_1", key=key, command=Pay(invoice=key))


def dialect_of(url: str) -> Dialect:
    return sqlite_dialect() if url.startswith("sqlite") else postgres_dialect()


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        rows: list[tuple[object, ...]] = connection.execute(statement).fetchall()
        connection.close()
        return rows
    with psycopg.connect(url, autocommit=True) as server:
        cursor = server.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_what_was_written_before_the_migration_is_replayed_after_it(url: str) -> None:
    ran: list[str] = []
    with opened_by_older_code(url) as before:
        first = serving(before, ran)("invoice-1")

    with Nebis(url) as after:
        again = serving(after, ran)("invoice-1")

    assert again == first
    assert ran == ["invoice-1"]


def test_older_code_goes_on_working_after_the_migration(url: str) -> None:
    ran: list[str] = []
    with opened_by_older_code(url) as before:
        call = serving(before, ran)
        first = call("invoice-1")
        with Nebis(url) as after:
            newer = serving(after, ran)

            assert call("invoice-1") == first
            assert newer("invoice-2") == call("invoice-2")
            assert call("invoice-3") == newer("invoice-3")

    assert ran == ["invoice-1", "invoice-2", "invoice-3"]


def test_older_code_can_be_started_on_the_newer_schema(url: str) -> None:
    """A crash in the middle of a roll-out restarts the old version; it must neither refuse nor migrate."""
    with Nebis(url):
        pass

    with older_code():
        backend = open_blocking(url)
    applied = backend.sessions.run(backend.store.migrate())
    backend.sessions.run(backend.store.verify())
    found = backend.sessions.run(survey(older(dialect_of(url))))
    backend.sessions.close()

    assert applied == ()
    assert found.newer == tuple(migration.name for migration in dialect_of(url).migrations[1:])


def test_records_that_older_code_purges_take_their_history_with_them(url: str) -> None:
    with Nebis(url):
        pass
    with older_code():
        backend = open_blocking(url)
    backend.sessions.run(backend.store.apply([claim()], now=START_US))
    values = "record_id, fence, 1, 'host', 1, 'new' FROM nebis_record"
    execute(url, f"INSERT INTO nebis_attempt (record_id, fence, started_at, host, pid, how) SELECT {values}")

    had_history = bool(execute(url, "SELECT record_id FROM nebis_attempt"))
    _end(backend, url)
    backend.sessions.close()

    assert had_history
    assert execute(url, "SELECT record_id FROM nebis_attempt") == []


def _end(backend: BlockingBackend, url: str) -> None:
    """Let the one record be forgotten by the older code."""
    outcome = "x'00'" if url.startswith("sqlite") else "'\\x00'"
    execute(
        url,
        f"UPDATE nebis_record SET state = 'C', completed_at = 1, outcome_kind = 'S', outcome = {outcome}, "
        "command = NULL, expires_at = 1, forget_at = 1",
    )
    assert backend.sessions.run(backend.store.sweep(limit=10, now=START_US)).aged == 1


@pytest.mark.parametrize(
    ("oldest_code", "is_open"), [("0001_record", True), ("0002_counters_and_attempts", False), (None, False)]
)
def test_a_newer_schema_says_which_code_may_go_on(url: str, oldest_code: str | None, is_open: bool) -> None:
    """A step that removes what only very old code needs shuts out that code and no other."""
    dialect = dialect_of(url)
    header = f"-- oldest-code: {oldest_code}\n" if oldest_code else ""
    later = read_migration("9999_later", f"{header}-- name: x\nSELECT 1")
    backend = open_blocking(url)

    backend.sessions.run(migrate(replace(dialect, migrations=(*dialect.migrations, later))))

    if is_open:
        backend.sessions.run(verify(older(dialect)))
    else:
        with pytest.raises(SchemaMismatch, match="newer than the code and has 9999_later"):
            backend.sessions.run(verify(older(dialect)))
    if oldest_code:
        backend.sessions.run(verify(dialect))
    backend.sessions.close()


@pytest.mark.parametrize("dialect", [sqlite_dialect(), postgres_dialect()], ids=["sqlite", "postgres"])
def test_every_migration_names_older_code_that_exists(dialect: Dialect) -> None:
    names = [migration.name for migration in dialect.migrations]

    assert names == sorted(names)
    for position, migration in enumerate(dialect.migrations[1:], start=1):
        assert migration.oldest_code in names[: position + 1]


def test_both_dialects_have_the_same_migrations() -> None:
    assert [(it.name, it.oldest_code) for it in sqlite_dialect().migrations] == [
        (it.name, it.oldest_code) for it in postgres_dialect().migrations
    ]
