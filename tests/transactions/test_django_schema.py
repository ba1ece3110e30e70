"""The store's schema by way of `manage.py migrate`: the same files, applied once, whoever comes first."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import NotSupportedError, connections
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.loader import MigrationLoader

from nebis import Local, Nebis, SchemaMismatch
from nebis.integrations.django.schema import SharedMigration
from nebis.stores.sql.dialect import postgres_dialect, sqlite_dialect
from tests.transactions.django_shop import database


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database, which Django knows as `fresh`."""
    found = f"sqlite:///{tmp_path / 'shop.db'}" if request.param == "sqlite" else None
    found = found or request.getfixturevalue("postgres_url")
    with database("fresh", found):
        yield found


def migrate(*arguments: str) -> str:
    said = StringIO()
    call_command("migrate", *arguments, database="fresh", stdout=said, no_color=True)
    return said.getvalue()


def use(url: str) -> str:
    """Run an operation with the schema as it is."""
    with Nebis(url, migrate=False, housekeeping=False) as nebis:

        @nebis.operation("greet", effects=Local)
        def greet(command: str) -> str:
            return f"hello {command}"

        return greet(key="greeting", tenant="shop", command="you")


def test_what_django_migrated_is_all_that_the_store_needs(url: str) -> None:
    with pytest.raises(SchemaMismatch):
        use(url)

    migrate()

    assert use(url) == "hello you"


def test_what_nebis_migrated_is_left_alone_by_django(url: str) -> None:
    with Nebis(url, housekeeping=False):
        pass

    said = migrate()

    assert "0001_record... OK" in said
    assert "No migrations to apply" in migrate()
    assert use(url) == "hello you"


def test_what_django_began_is_continued_by_nebis_and_the_other_way_round(url: str) -> None:
    migrate("nebis", "0001")
    with pytest.raises(SchemaMismatch, match="0002"):
        use(url)
    with Nebis(url, housekeeping=False):
        pass

    migrate()

    assert use(url) == "hello you"


def test_a_migration_that_fails_leaves_nothing(url: str) -> None:
    with connections["fresh"].cursor() as cursor:
        cursor.execute("CREATE TABLE nebis_meta (id INTEGER)")

    with pytest.raises(Exception, match="nebis_meta"):
        migrate()

    with connections["fresh"].cursor() as cursor:
        tables = connections["fresh"].introspection.table_names(cursor)
    assert "nebis_record" not in tables


def test_the_store_is_never_migrated_backwards(url: str) -> None:
    migrate()

    with pytest.raises(IrreversibleError):
        migrate("nebis", "zero")

    assert use(url) == "hello you"


def test_django_has_one_migration_for_each_file() -> None:
    loader = MigrationLoader(None)
    mine = sorted(name for app, name in loader.disk_migrations if app == "nebis")

    for dialect in (sqlite_dialect(), postgres_dialect()):
        assert [migration.name for migration in dialect.migrations] == mine, "give each .sql file its twin for Django"
    for name in mine:
        [operation] = loader.disk_migrations["nebis", name].operations
        assert isinstance(operation, SharedMigration)
        assert operation.name == name


def test_no_model_asks_for_another_migration() -> None:
    call_command("makemigrations", "nebis", check=True, dry_run=True, stdout=StringIO())


def test_a_database_of_another_kind_is_refused_unless_a_router_keeps_it_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Keeping:
        """A router that keeps Nebis out of one database."""

        def allow_migrate(self, alias: str, app_label: str, **_: Any) -> bool:
            return (alias, app_label) != ("fresh", "nebis")

    monkeypatch.setattr(type(connections["fresh"]), "vendor", "mysql")
    operation = SharedMigration("0001_record")
    with connections["fresh"].schema_editor() as editor:
        with pytest.raises(NotSupportedError, match="database router"):
            operation.database_forwards("nebis", editor, None, None)
        monkeypatch.setattr("django.db.router.routers", [Keeping()])
        operation.database_forwards("nebis", editor, None, None)
