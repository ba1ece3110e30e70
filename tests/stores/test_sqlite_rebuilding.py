"""A file from before migration 0007, whose tables are written anew: nothing in it is lost or changed."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nebis.core.answers import Granted
from nebis.ports.store import BlockingBackend
from nebis.stores.sql.dialect import sqlite_dialect
from nebis.stores.sql.migrations import migrate
from nebis.stores.sql.sqlite import open_blocking
from nebis.testing.conformance.specimens import START_US, claim, complete, intend
from tests.stores.sql_backends import sqlite_url

TABLES = ("nebis_record", "nebis_effect", "nebis_attempt", "nebis_fence", "nebis_record_view")


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[BlockingBackend]:
    """Open a file as it was before, with records that have a little of everything."""
    opened = open_blocking(sqlite_url(tmp_path))
    older = tuple(migration for migration in sqlite_dialect().migrations if migration.name < "0007")
    opened.sessions.run(migrate(replace(sqlite_dialect(), migrations=older)))
    answers = opened.sessions.run(opened.store.apply([claim(str(place)) for place in range(5)], now=START_US))
    owners = [answer.record.ownership for answer in answers if isinstance(answer, Granted)]
    opened.sessions.run(opened.store.apply([complete(owners[0])], now=START_US))
    opened.sessions.run(opened.store.apply([intend(owners[1])], now=START_US))
    with closing(_connected(tmp_path)) as connection:
        connection.execute("DELETE FROM nebis_record WHERE rowid = 3")
        connection.execute(
            "INSERT INTO nebis_attempt SELECT record_id, fence, 1, 2, 'host', 3, 'new' FROM nebis_record"
        )
    yield opened
    opened.sessions.close()


def _connected(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "nebis.db", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _contents(folder: Path) -> dict[str, list[Any]]:
    with closing(_connected(folder)) as connection:
        found = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}
        found["rowids"] = connection.execute("SELECT rowid, record_id FROM nebis_record ORDER BY rowid").fetchall()
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def _schema(folder: Path) -> dict[str, str]:
    with closing(_connected(folder)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return dict(connection.execute("SELECT type || ' ' || name, COALESCE(sql, '') FROM sqlite_schema"))


def test_everything_is_there_afterwards_as_it_was_before(backend: BlockingBackend, tmp_path: Path) -> None:
    before, schema = _contents(tmp_path), _schema(tmp_path)
    assert all(before.values())

    assert "0007_plain_checks" in backend.sessions.run(backend.store.migrate())

    assert _contents(tmp_path) == before
    assert _schema(tmp_path).keys() == schema.keys()


def test_details_still_go_with_their_record_and_fences_still_grow(backend: BlockingBackend, tmp_path: Path) -> None:
    backend.sessions.run(backend.store.migrate())

    [granted] = backend.sessions.run(backend.store.apply([claim("new")], now=START_US))

    assert isinstance(granted, Granted)
    assert granted.record.fence == 6
    with closing(_connected(tmp_path)) as connection:
        assert connection.execute("SELECT last FROM nebis_fence").fetchall() == [(6,)]
        connection.execute("DELETE FROM nebis_record")
        for table in ("nebis_effect", "nebis_attempt"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]


def test_a_rebuilding_that_fails_leaves_the_file_as_it_was(backend: BlockingBackend, tmp_path: Path) -> None:
    schema = _schema(tmp_path)
    with closing(_connected(tmp_path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE nebis_record SET mode = 'X' WHERE rowid = 5")
    before = _contents(tmp_path)

    with pytest.raises(Exception, match="record_mode_is_known"):
        backend.sessions.run(backend.store.migrate())

    assert _contents(tmp_path) == before
    with closing(_connected(tmp_path)) as connection:
        connection.execute("DELETE FROM nebis_record WHERE rowid = 5")
    assert _schema(tmp_path) == schema


def test_no_check_has_a_list_that_sqlite_would_make_a_table_of() -> None:
    connection = sqlite3.connect(":memory:")
    for migration in sqlite_dialect().migrations:
        for statement in migration.statements:
            connection.execute(statement.text)
    columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(nebis_record)")]
    marks = ", ".join("?" * len(columns))

    program = connection.execute(f"EXPLAIN INSERT INTO nebis_record VALUES ({marks})", [None] * len(columns)).fetchall()

    assert "OpenEphemeral" not in [step[1] for step in program]
    connection.close()
