"""How PostgreSQL finds rows when there are many, whatever it knew when it first planned a statement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import psycopg
import pytest

from nebis.stores import open_blocking
from nebis.stores.sql.asks import Statement
from nebis.stores.sql.dialect import postgres_dialect
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.statements import lone, sharing
from tests.engines.postgres import PostgresServer

ROWS = 200_000
"""The plans are those of a million: what matters is that a scan of the table would be much too long."""

EXECUTIONS = 6
"""Left to itself, PostgreSQL keeps a plan for good from the sixth on, if it seems as good as those before."""

_MESSAGE = {"message_id", "topic", "content_type", "ordering_key", "headers", "payload", "available_at"}
_STATEMENTS = postgres_dialect().statements
_PLURAL = [
    statement
    for statement in (
        _STATEMENTS.complete,
        _STATEMENTS.complete_alone,
        _STATEMENTS.complete_all,
        _STATEMENTS.complete_all_alone,
        _STATEMENTS.claim_all_alone,
        _STATEMENTS.exchange,
        _STATEMENTS.exchange_alone,
        _STATEMENTS.complete_and_stage,
        _STATEMENTS.renew,
        _STATEMENTS.release,
        _STATEMENTS.read,
        _STATEMENTS.read_ended,
        _STATEMENTS.lock,
        _STATEMENTS.save,
        _STATEMENTS.drop_record,
        _STATEMENTS.read_by_id,
        _STATEMENTS.note_attempt,
        _STATEMENTS.read_attempts,
    )
    if statement is not None
]
_LONE = [
    replace(alone, name=f"{alone.name}_lone")
    for alone in (lone(each, frozenset(each.parameters) - _MESSAGE - {"now"}) for each in _PLURAL)
    # Without an array to be empty, a claim of nobody would insert a record.
    if alone is not None and not alone.name.startswith(("exchange", "claim"))
]
_AGREED = frozenset({"fingerprint_version", "scope", "operation", "mode", "lease_us", "outcome_us", "metadata_us"})
_ENDED = frozenset({"outcome_kind", "outcome_us", "forget_us", "resource_type", "resource_id"})
_SHARING = [
    replace(sharing(statement, columns), name=f"{statement.name}_sharing")
    for statement, columns in (
        (_STATEMENTS.claim_all_alone, _AGREED),
        (_STATEMENTS.complete_all, _ENDED),
        (_STATEMENTS.complete_all_alone, _ENDED),
        (_STATEMENTS.exchange, _AGREED | {f"done_{name}" for name in _ENDED}),
        (_STATEMENTS.exchange_alone, _AGREED | {f"done_{name}" for name in _ENDED}),
    )
    if statement is not None
]
BY_KEY = {statement.name: statement for statement in (*_PLURAL, *_LONE, *_SHARING)}
_SWEEPS = [each for each in (_STATEMENTS.sweep, _STATEMENTS.sweep_alone) if each is not None]
_INDEX_SCAN = re.compile(r"Index (?:Only )?Scan using record_")
FILLING = """
INSERT INTO nebis_record (
    identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode, state, fence, nonce,
    lease_until, attempts, recoveries, is_dirty, is_awaited, created_at, completed_at, expires_at, forget_at,
    outcome_kind, outcome
)
SELECT
    sha256(n::text::bytea), gen_random_uuid(), 'acct_1', 'operation/pay', 'pay', n::text, sha256('x'), 1, 'L', 'C', n,
    substring(sha256('y') FOR 16), 0, 1, 0, FALSE, FALSE, 0, 0, 4000000000000000, 5000000000000000, 'S',
    decode(repeat('00', 300), 'hex')
FROM generate_series(1, %s) AS n
"""


class Planner:
    """A connection as our own are, on which every statement was planned while the table was empty."""

    def __init__(self, url: str, *, is_vacuumed: bool) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._is_analyzed = False
        if is_vacuumed:  # Then it believes the table empty, and not just unknown.
            self._connection.execute("VACUUM ANALYZE nebis_record, nebis_effect, nebis_attempt")
        for name, value in Settings().pins().items():
            self._connection.execute(f"SET {name} = '{value}'".encode())
        for statement in (*BY_KEY.values(), *_SWEEPS):
            self._connection.execute(f"PREPARE {statement.name} AS {statement.positional}".encode(), prepare=False)
            for _ in range(EXECUTIONS):
                self._connection.execute(self._executed(statement), prepare=False)
        self._connection.execute(FILLING, (ROWS,))

    def plan(self, statement: Statement) -> str:
        rows = self._connection.execute(b"EXPLAIN " + self._executed(statement), prepare=False).fetchall()
        return "\n".join(row[0] for row in rows)

    def analyze(self) -> None:
        if not self._is_analyzed:
            self._connection.execute("ANALYZE nebis_record")
        self._is_analyzed = True

    def close(self) -> None:
        self._connection.close()

    def _executed(self, statement: Statement) -> bytes:
        """Return what runs a statement on nobody: its plan does not depend on the values."""
        found = self._connection.execute(
            "SELECT unnest(parameter_types)::text FROM pg_prepared_statements WHERE name = %s", (statement.name,)
        )
        values = [f"'{{}}'::{kind}" if kind.endswith("[]") else f"NULL::{kind}" for (kind,) in found.fetchall()]
        return f"EXECUTE {statement.name}({', '.join(values)})".encode()


@pytest.fixture(scope="module", params=["unknown", "vacuumed"])
def planner(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[Planner]:
    url = postgres_server.create_database()
    backend = open_blocking(url)
    backend.sessions.run(backend.store.migrate())
    backend.sessions.close()
    planner = Planner(url, is_vacuumed=request.param == "vacuumed")
    yield planner
    planner.close()
    postgres_server.drop_database(url)


@pytest.mark.parametrize("name", BY_KEY)
def test_a_statement_that_was_planned_on_an_empty_table_still_finds_its_rows_by_key(
    planner: Planner, name: str
) -> None:
    plan = planner.plan(BY_KEY[name])
    assert "Seq Scan on nebis_record" not in plan, plan
    assert _INDEX_SCAN.search(plan), plan
    assert _searches_each_index(plan), plan


@pytest.mark.parametrize("name", BY_KEY)
def test_statistics_do_not_change_how_rows_are_found(planner: Planner, name: str) -> None:
    planner.analyze()
    plan = planner.plan(BY_KEY[name])
    assert "Seq Scan on nebis_record" not in plan, plan
    assert "Hash Join" not in plan, plan
    assert "Merge Join" not in plan, plan
    assert _searches_each_index(plan), plan


def _searches_each_index(plan: str) -> bool:
    """Tell whether no index is walked from its one end to the other."""
    lines = pairwise([*plan.splitlines(), ""])
    return all("Index Cond:" in below for line, below in lines if _INDEX_SCAN.search(line))


@pytest.mark.parametrize(
    ("sweep", "looks", "finds"), list(zip(_SWEEPS, (1, 3), (2, 0), strict=True)), ids=[each.name for each in _SWEEPS]
)
def test_a_sweep_reads_only_the_blocks_that_it_was_told_to_and_changes_rows_where_it_found_them(
    planner: Planner, sweep: Statement, looks: int, finds: int
) -> None:
    plan = planner.plan(sweep)
    assert plan.count("Tid Range Scan on nebis_record") == looks, plan
    assert plan.count("Tid Scan on nebis_record") == finds, plan
    assert "Seq Scan on nebis_" not in plan, plan
