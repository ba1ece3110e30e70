"""A statement that runs once per member does to each what it would do by itself."""

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nebis.core.answers import Granted
from nebis.core.verbs import Complete, Renew
from nebis.ports.store import BlockingBackend
from nebis.stores.sql.asks import Query
from nebis.stores.sql.sqlite.connection import Connection, open_connection
from nebis.stores.sql.sqlite.journal import chosen_journal
from nebis.stores.sql.sqlite.location import DatabaseFile
from nebis.stores.sql.statements import read_statements
from nebis.testing.conformance.specimens import LEASE_US, PAID, RETENTION, claim
from tests.stores.sql_backends import opened_sqlite

STATEMENTS = read_statements("""
-- name: echo
SELECT :b, :a, '$1', :a, :c, :d, :e, :f, :g, :h, :i, :j, :b
-- name: make
CREATE TABLE IF NOT EXISTS kept (identity BLOB PRIMARY KEY, wanted INTEGER, made_at INTEGER)
-- name: clear
DELETE FROM kept
-- name: insert
INSERT INTO kept VALUES (:identity, :wanted, COALESCE(:now, 1))
-- name: told
UPDATE kept SET wanted = wanted + :step WHERE identity = :identity AND wanted = :wanted RETURNING identity
-- name: counted
UPDATE kept SET wanted = wanted + :step WHERE identity = :identity AND wanted = :wanted
-- name: times
SELECT made_at FROM kept ORDER BY identity
""")
VALUES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=9) | st.text(max_size=9) | st.uuids()
ONE_CONNECTION = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    opened = open_connection(DatabaseFile(tmp_path / "members.db"), chosen_journal("wal"), 0.05)
    opened.perform(Query(STATEMENTS["make"]))
    yield opened
    opened.close()


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[BlockingBackend]:
    opened = opened_sqlite(tmp_path)
    yield opened
    opened.sessions.close()


@ONE_CONNECTION
@given(shared=st.fixed_dictionaries({"a": VALUES, "b": VALUES}), data=st.data())
def test_members_are_bound_as_they_would_be_by_name(
    connection: Connection, shared: Mapping[str, object], data: st.DataObject
) -> None:
    one = st.fixed_dictionaries(dict.fromkeys("bcdefghij", VALUES))
    members = data.draw(st.lists(one, max_size=3))

    together = connection.perform(Query(STATEMENTS["echo"], shared, members))

    one_by_one = [connection.perform(Query(STATEMENTS["echo"], {**shared, **member})) for member in members]
    assert together == [row for rows in one_by_one for row in rows]


@ONE_CONNECTION
@given(kept=st.dictionaries(st.binary(min_size=1, max_size=2), st.integers(0, 1), max_size=6), data=st.data())
def test_a_write_that_returns_nothing_tells_whom_it_changed(
    connection: Connection, kept: dict[bytes, int], data: st.DataObject
) -> None:
    known = st.sampled_from(sorted(kept)) if kept else st.nothing()
    one = st.fixed_dictionaries({"identity": known | st.binary(min_size=1, max_size=2), "wanted": st.integers(0, 1)})
    members = data.draw(st.lists(one, max_size=6))
    rows = [{"identity": identity, "wanted": wanted, "now": 1} for identity, wanted in kept.items()]

    answers = []
    for name in ("told", "counted"):
        connection.perform(Query(STATEMENTS["clear"]))
        connection.perform(Query(STATEMENTS["insert"], {}, rows))
        answers.append(connection.perform(Query(STATEMENTS[name], {"step": 1}, members)))

    assert answers[0] == answers[1]


def test_all_members_live_at_the_instant_that_the_store_had(connection: Connection) -> None:
    rows = [{"identity": bytes([number]), "wanted": 0} for number in range(50)]
    clock = "SELECT CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"
    [before] = connection.raw.execute(clock).fetchone()

    connection.perform(Query(STATEMENTS["insert"], {"now": None}, rows))

    [after] = connection.raw.execute(clock).fetchone()
    [instant] = set(connection.perform(Query(STATEMENTS["times"])))
    assert before <= instant[0] <= after


def test_a_given_instant_is_not_replaced(connection: Connection) -> None:
    connection.perform(Query(STATEMENTS["insert"], {"now": 7}, [{"identity": b"x", "wanted": 0}]))

    assert connection.perform(Query(STATEMENTS["times"])) == [(7,)]


def test_owners_and_strangers_in_one_batch_are_told_apart(backend: BlockingBackend) -> None:
    granted = backend.sessions.run(backend.store.apply([claim("one"), claim("two"), claim("three")]))
    owners = [answer.record.ownership for answer in granted if isinstance(answer, Granted)]
    backend.sessions.run(backend.store.apply([Complete(ownership=owners[1], outcome=PAID, retention=RETENTION)]))
    renewals = [Renew(ownership=ownership, lease_us=LEASE_US) for ownership in owners]

    together = backend.sessions.run(backend.store.apply(renewals))

    apart = [backend.sessions.run(backend.store.apply([renewal]))[0] for renewal in renewals]
    assert together == apart
    assert together[0] != together[1]


def test_rows_are_plain_on_a_connection_that_makes_something_else_of_them(connection: Connection) -> None:
    connection.raw.row_factory = sqlite3.Row
    member = {name: UUID(int=1) for name in "bcdefghij"}

    [row] = connection.perform(Query(STATEMENTS["echo"], {"a": 1}, [member]))

    assert type(row) is tuple
