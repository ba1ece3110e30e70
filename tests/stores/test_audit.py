"""The audit cannot be rewritten, not even by SQL of one's own (SEC30)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from sqlite3 import IntegrityError, connect

import psycopg
import pytest

from nebis.ports.history import AuditLine, Signed
from nebis.stores import open_blocking
from nebis.testing.conformance.specimens import START_US, record_id_of

RECORD_ID = record_id_of("audited")
SIGNED = Signed(who="ann@shop-1", what="resolve --retry", reason="because", record_id=RECORD_ID, fence_seen=7)


def refuses(url: str, execute: Callable[[str], object], statements: list[str], refusal: type[Exception]) -> None:
    backend = open_blocking(url)
    backend.sessions.run(backend.store.migrate())
    backend.sessions.run(backend.store.audit(SIGNED, "done", now=START_US))

    for statement in statements:
        with pytest.raises(refusal, match="append-only"):
            execute(statement)

    lines = backend.sessions.run(backend.store.audits_of(RECORD_ID))
    backend.sessions.close()
    assert lines == [AuditLine(at=START_US, signed=SIGNED, answer="done")]


REWRITING = ["UPDATE nebis_audit SET who = 'bob'", "DELETE FROM nebis_audit"]


def test_sqlite_refuses_to_change_or_delete_a_line(tmp_path: Path) -> None:
    def execute(statement: str) -> None:
        connection = connect(tmp_path / "nebis.db", isolation_level=None)
        try:
            connection.execute(statement)
        finally:
            connection.close()

    refuses(f"sqlite:///{tmp_path}/nebis.db", execute, REWRITING, IntegrityError)


def test_postgres_refuses_to_change_or_delete_a_line_even_to_its_owner(postgres_url: str) -> None:
    def execute(statement: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(statement.encode())

    refuses(postgres_url, execute, [*REWRITING, "TRUNCATE nebis_audit"], psycopg.errors.RaiseException)
