"""What of a record its row spells otherwise."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.identity import PerAccount, PerOperation, PerResourceType, scope_name
from nebis.core.verbs import Claim
from nebis.stores import open_blocking
from nebis.stores.sql.rows import scope_of, stored_scope
from nebis.testing.conformance.specimens import claim

SCOPES = (PerOperation(), PerAccount(), PerResourceType("payment"))

TEXTS = st.text(alphabet="=/aoperation", max_size=12)


def test_the_usual_scope_takes_no_room() -> None:
    usual = scope_name(PerOperation(), operation="pay")

    assert stored_scope(usual, "pay") == ""
    assert scope_of("", "pay") == usual


def test_other_scopes_are_written_out() -> None:
    for scope in (PerAccount(), PerResourceType("payment")):
        name = scope_name(scope, operation="pay")
        assert stored_scope(name, "pay") == name


def test_what_older_code_wrote_out_is_read_as_it_is() -> None:
    assert scope_of("operation/pay", "pay") == "operation/pay"
    assert scope_of("account", "pay") == "account"


@given(scope=TEXTS, operation=TEXTS)
def test_every_scope_comes_back_as_it_was(scope: str, operation: str) -> None:
    assert scope_of(stored_scope(scope, operation), operation) == scope


@given(operation=TEXTS, one=TEXTS, other=TEXTS)
def test_no_two_scopes_of_an_operation_are_stored_alike(operation: str, one: str, other: str) -> None:
    assert (stored_scope(one, operation) == stored_scope(other, operation)) == (one == other)


def claims() -> list[Claim]:
    """Return a claim for each kind of scope."""
    names = [scope_name(scope, operation="pay") for scope in SCOPES]
    return [claim(str(number), operation="pay", scope=name) for number, name in enumerate(names, start=1)]


WANTED = sorted((each.scope, stored_scope(each.scope, "pay")) for each in claims())
SHOWN = """
SELECT view.scope, record.scope
FROM nebis_record_view AS view
JOIN nebis_record AS record ON record.key = view.key
"""


def written(location: str) -> None:
    backend = open_blocking(location)
    try:
        backend.sessions.run(backend.store.migrate())
        backend.sessions.run(backend.store.apply(claims()))
        found = [backend.sessions.run(backend.store.find(each.identity)) for each in claims()]
    finally:
        backend.sessions.close()
    assert [record.scope for record in found if record is not None] == [each.scope for each in claims()]


def test_people_are_shown_every_scope_in_full_on_postgres(postgres_url: str) -> None:
    written(postgres_url)

    with psycopg.connect(postgres_url) as connection:
        assert sorted(connection.execute(SHOWN)) == WANTED


def test_people_are_shown_every_scope_in_full_on_sqlite(tmp_path: Path) -> None:
    written(f"sqlite:///{tmp_path / 'nebis.db'}")

    connection = sqlite3.connect(tmp_path / "nebis.db")
    try:
        assert sorted(connection.execute(SHOWN)) == WANTED
    finally:
        connection.close()
