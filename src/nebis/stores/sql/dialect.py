"""What differs between the databases that speak SQL: texts, and whether rows are locked one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from nebis.stores.sql.asks import Statement
from nebis.stores.sql.migrations import Migration, read_migration
from nebis.stores.sql.statements import checked_schema, read_statements


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """Every statement that a SQL store needs, by the name that it has in `statements.sql`."""

    claim: Statement
    complete: Statement
    renew: Statement
    release: Statement
    read: Statement
    read_ended: Statement
    save: Statement
    drop_record: Statement
    save_effect: Statement
    drop_effect: Statement
    read_by_id: Statement
    scan: Statement
    count: Statement
    clock: Statement
    has_migration_table: Statement
    create_migration_table: Statement
    read_migrations: Statement
    write_migration: Statement
    offer_secret: Statement
    read_secrets: Statement
    admit_secret: Statement
    count_made_with: Statement
    retire_secret: Statement
    add_tally: Statement
    read_tallies: Statement
    note_worker: Statement
    read_worker: Statement
    note_attempt: Statement
    trim_attempts: Statement
    read_attempts: Statement
    keep_late_result: Statement
    read_late_results: Statement
    forget_late_results: Statement
    write_audit: Statement
    read_audits: Statement
    lock: Statement | None = None
    """Absent where a transaction locks the whole database: then every decision is already under the lock."""
    probe: Statement | None = None
    """Absent for the same reason."""
    lock_schema: Statement | None = None
    """Absent for the same reason."""
    limit_lock_wait: Statement | None = None
    """Absent for the same reason."""
    pause: Statement | None = None
    """Absent for the same reason."""
    begin_alone: Statement | None = None
    """Absent where every change of the schema runs in a transaction."""
    end_alone: Statement | None = None
    """Absent for the same reason."""
    complete_and_stage: Statement | None = None
    """Absent where a statement is no trip to a server."""
    exchange: Statement | None = None
    """Absent where a statement is no trip to a server."""
    exchange_alone: Statement | None = None
    """Absent for the same reason."""
    complete_alone: Statement | None = None
    """Absent where a transaction locks the whole database: then no row is locked by others."""
    claim_all: Statement | None = None
    """Where a statement is a trip to a server, its answers are one row; where it is none, as many were claimed as were
    asked for, or nobody."""
    claim_all_alone: Statement | None = None
    """Absent where a transaction locks the whole database."""
    complete_all: Statement | None = None
    """As `claim_all`."""
    complete_all_alone: Statement | None = None
    """Absent where a transaction locks the whole database."""
    claim_inside: Statement | None = None
    """Absent where a transaction locks the whole database: then nobody else claims during one."""
    complete_inside: Statement | None = None
    """Absent where it is no trip to ask first whether a transaction is still the same."""
    complete_and_stage_inside: Statement | None = None
    """Absent for the same reason."""
    sweep: Statement | None = None
    """Absent where a statement is no trip to a server: then `ends` and the three after it do the same."""
    sweep_alone: Statement | None = None
    """Absent for the same reason."""
    ends: Statement | None = None
    remove: Statement | None = None
    expire: Statement | None = None
    drop_effects: Statement | None = None
    wake: Statement | None = None
    """Absent where a store cannot call other processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxStatements:
    """Every statement that an outbox needs, by the name that it has in `outbox.sql`."""

    stage: Statement
    take: Statement
    mark: Statement
    purge: Statement
    find: Statement
    entries: Statement
    depth: Statement
    decide: Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxStatements:
    """Every statement that an inbox needs, by the name that it has in `inbox.sql`."""

    park: Statement
    unpark: Statement
    make_due: Statement
    find_parked: Statement
    list_parked: Statement
    due_letters: Statement
    count_parked: Statement
    read_progress: Statement
    advance: Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class VelocityStatements:
    """Every statement that meters need, by the name that it has in `velocity.sql`."""

    forget: Statement
    charge: Statement | None = None
    """Absent where a transaction locks the whole database: then the three below do the same."""
    look: Statement | None = None
    read_meter: Statement | None = None
    write_meter: Statement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One database's way to say what every SQL store says."""

    name: str
    statements: Statements
    outbox: OutboxStatements
    inbox: InboxStatements
    velocity: VelocityStatements
    migrations: tuple[Migration, ...]
    create_schema: Statement | None = None
    """Absent where the tables are in no schema of their own."""


@cache
def sqlite_dialect() -> Dialect:
    """Return the SQLite dialect."""
    return _read_dialect("sqlite", schema=None)


@cache
def postgres_dialect(schema: str | None = None) -> Dialect:
    """Return the Postgres dialect with its tables in `schema`, or wherever the search path leads."""
    return _read_dialect("postgres", schema=checked_schema(schema))


def _read_dialect(name: str, *, schema: str | None) -> Dialect:
    folder = files("nebis.stores.sql").joinpath(name)
    sources = sorted(folder.joinpath("migrations").iterdir(), key=_name_of)
    return Dialect(
        name=name,
        statements=Statements(**read_statements(_text_of(folder.joinpath("statements.sql")), schema=schema)),
        outbox=OutboxStatements(**read_statements(_text_of(folder.joinpath("outbox.sql")), schema=schema)),
        inbox=InboxStatements(**read_statements(_text_of(folder.joinpath("inbox.sql")), schema=schema)),
        velocity=VelocityStatements(**read_statements(_text_of(folder.joinpath("velocity.sql")), schema=schema)),
        migrations=tuple(
            read_migration(source.name.removesuffix(".sql"), _text_of(source), schema=schema)
            for source in sources
            if source.name.endswith(".sql")
        ),
        create_schema=None if schema is None else _create_schema(schema),
    )


def _create_schema(schema: str) -> Statement:
    # Not IF NOT EXISTS: that demands the right to create schemas even where there is nothing to create (SEC21).
    text = f'''DO $$ BEGIN IF to_regnamespace('"{schema}"') IS NULL THEN CREATE SCHEMA "{schema}"; END IF; END $$'''
    return Statement(name="create_schema", text=text, parameters=(), positional=text, pyformat=text)


def _name_of(source: Traversable) -> str:
    return source.name


def _text_of(source: Traversable) -> str:
    return source.read_text(encoding="utf-8")
