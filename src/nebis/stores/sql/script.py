"""The schema as a script, for people who change their databases with a tool of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nebis.stores.sql.migrations import Migration

if TYPE_CHECKING:
    from nebis.stores.sql.asks import Statement
    from nebis.stores.sql.dialect import Dialect


_HEADING = """\
-- The schema of nebis. Stop at the first error: every migration is a transaction of its own, so what came before stays,
-- and `nebis migrate print --pending` prints the rest."""


def script(dialect: Dialect, migrations: Sequence[Migration], *, is_new: bool) -> str:
    """Return SQL that applies the migrations and writes down that it did; `is_new` for a database without tables."""
    blocks = [_HEADING]
    if is_new:
        opening = [dialect.create_schema] if dialect.create_schema is not None else []
        blocks.append(
            _transaction(dialect, *(_text(it) for it in (*opening, dialect.statements.create_migration_table)))
        )
    for migration in migrations:
        written = _text(dialect.statements.write_migration, _values(migration))
        title = f"-- {migration.name}\n"
        if migration.is_concurrent:
            blocks.append(f"{title}\n{migration.source.strip()}\n\n{written}")
        else:
            blocks.append(title + _transaction(dialect, migration.source.strip(), written))
    return "\n\n\n".join(blocks) + "\n"


def _transaction(dialect: Dialect, *texts: str) -> str:
    statements = dialect.statements
    begin = "BEGIN IMMEDIATE;" if statements.lock is None else "BEGIN;"
    guards = [_text(guard) for guard in (statements.lock_schema, statements.limit_lock_wait) if guard is not None]
    return "\n\n".join(["\n".join([begin, *guards]), *texts, "COMMIT;"])


def _text(statement: Statement, values: dict[str, str | None] | None = None) -> str:
    literals = {name: _literal(value) for name, value in (values or {}).items()}
    return f"{statement.pyformat % literals};"


def _values(migration: Migration) -> dict[str, str | None]:
    return {"name": migration.name, "checksum": migration.checksum, "oldest_code": migration.oldest_code}


def _literal(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"
