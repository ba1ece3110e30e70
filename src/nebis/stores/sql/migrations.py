"""How the schema comes to be what the code needs: ordered files, each applied once and never changed afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from nebis.errors import SchemaMismatch
from nebis.flow import Flow
from nebis.stores.sql.asks import Query, Statement, in_transaction
from nebis.stores.sql.statements import read_statements

if TYPE_CHECKING:
    from nebis.stores.sql.dialect import Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One file of schema changes."""

    name: str
    checksum: str
    """Of the file as it is shipped: the same whatever schema its tables are put into."""
    statements: tuple[Statement, ...]


def read_migration(name: str, source: str, *, schema: str | None = None) -> Migration:
    """Read one migration from the text of its file."""
    return Migration(
        name=name,
        checksum=sha256(source.encode()).hexdigest(),
        statements=tuple(read_statements(source, schema=schema).values()),
    )


def migrate(dialect: Dialect) -> Flow[tuple[str, ...]]:
    """Apply what is missing, all of it or nothing; of several starters one applies and the others wait for it."""
    return (yield from in_transaction(_apply_missing(dialect)))


def verify(dialect: Dialect) -> Flow[None]:
    """Raise `SchemaMismatch` unless exactly the migrations of this version of the code are applied."""
    applied = yield from _read_applied(dialect)
    _refuse_what_does_not_fit(dialect, applied)
    missing = [migration.name for migration in dialect.migrations if migration.name not in applied]
    if not applied:
        raise SchemaMismatch("it has no tables of nebis; run `nebis migrate`, or let the application migrate at start")
    if missing:
        raise SchemaMismatch(f"it is older than the code and lacks {', '.join(missing)}; run `nebis migrate`")


def _apply_missing(dialect: Dialect) -> Flow[tuple[str, ...]]:
    statements = dialect.statements
    if statements.lock_schema is not None:
        yield from Query(statements.lock_schema)
    applied = yield from _read_applied(dialect)
    _refuse_what_does_not_fit(dialect, applied)
    missing = [migration for migration in dialect.migrations if migration.name not in applied]
    if missing and not applied:
        if dialect.create_schema is not None:
            yield from Query(dialect.create_schema)
        yield from Query(statements.create_migration_table)
    for migration in missing:
        for statement in migration.statements:
            yield from Query(statement)
        yield from Query(statements.write_migration, {"name": migration.name, "checksum": migration.checksum})
    return tuple(migration.name for migration in missing)


def _read_applied(dialect: Dialect) -> Flow[dict[str, str]]:
    """Return the checksum of every migration that was applied, by its name."""
    has_table = yield from Query(dialect.statements.has_migration_table)
    if not has_table[0][0]:
        return {}
    return dict((yield from Query(dialect.statements.read_migrations)))


def _refuse_what_does_not_fit(dialect: Dialect, applied: Mapping[str, str]) -> None:
    known = {migration.name: migration.checksum for migration in dialect.migrations}
    newer = sorted(applied.keys() - known.keys())
    if newer:
        raise SchemaMismatch(f"it is newer than the code and has {', '.join(newer)}; install a newer version of nebis")
    altered = sorted(name for name, checksum in applied.items() if known[name] != checksum)
    if altered:
        raise SchemaMismatch(
            f"{', '.join(altered)} was applied with other contents than this version ships; "
            "install the version that applied it, or restore its files"
        )
