"""The constraints of a record on PostgreSQL: migration 0008 says the same as what it replaces, for less."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import psycopg
import pytest
from psycopg import sql

from nebis.core.answers import Granted
from nebis.ports.store import BlockingBackend
from nebis.stores.sql.dialect import postgres_dialect
from nebis.stores.sql.migrations import migrate
from nebis.stores.sql.postgres import backend as postgres
from nebis.testing.conformance.specimens import START_US, claim, complete
from tests.engines.postgres import PostgresServer

CHECKS = """
SELECT conname, pg_get_expr(conbin, conrelid), length(conbin::text)
FROM pg_constraint
WHERE conrelid = %s::regclass
AND contype = 'c'
ORDER BY conname
"""

GOOD = {
    "identity": ["decode(repeat('ab', 32), 'hex')"],
    "nonce": ["decode(repeat('ab', 16), 'hex')"],
    "fingerprint": ["decode(repeat('ab', 32), 'hex')"],
    "fence": ["1::bigint"],
    "attempts": ["1"],
    "recoveries": ["0"],
    "expires_at": ["5::bigint"],
    "forget_at": ["5::bigint"],
}
# Among the letters are some that could pass for others where texts are put together or searched.
ANY_SHAPE = {
    **GOOD,
    "state": ["'P'", "'A'", "'D'", "'C'", "'E'", "'X'", "''", "'Pf'", "'PA'", "'p'"],
    "mode": ["'L'", "'D'", "'O'", "'X'", "''", "'LD'"],
    "outcome_kind": ["NULL::text", "'S'", "'R'", "'U'", "'N'", "'X'", "''", "'SR'"],
    "is_dirty": ["FALSE", "TRUE"],
    "is_awaited": ["FALSE", "TRUE"],
    "completed_at": ["NULL::bigint", "1"],
    "doubt_since": ["NULL::bigint", "1"],
    "doubt_reason": ["NULL::text", "''"],
    "resource_type": ["NULL::text", "''"],
    "resource_id": ["NULL::text", "''"],
    "outcome": ["NULL::bytea", "''"],
    "command": ["NULL::bytea", "''"],
    "rejection": ["NULL::bytea", "''"],
}
_LENGTHS = [f"decode(repeat('ab', {length}), 'hex')" for length in (0, 15, 16, 17, 31, 32, 33)]
ANY_SIZE = {
    **{column: values[:1] for column, values in ANY_SHAPE.items()},
    "state": ["'P'", "'X'"],
    "identity": _LENGTHS,
    "nonce": _LENGTHS,
    "fingerprint": _LENGTHS,
    "fence": ["1::bigint", "0", "-1"],
    "attempts": ["1", "0", "-1"],
    "recoveries": ["0", "-1", "1"],
    "forget_at": ["5::bigint", "4", "6"],
}
SIZES = {
    "record_identity_has_32_bytes",
    "record_nonce_has_16_bytes",
    "record_fingerprint_has_32_bytes",
    "record_fence_was_drawn",
    "record_was_attempted",
    "record_outlives_its_outcome",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The constraints of one schema, as its catalogue has them."""

    expressions: dict[str, str]
    stored_characters: int

    @property
    def refusals(self) -> str:
        """SQL for the names of those that refuse a row: what is null passes, as in a CHECK."""
        cases = (f"CASE WHEN NOT ({text}) THEN '{name}' END" for name, text in self.expressions.items())
        return f"array_remove(ARRAY[{', '.join(cases)}], NULL)"


