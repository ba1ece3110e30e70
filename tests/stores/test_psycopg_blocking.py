"""Batches that go past psycopg's cursors: the same rows and the same failures, and nothing is left behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import psycopg
import pytest

from nebis.flow import Flow
from nebis.ports.store import BlockingSessions, IndefiniteFailure, Spoilt
from nebis.stores.sql.asks import Query, Row
from nebis.stores.sql.postgres.conversation import Execute
from nebis.stores.sql.postgres.psycopg_blocking import BlockingPsycopg, KnowingConnection
from nebis.stores.sql.postgres.transactions_psycopg import BlockingPsycopgTransactions
from tests.stores.postgres_ways import ask, execute, psycopg_sessions, route, statement

DOUBLE = "SELECT id, 2 * id, body FROM unnest(:id::bigint[], :body::text[]) AS member (id, body) ORDER BY id"
INSERT = "INSERT INTO scratch SELECT id FROM unnest(:id::bigint[]) AS member (id)"
KNOWN = "SELECT name FROM pg_prepared_statements WHERE name LIKE 'nebis%' ORDER BY name"
PAIR: list[dict[str, object]] = [{"id": 1, "body": "one"}, {"id": 2, "body": None}]


@pytest.fixture
def url(postgres_url: str) -> str:
    execute(postgres_url, "CREATE TABLE scratch (id bigint PRIMARY KEY CHECK (id <> 13))")
    return postgres_url


@pytest.fixture
def sessions(url: str) -> Iterator[BlockingSessions]:
    opened = psycopg_sessions(url, max_connections=1)
    yield opened
    opened.close()


def batch(text: str, members: list[dict[str, object]]) -> Flow[list[Row]]:
    return (yield from Query(statement(text), {}, members))


def ids(*numbers: int) -> list[dict[str, object]]:
    return [{"id": number} for number in numbers]


def test_a_batch_is_prepared_once_and_answered_with_plain_tuples(sessions: BlockingSessions) -> None:
    told = [sessions.run(batch(DOUBLE, PAIR)) for _ in range(2)]

    assert told == [[(1, 2, "one"), (2, 4, None)]] * 2
    assert type(told[0][0]) is tuple
    assert sessions.run(ask(KNOWN)) == [("nebis_0",)]


def test_each_statement_has_a_name_of_its_own(sessions: BlockingSessions, url: str) -> None:
    sessions.run(batch(DOUBLE, PAIR))

    assert sessions.run(batch(INSERT, ids(1, 2))) == []
    assert sessions.run(batch(DOUBLE, PAIR))[0] == (1, 2, "one")
    assert execute(url, "SELECT count(*) FROM scratch") == [(2,)]
    assert sessions.run(ask(KNOWN)) == [("nebis_0",), ("nebis_1",)]


def test_a_refused_member_is_told_as_it_is_and_the_statement_stays_known(sessions: BlockingSessions, url: str) -> None:
    with pytest.raises(Spoilt, match="scratch_id_check"):
        sessions.run(batch(INSERT, ids(1, 13)))

    sessions.run(batch(INSERT, ids(3, 4)))
    assert execute(url, "SELECT id FROM scratch ORDER BY id") == [(3,), (4,)]
    assert sessions.run(ask(KNOWN)) == [("nebis_0",)]


def test_a_statement_that_cannot_be_prepared_is_tried_anew_the_next_time(sessions: BlockingSessions, url: str) -> None:
    into_later = INSERT.replace("scratch", "later")
    with pytest.raises(Exception, match="42P01"):
        sessions.run(batch(into_later, ids(1, 2)))

    execute(url, "CREATE TABLE later (id bigint)")

    assert sessions.run(batch(into_later, ids(1, 2))) == []


def test_an_answer_that_cannot_be_read_leaves_open_what_happened(sessions: BlockingSessions) -> None:
    with pytest.raises(IndefiniteFailure):
        sessions.run(batch("SELECT 'infinity'::timestamptz FROM unnest(:id::bigint[])", ids(1, 2)))


def test_nothing_is_prepared_behind_a_pooler(url: str) -> None:
    sessions = psycopg_sessions(url, max_connections=1, pooler=True)

    assert sessions.run(batch(DOUBLE, PAIR)) == [(1, 2, "one"), (2, 4, None)]
    assert sessions.run(ask(KNOWN)) == []
    sessions.close()


def test_connections_that_the_application_writes_on_keep_no_statements(url: str) -> None:
    """A DISCARD ALL of the application would end them."""
    way = route(url)
    connection = BlockingPsycopgTransactions(way.location, way.settings).connect()

    assert type(connection) is psycopg.Connection
    connection.close()


def test_a_connection_that_is_thrown_away_is_freed_at_once(url: str) -> None:
    way = route(url)
    driver = BlockingPsycopg(way.location, way.settings)
    connection = driver.connect()
    assert isinstance(connection, KnowingConnection)
    insert = statement(INSERT)
    assert driver.perform(connection, Execute(insert, {"id": [1, 2]}, frozenset({"id"}))) == []
    alive = weakref.ref(connection)

    gc.disable()
    try:
        driver.discard(connection)
        del connection
        assert alive() is None
    finally:
        gc.enable()
