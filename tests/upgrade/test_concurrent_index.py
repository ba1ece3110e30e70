"""Migrations that build an index while requests go on."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from nebis.core.answers import Granted
from nebis.errors import SchemaMismatch
from nebis.flow import Flow
from nebis.ports.store import BlockingBackend, RowLocked, StoreFailure
from nebis.stores import open_blocking
from nebis.stores.sql.asks import Query
from nebis.stores.sql.dialect import Dialect, postgres_dialect
from nebis.stores.sql.migrations import apply_next, migrate, read_migration, verify
from nebis.stores.sql.script import script
from nebis.stores.sql.statements import read_statements
from nebis.testing.conformance.specimens import claim
from tests.engines.postgres import wait_until_one_waits

SOURCE = """-- Made for this test.
-- transaction: none
-- oldest-code: 0002_counters_and_attempts

-- name: drop_what_a_broken_run_left
DROP INDEX CONCURRENTLY IF EXISTS nebis_record_created_at;

-- name: index
CREATE INDEX CONCURRENTLY "nebis_record_created_at" ON nebis_record (created_at);
"""
IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('nebis_record_created_at')"


@pytest.fixture
def later() -> Dialect:
    dialect = postgres_dialect()
    return replace(dialect, migrations=(*dialect.migrations, read_migration("0900_created_at", SOURCE)))


@pytest.fixture
def backend(postgres_url: str) -> Iterator[BlockingBackend]:
    opened = open_blocking(postgres_url)
    yield opened
    opened.sessions.close()


def attended(backend: BlockingBackend, dialect: Dialect) -> tuple[str, ...] | None:
    return backend.sessions.run(apply_next(dialect, is_attended=True))


def test_an_index_is_built_while_others_write(postgres_url: str, backend: BlockingBackend, later: Dialect) -> None:
    """It outwaits a transaction for longer than any lock timeout, and nobody waits for it."""
    backend.sessions.run(backend.store.migrate())
    with psycopg.connect(postgres_url) as user, ThreadPoolExecutor(1) as pool:
        user.execute("LOCK TABLE nebis_record IN ROW EXCLUSIVE MODE")
        building = pool.submit(attended, backend, later)
        wait_until_one_waits(postgres_url, "CREATE INDEX")
        user.execute("SELECT pg_sleep(0.7)")  # Longer than the 0.5 s that our sessions wait for a lock.
        [answer] = backend.sessions.run(backend.store.apply([claim()]))
        was_building = not building.done()
        user.rollback()

        assert building.result(timeout=30) == ("0900_created_at",)
    assert was_building
    assert isinstance(answer, Granted)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(IS_VALID).fetchone() == (True,)
    backend.sessions.run(verify(later))


def test_a_run_that_was_cut_off_is_repeated_from_its_start(
    postgres_url: str, backend: BlockingBackend, later: Dialect
) -> None:
    """What it leaves is an index that is there but not valid."""
    backend.sessions.run(backend.store.migrate())
    with psycopg.connect(postgres_url) as user, ThreadPoolExecutor(1) as pool:
        user.execute("LOCK TABLE nebis_record IN ROW EXCLUSIVE MODE")
        building = pool.submit(attended, backend, later)
        wait_until_one_waits(postgres_url, "CREATE INDEX")
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX%'")
        with pytest.raises(StoreFailure):
            building.result(timeout=30)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        left = connection.execute(IS_VALID).fetchone()

        applied = attended(backend, later)

        assert (left, applied) == ((False,), ("0900_created_at",))
        assert connection.execute(IS_VALID).fetchone() == (True,)


def test_of_two_people_one_builds(postgres_url: str, backend: BlockingBackend, later: Dialect) -> None:
    backend.sessions.run(backend.store.migrate())
    second = open_blocking(postgres_url)
    with psycopg.connect(postgres_url) as user, ThreadPoolExecutor(1) as pool:
        user.execute("LOCK TABLE nebis_record IN ROW EXCLUSIVE MODE")
        building = pool.submit(attended, backend, later)
        wait_until_one_waits(postgres_url, "CREATE INDEX")
        with pytest.raises(RowLocked, match="somebody else is applying 0900_created_at"):
            attended(second, later)
        user.rollback()
        building.result(timeout=30)

    assert attended(second, later) is None
    second.sessions.close()


def test_the_session_is_as_it_was_afterwards(backend: BlockingBackend, later: Dialect) -> None:
    backend.sessions.run(backend.store.migrate())

    def settings() -> Flow[list[tuple[object, ...]]]:
        text = """-- name: x
        SELECT current_setting('lock_timeout'), current_setting('statement_timeout'),
            (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"""
        return (yield from Query(read_statements(text)["x"]))

    before = backend.sessions.run(settings())
    attended(backend, later)

    assert backend.sessions.run(settings()) == before == [("500ms", "0", 0)]


def test_an_application_that_starts_leaves_it_to_a_person(backend: BlockingBackend, later: Dialect) -> None:
    backend.sessions.run(backend.store.migrate())

    with pytest.raises(SchemaMismatch, match=r"0900_created_at builds an index.*run `nebis migrate apply` once"):
        backend.sessions.run(migrate(later))


def test_an_empty_database_gets_the_index_with_everything_else(
    postgres_url: str, backend: BlockingBackend, later: Dialect
) -> None:
    applied = backend.sessions.run(migrate(later))

    assert applied[-1] == "0900_created_at"
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(IS_VALID).fetchone() == (True,)


def test_its_script_has_no_transaction_around_it(later: Dialect) -> None:
    text = script(later, later.migrations[-1:], is_new=False)

    assert "CREATE INDEX CONCURRENTLY" in text
    assert "BEGIN" not in text
    assert "'0900_created_at'" in text


def test_nothing_else_may_run_without_a_transaction() -> None:
    """An ordinary change that failed half-way could not be repeated, and would wait without a limit."""
    with pytest.raises(ValueError, match="must be CONCURRENTLY"):
        read_migration("0900_slip", "-- transaction: none\n-- name: x\nALTER TABLE nebis_record ADD COLUMN x text")


def test_starters_wait_for_a_transaction_that_ends(postgres_url: str, backend: BlockingBackend, later: Dialect) -> None:
    """An application that migrates at its start outwaits one slow transaction instead of failing."""
    backend.sessions.run(backend.store.migrate())
    changing = read_migration("0901_note", "-- name: x\nALTER TABLE nebis_record ADD COLUMN note text")
    dialect = postgres_dialect()
    starting = replace(dialect, migrations=(*dialect.migrations, changing))
    began = threading.Event()

    def start() -> tuple[str, ...]:
        began.set()
        return backend.sessions.run(migrate(starting))

    with psycopg.connect(postgres_url) as user, ThreadPoolExecutor(1) as pool:
        user.execute("SELECT count(*) FROM nebis_record")
        starter = pool.submit(start)
        began.wait()
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            pausing = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep($1%'"
            while admin.execute(pausing.encode()).fetchone() != (1,):
                admin.execute("SELECT pg_sleep(0.01)")
        user.rollback()

        assert starter.result(timeout=30) == ("0901_note",)