@pytest.fixture(params=["postgres_server", "postgres15_server"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database of the newest and of the oldest supported version: what they store differs."""
    server: PostgresServer = request.getfixturevalue(request.param)
    address = server.create_database()
    yield address
    server.drop_database(address)


def opened(url: str, schema: str, *, before: str = "9999") -> BlockingBackend:
    """Open a schema that has the migrations before that one."""
    dialect = postgres_dialect(schema)
    older = tuple(migration for migration in dialect.migrations if migration.name < before)
    backend = postgres.open_blocking(url, schema=schema)
    backend.sessions.run(migrate(replace(dialect, migrations=older)))
    return backend


def checks(connection: psycopg.Connection, schema: str) -> Checks:
    rows = connection.execute(CHECKS, (f'"{schema}".nebis_record',)).fetchall()
    return Checks(
        expressions={name: text for name, text, _ in rows}, stored_characters=sum(length for _, _, length in rows)
    )


@pytest.fixture
def both(url: str) -> Iterator[tuple[psycopg.Connection, Checks, Checks]]:
    """A connection, and the constraints before and after the migration."""
    for schema, before in (("Before", "0008"), ("After", "9999")):
        opened(url, schema, before=before).sessions.close()
    with psycopg.connect(url) as connection:
        yield connection, checks(connection, "Before"), checks(connection, "After")


@pytest.mark.parametrize("values", [ANY_SHAPE, ANY_SIZE], ids=["shapes", "sizes"])
def test_the_shorter_constraints_refuse_exactly_what_the_longer_ones_refused(
    both: tuple[psycopg.Connection, Checks, Checks], values: dict[str, list[str]]
) -> None:
    connection, before, after = both
    rows = " CROSS JOIN ".join(
        f"(VALUES {', '.join(f'({value})' for value in literals)}) AS of_{column} ({column})"
        for column, literals in values.items()
    )
    connection.execute(
        f"CREATE TEMPORARY TABLE judged AS SELECT {before.refusals} AS before, {after.refusals} AS after, "
        f"concat_ws(' ', state, mode, is_dirty, is_awaited, outcome_kind) AS hint FROM {rows}".encode()
    )

    differing = connection.execute(
        "SELECT * FROM judged WHERE (before = '{}') <> (after = '{}') ORDER BY hint LIMIT 5"
    ).fetchall()

    assert differing == []
    # Each constraint is the only one to refuse some row, so without it the comparison above would have failed.
    for column, judges in (("before", before), ("after", after)):
        alone = connection.execute(
            sql.SQL("SELECT DISTINCT {0}[1] FROM judged WHERE cardinality({0}) = 1").format(sql.Identifier(column))
        ).fetchall()
        about = {name for name in judges.expressions if (name in SIZES) == (values is ANY_SIZE)}
        assert {name for (name,) in alone} >= about
    assert connection.execute("SELECT 1 FROM judged WHERE before = '{}' LIMIT 1").fetchall() == [(1,)]


def test_the_constraints_stay_short(both: tuple[psycopg.Connection, Checks, Checks]) -> None:
    """Each thousand characters cost every statement that writes a record 3.5 us, whatever they say.

    Whoever adds a constraint finds this limit: 18 of them took 54 us, four times what the write itself takes.
    """
    _, before, after = both

    assert after.stored_characters < 0.62 * before.stored_characters


WRONG = {
    "state = 'X'": "record_fits_its_state",
    "state = 'C'": "record_fits_its_state",
    "outcome = ''": "record_fits_its_state",
    "doubt_since = 1": "record_fits_its_state",
    "state = 'A', is_awaited = TRUE": "record_fits_its_state",
    "mode = 'O', is_dirty = FALSE": "record_opaque_is_dirty",
    "mode = 'X'": "record_mode_is_known",
    "state = 'C', outcome = '', outcome_kind = 'X', completed_at = 1, command = NULL": "record_outcome_kind_is_known",
    "state = 'C', outcome = '', outcome_kind = 'S', completed_at = 1, command = ''": "record_ended_keeps_no_work",
}


@pytest.mark.parametrize("change", WRONG)
def test_a_wrong_write_is_told_which_constraint_refused_it(postgres_url: str, change: str) -> None:
    backend = opened(postgres_url, "public")
    backend.sessions.run(backend.store.apply([claim()], now=START_US))
    backend.sessions.close()

    with psycopg.connect(postgres_url) as connection, pytest.raises(psycopg.errors.CheckViolation) as refused:
        connection.execute(f"UPDATE nebis_record SET {change}".encode())

    assert refused.value.diag.constraint_name == WRONG[change]


def test_rows_from_before_are_not_read_by_the_migration_and_can_be_validated_later(postgres_url: str) -> None:
    backend = opened(postgres_url, "public", before="0008")
    [granted, _] = backend.sessions.run(backend.store.apply([claim("1"), claim("2")], now=START_US))
    assert isinstance(granted, Granted)
    backend.sessions.run(backend.store.apply([complete(granted.record.ownership)], now=START_US))

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        assert "0008_fewer_checks" in backend.sessions.run(backend.store.migrate())
        names = connection.execute(
            "SELECT conname FROM pg_constraint WHERE conrelid = 'nebis_record'::regclass AND NOT convalidated"
        ).fetchall()
        for (name,) in names:
            connection.execute(sql.SQL("ALTER TABLE nebis_record VALIDATE CONSTRAINT {}").format(sql.Identifier(name)))
    backend.sessions.close()

    assert {name for (name,) in names} == set(WRONG.values())
