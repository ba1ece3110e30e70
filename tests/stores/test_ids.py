"""Records found by their public ids on PostgreSQL, where most ids need no index of their own (decision 0012)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from nebis import Attempt, Local, Nebis
from nebis.core.answers import Grant, Granted
from nebis.core.identity import Identity
from nebis.core.keygrammar import Key
from nebis.core.marks import Marks
from nebis.core.record import RecordId
from nebis.ports.history import AttemptNote
from nebis.ports.store import BlockingBackend
from nebis.runtime.entropy import claimed, draw
from nebis.stores import open_blocking
from nebis.stores.sql.postgres import backend as postgres
from nebis.testing.conformance.specimens import START_US, claim, complete, intend

IDENTITY = bytes(range(32))
NEIGHBOUR = IDENTITY[:6] + bytes(26)
"""Of another key, which begins alike."""
LAST = b"\xff" * 32


@pytest.fixture
def backend(postgres_url: str) -> Iterator[BlockingBackend]:
    opened = open_blocking(postgres_url)
    opened.sessions.run(opened.store.migrate())
    yield opened
    opened.sessions.close()


def led(identity: bytes) -> RecordId:
    usual = claim()
    marks = Marks(Identity(identity), usual.tenant, Key(usual.key), (), usual.terms, usual.command)
    return claimed(marks, has_leading_id=True).record_id


def noted(granted: Granted, started_at: int = 0) -> AttemptNote:
    record = granted.record
    return AttemptNote(
        record_id=record.record_id,
        fence=record.fence,
        started_at=started_at,
        lease_us=1,
        host="h",
        pid=1,
        how=Grant.NEW,
    )


def ids_in_index(url: str) -> list[UUID]:
    """Return the ids that need an index of their own: those that do not begin as their identity does."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT record_id FROM nebis_record"
            " WHERE substring(uuid_send(record_id) FOR 6) <> substring(identity FOR 6)"
        )
        return [record_id for (record_id,) in rows.fetchall()]


def test_an_id_begins_as_its_identity_does_and_is_random_otherwise() -> None:
    first, second = led(IDENTITY), led(IDENTITY)

    assert first.bytes[:6] == second.bytes[:6] == IDENTITY[:6]
    assert first != second
    assert first.version == second.version == 8
    assert str(UUID(str(first))) == str(first)


@pytest.mark.parametrize("identity", [IDENTITY, NEIGHBOUR, LAST, bytes(32)], ids=["some", "lowest", "last", "first"])
def test_records_are_found_by_ids_that_lead_and_by_others(backend: BlockingBackend, identity: bytes) -> None:
    """Whichever neighbours begin alike, and whoever drew the id."""
    store, run = backend.store, backend.sessions.run
    ids = {identity: led(identity), IDENTITY[:6] + b"\xff" * 26: led(IDENTITY), b"\x7f" * 32: draw().record_id}
    run(store.apply([claim(identity=each, record_id=record_id) for each, record_id in sorted(ids.items())]))

    found = {each: run(store.find_by_id(record_id)) for each, record_id in ids.items()}

    assert {each: record and record.identity for each, record in found.items()} == {each: each for each in ids}
    assert run(store.find_by_id(led(identity))) is None
    assert run(store.find_by_id(draw().record_id)) is None


def test_only_ids_of_others_are_in_the_index(backend: BlockingBackend, postgres_url: str) -> None:
    other = draw().record_id
    backend.sessions.run(
        backend.store.apply(
            [claim(identity=IDENTITY, record_id=led(IDENTITY)), claim(identity=LAST, record_id=other)],
        )
    )

    assert ids_in_index(postgres_url) == [other]
    with psycopg.connect(postgres_url) as connection, pytest.raises(psycopg.errors.UniqueViolation, match="other_id"):
        connection.execute("UPDATE nebis_record SET record_id = %s", (other,))


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_ids_lead_where_the_store_looks_for_them_that_way(
    kind: str, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A file has an index over ids, which grows at one end as long as they begin with the time."""
    url = postgres_url if kind == "postgres" else f"sqlite:///{tmp_path_factory.mktemp('ids')}/nebis.db"
    seen: list[str] = []
    with Nebis(url) as nebis:

        @nebis.operation("pay", effects=Local)
        def pay(attempt: Attempt, command: str) -> str:
            seen.append(attempt.operation_id)
            return command

        for number in range(2):
            pay(tenant="acct_1", key=f"an-ordinary-key-{number}", command="x")

    assert [UUID(each).version for each in seen] == [8 if kind == "postgres" else 7] * 2
    if kind == "postgres":
        assert ids_in_index(url) == []


@pytest.mark.parametrize("schema", ["public", "Own"])
@pytest.mark.parametrize("ending", ["deleted", "new life"])
def test_effects_and_attempts_go_with_the_life_that_they_belong_to_whoever_ends_it(
    postgres_url: str, ending: str, schema: str
) -> None:
    """Also a person whose search path leads elsewhere."""
    backend = postgres.open_blocking(postgres_url, schema=None if schema == "public" else schema)
    store, run = backend.store, backend.sessions.run
    run(store.migrate())
    kept_id, gone_id = led(LAST), led(IDENTITY)
    for identity, record_id in ((LAST, kept_id), (IDENTITY, gone_id)):
        [granted] = run(store.apply([claim(identity=identity, record_id=record_id)], now=START_US))
        assert isinstance(granted, Granted)
        run(store.apply([intend(granted.record.ownership)], now=START_US))
        run(store.note_attempts([noted(granted, started_at=START_US)]))

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET search_path = pg_catalog")
        ends = {
            "deleted": f'DELETE FROM "{schema}".nebis_record WHERE identity = %s',
            "new life": f'UPDATE "{schema}".nebis_record SET record_id = gen_random_uuid() WHERE identity = %s',
        }
        connection.execute(ends[ending].encode(), (IDENTITY,))
        left = [
            connection.execute(f'SELECT record_id FROM "{schema}".{table}'.encode()).fetchall()
            for table in ("nebis_effect", "nebis_attempt")
        ]

    assert left == [[(kept_id,)], [(kept_id,)]]
    assert [note.host for note in run(store.attempts_of(kept_id))] == ["h"]
    backend.sessions.close()


def test_nothing_is_noted_of_a_record_that_is_being_removed(backend: BlockingBackend, postgres_url: str) -> None:
    """Or the note would outlive it for ever."""
    store, run = backend.store, backend.sessions.run
    record_id = led(IDENTITY)
    [granted] = run(store.apply([claim(identity=IDENTITY, record_id=record_id)]))
    assert isinstance(granted, Granted)
    run(store.apply([complete(granted.record.ownership)]))
    with psycopg.connect(postgres_url) as remover:
        remover.execute("DELETE FROM nebis_record")
        run(store.note_attempts([noted(granted)]))
        remover.commit()
        assert remover.execute("SELECT FROM nebis_attempt").fetchall() == []
