"""The three ways to PostgreSQL, all of them blocking, so that one test serves them all."""

from collections.abc import Callable
from typing import Any

import psycopg

from nebis.flow import Flow
from nebis.ports.store import AsyncSessions, BlockingSessions
from nebis.stores.sql.asks import Begin, Commit, Query, Row, Statement
from nebis.stores.sql.postgres.access import Access, Route
from nebis.stores.sql.postgres.asyncpg_access import AsyncpgAccess
from nebis.stores.sql.postgres.location import Location
from nebis.stores.sql.postgres.private_loop import SessionsOnPrivateLoop
from nebis.stores.sql.postgres.psycopg_access import PsycopgAccess
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.statements import read_statements

Way = Callable[..., BlockingSessions]


def route(url: str, **options: Any) -> Route:
    return Route(location=Location.parse(url), settings=Settings.from_options(options))


def psycopg_sessions(url: str, **options: Any) -> BlockingSessions:
    return PsycopgAccess(route(url, **options)).blocking_sessions()


def psycopg_async_sessions(url: str, **options: Any) -> BlockingSessions:
    return SessionsOnPrivateLoop(PsycopgAccess(route(url, **options)).async_sessions)


def asyncpg_sessions(url: str, **options: Any) -> BlockingSessions:
    return SessionsOnPrivateLoop(AsyncpgAccess(route(url, **options)).async_sessions)


WAYS: dict[str, Way] = {
    "psycopg": psycopg_sessions,
    "psycopg-async": psycopg_async_sessions,
    "asyncpg": asyncpg_sessions,
}


def async_access(name: str, url: str, **options: Any) -> AsyncSessions:
    access: Access = (PsycopgAccess if name == "psycopg-async" else AsyncpgAccess)(route(url, **options))
    return access.async_sessions()


def statement(text: str) -> Statement:
    """Return a statement with `:name` parameters, as the `.sql` files have them."""
    return read_statements(f"-- name: scratch\n{text}")["scratch"]


def ask(text: str, **shared: object) -> Flow[list[Row]]:
    """Run one statement on its own."""
    return (yield from Query(statement(text), shared))


def ask_in_transaction(*texts: str) -> Flow[list[Row]]:
    """Run statements between BEGIN and COMMIT; return the rows of the last."""
    yield from Begin()
    rows: list[Row] = []
    for text in texts:
        rows = yield from Query(statement(text))
    yield from Commit()
    return rows


def execute(url: str, text: str) -> list[Row]:
    """Run one statement beside the code under test."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []
