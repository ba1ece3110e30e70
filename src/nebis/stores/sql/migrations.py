"""How the schema comes to be what the code needs: ordered files, each applied once and never changed afterwards.

A file says before its first statement what is special about it:

`-- oldest-code: 0001_record` names the newest migration of the oldest code that may go on running on the new schema.
It is stored with the migration, since that code does not have the file. Without it only newer code may run.

`-- transaction: none` is for indexes that are built while requests go on. Each statement is then CONCURRENTLY and a
transaction of its own, and the file has to bear being run again from its start.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from nebis.errors import SchemaMismatch
from nebis.flow import Flow
from nebis.ports.store import RowLocked, StoreFailure
from nebis.stores.sql.asks import Query, Statement, in_transaction
from nebis.stores.sql.statements import qualified, read_statements

if TYPE_CHECKING:
    from nebis.stores.sql.dialect import Dialect

T = TypeVar("T")

_TRAIT = re.compile(r"^-- (oldest-code|transaction): (\S+)$", re.MULTILINE)
_COMMENT = re.compile(r"(--[^\n]*)")
_CONCURRENTLY = re.compile(r"\bINDEX CONCURRENTLY\b")

# About six seconds in all: a process that starts should not give up because of one slow transaction.
_PAUSES_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One file of schema changes."""

    name: str
    checksum: str
    """Of the file as it is shipped: the same whatever schema its tables are put into."""
    statements: tuple[Statement, ...]
    source: str
    """The file for people, comments and all, with its tables in their schema."""
    oldest_code: str | None = None
    is_concurrent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a database has, beside what this version of the code needs."""

    applied: tuple[str, ...]
    missing: tuple[Migration, ...]
    newer: tuple[str, ...]
    """Applied by newer code, which says that this version may go on."""


def read_migration(name: str, source: str, *, schema: str | None = None) -> Migration:
    """Read one migration from the text of its file."""
    traits = dict(_TRAIT.findall(source.partition("-- name: ")[0]))
    statements = tuple(read_statements(source, schema=schema).values())
    is_concurrent = traits.get("transaction") == "none"
    if is_concurrent and not all(_CONCURRENTLY.search(statement.text) for statement in statements):
        raise ValueError(f"{name} runs without a transaction, so each of its statements must be CONCURRENTLY")
    parts = _COMMENT.split(source)
    return Migration(
        name=name,
        checksum=sha256(source.encode()).hexdigest(),
        statements=statements,
        source="".join(part if part.startswith("--") else qualified(part, schema) for part in parts),
        oldest_code=traits.get("oldest-code"),
        is_concurrent=is_concurrent,
    )


def survey(dialect: Dialect) -> Flow[Survey]:
    """Compare the database with the code; raise `SchemaMismatch` if this version must not touch it at all."""
    applied: dict[str, tuple[str, str | None]] = {}
    has_table = yield from Query(dialect.statements.has_migration_table)
    if has_table[0][0]:
        rows = yield from Query(dialect.statements.read_migrations)
        applied = {name: (checksum, oldest_code) for name, checksum, oldest_code in rows}
    known = {migration.name: migration.checksum for migration in dialect.migrations}
    newer = sorted(applied.keys() - known.keys())
    # Names begin with a number, so their order is that of history.
    newest = max(known, default="")
    closed = [name for name in newer if newest < (applied[name][1] or name)]
    if closed:
        raise SchemaMismatch(f"it is newer than the code and has {', '.join(closed)}; install a newer version of nebis")
    altered = sorted(name for name in applied.keys() & known.keys() if applied[name][0] != known[name])
    if altered:
        raise SchemaMismatch(
            f"{', '.join(altered)} was applied with other contents than this version ships; "
            "install the version that applied it, or restore its files"
        )
    missing = tuple(migration for migration in dialect.migrations if migration.name not in applied)
    return Survey(applied=tuple(sorted(applied)), missing=missing, newer=tuple(newer))


def verify(dialect: Dialect) -> Flow[None]:
    """Raise `SchemaMismatch` unless this version of the code can work with the schema."""
    refuse_unless_complete((yield from survey(dialect)))


def refuse_unless_complete(found: Survey) -> None:
    """Raise `SchemaMismatch` if something is missing that this version of the code needs."""
    if not found.applied:
        raise SchemaMismatch(
            "it has no tables of nebis; run `nebis migrate apply`, or let the application migrate at start"
        )
    if found.missing:
        names = ", ".join(migration.name for migration in found.missing)
        raise SchemaMismatch(f"it is older than the code and lacks {names}; run `nebis migrate apply`")


def migrate(dialect: Dialect) -> Flow[tuple[str, ...]]:
    """Apply what is missing; of several starters one applies and the others wait for it.

    An empty database gets all or nothing. An older one, on which requests may be running, gets one migration after
    the other, so that no lock is held while the next one is waited for.
    """
    applied: list[str] = []
    while True:
        names = yield from _patiently(dialect, lambda: apply_next(dialect))
        if names is None:
            return tuple(applied)
        applied += names


def apply_next(dialect: Dialect, *, is_attended: bool = False) -> Flow[tuple[str, ...] | None]:
    """Apply the next migration, or all of them to an empty database; return None when nothing is missing.

    Raises `RowLocked` if somebody's transaction is in the way: then nothing changed, and it can be tried again. What
    may take long is applied only while a person attends.
    """
    found = yield from survey(dialect)
    if not found.missing:
        return None
    if found.applied and found.missing[0].is_concurrent:
        if not is_attended:
            raise SchemaMismatch(
                f"{found.missing[0].name} builds an index while requests go on, which may take long; "
                "run `nebis migrate apply` once"
            )
        return (yield from _apply_alone(dialect, found.missing[0]))
    return (yield from in_transaction(_apply_together(dialect)))


def _apply_together(dialect: Dialect) -> Flow[tuple[str, ...]]:
    statements = dialect.statements
    if statements.lock_schema is not None:
        yield from Query(statements.lock_schema)
    if statements.limit_lock_wait is not None:
        yield from Query(statements.limit_lock_wait)
    # Looked at again: somebody else may have held the lock until now.
    found = yield from survey(dialect)
    if found.applied:
        due = tuple(migration for migration in found.missing[:1] if not migration.is_concurrent)
    else:
        due = found.missing
        if dialect.create_schema is not None:
            yield from Query(dialect.create_schema)
        yield from Query(statements.create_migration_table)
    for migration in due:
        for statement in migration.statements:
            yield from Query(_inside_transaction(statement) if migration.is_concurrent else statement)
        yield from _write_down(dialect, migration)
    return tuple(migration.name for migration in due)


def _apply_alone(dialect: Dialect, migration: Migration) -> Flow[tuple[str, ...]]:
    begin, end = dialect.statements.begin_alone, dialect.statements.end_alone
    assert begin is not None
    assert end is not None
    [(is_ours, *_)] = yield from Query(begin)
    if not is_ours:
        raise RowLocked(f"somebody else is applying {migration.name}")
    try:
        found = yield from survey(dialect)
        is_due = migration in found.missing
        if is_due:
            for statement in migration.statements:
                yield from Query(statement)
            yield from in_transaction(_write_down(dialect, migration))
    except Exception:
        # A session that cannot even be told this is thrown away, and its lock with it.
        with suppress(StoreFailure):
            yield from Query(end)
        raise
    yield from Query(end)
    return (migration.name,) if is_due else ()


def _write_down(dialect: Dialect, migration: Migration) -> Flow[None]:
    values = {"name": migration.name, "checksum": migration.checksum, "oldest_code": migration.oldest_code}
    yield from Query(dialect.statements.write_migration, values)


def _inside_transaction(statement: Statement) -> Statement:
    """Return the statement for an empty database, where nobody has to be let through."""
    text = _CONCURRENTLY.sub("INDEX", statement.text)
    return Statement(name=statement.name, text=text, parameters=(), positional=text, pyformat=text)


def _patiently(dialect: Dialect, work: Callable[[], Flow[T]]) -> Flow[T]:
    """Do the work again, after a pause, as long as somebody's transaction is in the way."""
    # Where there is no pause, taking the lock is itself a wait of several seconds.
    pause = dialect.statements.pause
    for seconds in _PAUSES_SECONDS if pause is not None else ():
        try:
            return (yield from work())
        except RowLocked:
            assert pause is not None
            yield from Query(pause, {"seconds": seconds})
    return (yield from work())
