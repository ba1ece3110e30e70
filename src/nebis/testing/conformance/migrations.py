"""Migrations: a schema comes up from nothing, once, whoever starts first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nebis.core.answers import Granted
from nebis.errors import SchemaMismatch
from nebis.testing.conformance.harness import Connection, Harness
from nebis.testing.conformance.specimens import START_US, claim
from nebis.testing.conformance.twin import Twin


class TestMigrations:
    """Migrating is safe to repeat, and code refuses to run on what it does not know."""

    @pytest.fixture
    def blank(self, harness: Harness) -> Iterator[Connection]:
        """Connect to a store before its first migration."""
        connection = harness.blank()
        yield connection
        connection.close()

    def test_a_migrated_store_fits_and_works(self, blank: Connection) -> None:
        blank.run(blank.store.migrate())

        blank.run(blank.store.verify())

        assert isinstance(Twin(blank).ask(claim(), now=START_US), Granted)

    def test_the_second_migration_has_nothing_to_do_and_keeps_every_record(self, blank: Connection) -> None:
        blank.run(blank.store.migrate())
        twin = Twin(blank)
        twin.ask(claim(), now=START_US)

        again = blank.run(blank.store.migrate())

        assert again == ()
        twin.compare_readings(START_US)

    def test_a_store_with_a_schema_refuses_to_work_without_it(self, harness: Harness, blank: Connection) -> None:
        if not blank.run(blank.store.migrate()):
            pytest.skip(f"The {blank.store.capabilities.name} store has no schema.")
        another = harness.blank()

        try:
            with pytest.raises(SchemaMismatch):
                another.run(another.store.verify())
        finally:
            another.close()
