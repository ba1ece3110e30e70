"""The store's own migration files, applied by Django's `migrate`.

A database may be brought up to date by either tool, in any order: both write into `nebis_migration` what they applied,
and neither applies anything twice.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from django.db import NotSupportedError, OperationalError, router, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from nebis.errors import MisuseError
from nebis.flow import Ask, Flow, drive
from nebis.stores.sql.asks import Query, Row
from nebis.stores.sql.dialect import Dialect, postgres_dialect, sqlite_dialect
from nebis.stores.sql.migrations import Migration, survey

_DIALECTS = {"postgresql": postgres_dialect, "sqlite": sqlite_dialect}
_LOCK_NOT_AVAILABLE = "55P03"

# About three seconds in all. Longer waits belong to whoever runs the command: requests queue behind each (F115).
_PAUSES_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6)


class SharedMigration(Operation):  # type: ignore[misc]  # Django ships no types.
    """One migration file of the store. It changes no model, and is never undone: a memory is not to be forgotten."""

    reduces_to_sql = True
    reversible = False
    serialization_expand_args: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        """Take the name of the file, which is the same for every database."""
        self.name = name

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: the tables belong to no model."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - Django's signature.
        to_state: ProjectState,  # noqa: ARG002
    ) -> None:
        """Apply the file, unless that was done already by whatever tool."""
        connection = schema_editor.connection
        if not router.allow_migrate(connection.alias, app_label):
            return
        if connection.vendor not in _DIALECTS:
            raise NotSupportedError(
                f"The database {connection.alias!r} is {connection.vendor}, and Nebis keeps its store in PostgreSQL or "
                f"SQLite; exclude the app {app_label!r} from it with a database router."
            )
        dialect: Dialect = _DIALECTS[connection.vendor]()
        for pause_seconds in _PAUSES_SECONDS:
            try:
                _apply(connection, dialect, self.name)
            except OperationalError as error:
                if not _is_locked(error):
                    raise
                time.sleep(pause_seconds)
            else:
                return
        _apply(connection, dialect, self.name)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Refuse: what the store remembers must outlive a change of mind."""
        raise NotImplementedError("The store of Nebis is never migrated backwards; restore a backup instead.")

    def describe(self) -> str:
        """Say what this does, for `migrate --plan`."""
        return f"Apply {self.name}.sql of Nebis"


def _is_locked(error: OperationalError) -> bool:
    """Recognise a lock that could not be had, as psycopg or as psycopg2 says it."""
    states = (getattr(error.__cause__, name, None) for name in ("sqlstate", "pgcode"))
    return _LOCK_NOT_AVAILABLE in states


def _apply(connection: Any, dialect: Dialect, name: str) -> None:
    with transaction.atomic(using=connection.alias):
        drive(_apply_once(dialect, name), lambda ask: _perform(connection, ask))


def _apply_once(dialect: Dialect, name: str) -> Flow[None]:
    statements = dialect.statements
    for guard in (statements.lock_schema, statements.limit_lock_wait):
        if guard is not None:
            yield from Query(guard)
    yield from Query(statements.create_migration_table)
    for migration in (yield from survey(dialect)).missing:
        if migration.name == name:
            yield from _apply_file(dialect, migration)


def _apply_file(dialect: Dialect, migration: Migration) -> Flow[None]:
    if migration.is_concurrent:
        raise MisuseError(
            f"{migration.name} builds an index while requests go on, outside any transaction; "
            "run `nebis migrate apply`, then this again."
        )
    for statement in migration.statements:
        yield from Query(statement)
    values = {"name": migration.name, "checksum": migration.checksum, "oldest_code": migration.oldest_code}
    yield from Query(dialect.statements.write_migration, values)


def _perform(connection: Any, ask: Ask[Any]) -> list[Row]:
    assert isinstance(ask, Query)
    with connection.cursor() as cursor:
        if ask.shared:
            cursor.execute(ask.statement.pyformat, dict(ask.shared))
        else:
            cursor.execute(ask.statement.text)
        return [] if cursor.description is None else list(cursor.fetchall())
