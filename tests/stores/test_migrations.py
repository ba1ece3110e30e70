"""The schema: how it comes to be, and what is said when it does not fit."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from nebis.errors import SchemaMismatch
from nebis.flow import Flow
from nebis.ports.store import BlockingBackend, StoreFailure
from nebis.stores.sql.asks import Query, in_transaction
from nebis.stores.sql.dialect import Dialect, postgres_dialect, sqlite_dialect
from nebis.stores.sql.migrations import migrate, read_migration, verify
from nebis.stores.sql.postgres import backend as postgres
from nebis.stores.sql.sqlite import open_blocking as open_sqlite
from nebis.stores.sql.statements import read_statements
from tests.stores.sql_backends import sqlite_url

Opening = Callable[[], BlockingBackend]


@pytest.fixture(params=["sqlite", "postgres", "postgres in a schema"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Dialect, Opening]]:
    """The dialect and a way to open any number of backends on one empty database."""
    opened: list[BlockingBackend] = []
    schema = "Own" if request.param.endswith("schema") else None
    url = sqlite_url(tmp_path) if request.param == "sqlite" else request.getfixturevalue("postgres_url")

    def open_one() -> BlockingBackend:
        backend = open_sqlite(url) if request.param == "sqlite" else postgres.open_blocking(url, schema=schema)
        opened.append(backend)
        return backend

    yield (sqlite_dialect() if request.param == "sqlite" else postgres_dialect(schema)), open_one
    for backend in opened:
        backend.sessions.close()


def execute(backend: BlockingBackend, dialect: Dialect, text: str) -> None:
    schema = "Own" if dialect.create_schema is not None else None
    statement = read_statements(f"-- name: x\n{text}", schema=schema)["x"]

    def work() -> Flow[None]:
        yield from Query(statement)

    backend.sessions.run(in_transaction(work()))


def test_a_second_migration_applies_nothing(opening: tuple[Dialect, Opening]) -> None:
    backend = opening[1]()

    first = backend.sessions.run(backend.store.migrate())
    second = backend.sessions.run(backend.store.migrate())

    assert first == tuple(migration.name for migration in opening[0].migrations)
    assert second == ()
    backend.sessions.run(backend.store.verify())


def test_of_many_starters_one_migrates_and_all_agree_on_the_secret(opening: tuple[Dialect, Opening]) -> None:
    backends = [opening[1]() for _ in range(6)]

    def start(backend: BlockingBackend) -> tuple[tuple[str, ...], bytes | None]:
        applied = backend.sessions.run(backend.store.migrate())
        return applied, backend.sessions.run(backend.store.secrets(os.urandom(32))).generated

    with ThreadPoolExecutor(len(backends)) as pool:
        started = list(pool.map(start, backends))

    assert sorted(applied for applied, _ in started)[:-1] == [()] * 5
    assert len({secret for _, secret in started}) == 1


def test_a_database_without_tables_says_how_to_make_them(opening: tuple[Dialect, Opening]) -> None:
    backend = opening[1]()

    with pytest.raises(SchemaMismatch, match=r"has no tables.*nebis migrate"):
        backend.sessions.run(backend.store.verify())


def test_an_older_schema_says_what_it_lacks(opening: tuple[Dialect, Opening]) -> None:
    dialect, open_one = opening
    backend = open_one()
    backend.sessions.run(backend.store.migrate())
    newer = replace(dialect, migrations=(*dialect.migrations, read_migration("9999_next", "-- name: x\nSELECT 1")))

    with pytest.raises(SchemaMismatch, match="older than the code and lacks 9999_next"):
        backend.sessions.run(verify(newer))
    assert backend.sessions.run(migrate(newer)) == ("9999_next",)


def test_a_newer_schema_asks_for_newer_code(opening: tuple[Dialect, Opening]) -> None:
    dialect, open_one = opening
    backend = open_one()
    backend.sessions.run(backend.store.migrate())
    execute(backend, dialect, "INSERT INTO nebis_migration (name, checksum, applied_at) VALUES ('9999_next', 'x', 0)")

    for flow in (backend.store.verify(), backend.store.migrate()):
        with pytest.raises(SchemaMismatch, match="newer than the code and has 9999_next"):
            backend.sessions.run(flow)


def test_an_altered_migration_is_noticed(opening: tuple[Dialect, Opening]) -> None:
    dialect, open_one = opening
    backend = open_one()
    backend.sessions.run(backend.store.migrate())
    execute(backend, dialect, "UPDATE nebis_migration SET checksum = 'other'")

    for flow in (backend.store.verify(), backend.store.migrate()):
        with pytest.raises(SchemaMismatch, match=r"0001_record.* was applied with other contents"):
            backend.sessions.run(flow)


def test_a_migration_that_fails_leaves_nothing_behind(opening: tuple[Dialect, Opening]) -> None:
    dialect, open_one = opening
    backend = open_one()
    broken = replace(
        dialect, migrations=(*dialect.migrations, read_migration("9999_slip", "-- name: x\nSELECT no_such_column"))
    )

    with pytest.raises(StoreFailure):
        backend.sessions.run(migrate(broken))

    with pytest.raises(SchemaMismatch, match="has no tables"):
        backend.sessions.run(backend.store.verify())
    assert len(backend.sessions.run(backend.store.migrate())) == len(dialect.migrations)


VALID = """INSERT INTO nebis_record (
    identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode, state, fence, nonce,
    lease_until, attempts, recoveries, is_dirty, is_awaited, created_at, completed_at, expires_at, forget_at,
    doubt_since, doubt_reason, rejection, outcome_kind, outcome, resource_type, resource_id, command
) VALUES ({identity}, {record_id}, '', '', '', '', {identity}, 1, {mode}, {state}, {fence}, {nonce},
    0, {attempts}, 0, {is_dirty}, {is_awaited}, 0, {completed_at}, 1, {forget_at},
    {doubt_since}, {doubt_reason}, NULL, {outcome_kind}, {outcome}, {resource_type}, NULL, {command})"""
RUNNING = {
    "mode": "'D'",
    "state": "'P'",
    "fence": "1",
    "attempts": "1",
    "is_dirty": "FALSE",
    "is_awaited": "FALSE",
    "completed_at": "NULL",
    "forget_at": "1",
    "doubt_since": "NULL",
    "doubt_reason": "NULL",
    "outcome_kind": "NULL",
    "outcome": "NULL",
    "resource_type": "NULL",
    "command": "NULL",
}
COMPLETED = {"state": "'C'", "completed_at": "1", "outcome_kind": "'S'"}
WRONG = {
    "record_state_is_known": {"state": "'X'"},
    "record_mode_is_known": {"mode": "'X'"},
    "record_fence_was_drawn": {"fence": "0"},
    "record_was_attempted": {"attempts": "0"},
    "record_outlives_its_outcome": {"forget_at": "0"},
    "record_outcome_iff_completed": {**COMPLETED, "outcome": "NULL"},
    "record_outcome_kind_iff_ended": {"outcome_kind": "'S'"},
    "record_completed_at_iff_ended": {"completed_at": "1"},
    "record_ended_keeps_no_work": {**COMPLETED, "outcome": "BYTES", "command": "BYTES"},
    "record_doubt_since_iff_in_doubt": {"doubt_since": "1"},
    "record_doubt_reason_iff_in_doubt": {"doubt_reason": "'x'"},
    "record_dirty_fits_state": {"mode": "'O'"},
    "record_awaited_only_while_running": {"state": "'A'", "is_awaited": "TRUE"},
    "record_resource_is_whole": {"resource_type": "'payment'"},
    "record_nonce_has_16_bytes": {"nonce": "SHORT"},
    "record_identity_has_32_bytes": {"identity": "SHORT"},
}


@pytest.mark.parametrize("constraint", WRONG)
def test_the_database_refuses_what_no_program_may_write(opening: tuple[Dialect, Opening], constraint: str) -> None:
    """I1, I3 and I9 hold even for a wrong program, or for a person at night."""
    dialect, open_one = opening
    backend = open_one()
    backend.sessions.run(backend.store.migrate())
    spelt = _spelling(dialect)

    def insert(**values: str) -> None:
        text = VALID.format(**{**RUNNING, "identity": "LONG", "record_id": "ID", "nonce": "BYTES", **values})
        for word, literal in spelt.items():
            text = text.replace(word, literal)
        execute(backend, dialect, text)

    with pytest.raises(StoreFailure):
        insert(**WRONG[constraint])

    # The very same row without its fault is accepted, so it was the fault that was refused.
    insert()
    if dialect.name == "sqlite":
        execute(backend, dialect, "DELETE FROM nebis_record")
        with pytest.raises(StoreFailure, match=constraint):
            insert(**WRONG[constraint])


def _spelling(dialect: Dialect) -> dict[str, str]:
    if dialect.name == "sqlite":
        return {"LONG": f"x'{'ab' * 32}'", "BYTES": f"x'{'ab' * 16}'", "SHORT": "x'ab'", "ID": f"x'{'ab' * 16}'"}
    return {
        "LONG": f"'\\x{'ab' * 32}'",
        "BYTES": f"'\\x{'ab' * 16}'",
        "SHORT": "'\\xab'",
        "ID": "gen_random_uuid()",
    }


def test_people_read_words_and_times(opening: tuple[Dialect, Opening]) -> None:
    dialect, open_one = opening
    backend = open_one()
    backend.sessions.run(backend.store.migrate())
    text = VALID.format(**{**RUNNING, "identity": "LONG", "record_id": "ID", "nonce": "BYTES"})
    for word, literal in _spelling(dialect).items():
        text = text.replace(word, literal)
    execute(backend, dialect, text)
    schema = "Own" if dialect.create_schema is not None else None
    source = "-- name: x\nSELECT state, effects, created_at FROM nebis_record_view"

    def read() -> Flow[list[tuple[object, ...]]]:
        return (yield from Query(read_statements(source, schema=schema)["x"]))

    ((state, effects, created_at),) = backend.sessions.run(read())

    assert (state, effects) == ("in progress", "declared")
    assert str(created_at).startswith("1970-01-01")
