"""The application's own role needs no more than rows of our tables; the schema belongs to another one (SEC21)."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from nebis import Attempt, Local, Nebis, SchemaMismatch
from nebis.ports.outbox import outbox_of
from nebis.runtime.sweeping import sweep_once
from nebis.stores import open_blocking

ROLE = "nebis_application"
GRANTS = """
CREATE ROLE nebis_application LOGIN PASSWORD 'application';
GRANT SELECT, INSERT, UPDATE, DELETE ON nebis_record, nebis_effect, nebis_meta, nebis_counter, nebis_attempt,
    nebis_late_result, nebis_outbox, nebis_parked, nebis_offset, nebis_velocity TO nebis_application;
GRANT SELECT, INSERT ON nebis_audit TO nebis_application;
GRANT SELECT ON nebis_migration TO nebis_application;
GRANT USAGE ON SEQUENCE nebis_fence TO nebis_application;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
"""


@dataclass(frozen=True)
class Order:
    """What is asked for."""

    sku: str


@pytest.fixture
def application_url(postgres_url: str) -> str:
    backend = open_blocking(postgres_url)
    backend.sessions.run(backend.store.migrate())
    backend.sessions.close()
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"DROP ROLE IF EXISTS {ROLE}")
        owner.execute(GRANTS)
    parts = urlsplit(postgres_url)
    return urlunsplit(parts._replace(netloc=f"{ROLE}:application@{parts.hostname}:{parts.port}"))


def test_everything_but_migrating_works_with_rights_on_rows_alone_sec21(
    application_url: str, postgres_url: str
) -> None:
    try:
        with Nebis(application_url, migrate=False) as nebis:

            @nebis.operation("place_order", effects=Local)
            def place_order(attempt: Attempt, command: Order) -> str:
                attempt.resource("order", command.sku)
                with attempt.transaction() as tx:
                    tx.stage("ordered", command.sku)
                    tx.finish(f"ordered {command.sku}")
                return f"ordered {command.sku}"

            key = "0b7a3c52-7d6e-4c3c-9f0b-9a3a1a4f0d11"
            told = [place_order(key=key, tenant="acct_1", command=Order("apple")) for _ in range(2)]
            world, _ = nebis.opened()
            world.backend.sessions.run(sweep_once(world.backend.store))
            counts = world.backend.sessions.run(world.backend.store.count())
            outbox = outbox_of(world.backend.store)
            taken = world.backend.sessions.run(outbox.take("a relay", limit=10, lease_us=1))

        assert told == ["ordered apple"] * 2
        assert [entry.message.payload for entry in taken] == [b"apple"]
        assert sum(counts.by_state.values()) == 1
    finally:
        _forget_the_role(postgres_url)


def test_such_a_role_is_told_to_have_the_schema_migrated_by_another_sec21(
    application_url: str, postgres_url: str
) -> None:
    try:
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute("DROP TABLE nebis_counter")
            owner.execute("DELETE FROM nebis_migration WHERE name LIKE '0002%'")

        with pytest.raises(SchemaMismatch, match="migrate"), Nebis(application_url, migrate=False):
            pass
    finally:
        _forget_the_role(postgres_url)


def _forget_the_role(postgres_url: str) -> None:
    """Roles belong to the whole server, and the next test makes its own."""
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"DROP OWNED BY {ROLE}")
        owner.execute(f"DROP ROLE {ROLE}")
