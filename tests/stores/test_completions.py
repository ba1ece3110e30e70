"""Completions on PostgreSQL: at once where nothing is in the way, around a row that somebody holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from nebis.core.answers import Granted, Kept, Locked, Running
from nebis.core.owning import KEPT, UNKNOWN_FORGET_FACTOR
from nebis.core.record import Outcome, OutcomeKind, Resource, Retention
from nebis.core.verbs import Complete, Renew
from nebis.ports.store import BlockingSessions
from nebis.stores import open_blocking
from nebis.stores.sql.verbs import SqlStore
from tests.engines.postgres import wait_until_one_waits
from tests.runtime.verbs import claim
from tests.stores.postgres_ways import WAYS, ask

KEPT_FOR = Retention(outcome_us=1_000_000, metadata_us=1)


@pytest.fixture
def store(postgres_url: str) -> SqlStore:
    backend = open_blocking(postgres_url)
    backend.sessions.run(backend.store.migrate())
    backend.sessions.close()
    assert isinstance(backend.store, SqlStore)
    return backend.store


@pytest.fixture(params=[(way, pooler) for way in WAYS for pooler in (False, True)], ids=str)
def sessions(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[BlockingSessions]:
    way, pooler = request.param
    opened = WAYS[way](postgres_url, pooler=pooler, max_connections=1)
    yield opened
    opened.close()


def begun(store: SqlStore, sessions: BlockingSessions, *numbers: int) -> list[Complete]:
    """Begin these records and return what completes them."""
    granted = sessions.run(store.apply([claim(number) for number in numbers]))
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=b"done")
    return [
        Complete(ownership=answer.record.ownership, outcome=outcome, retention=KEPT_FOR)
        for answer in granted
        if isinstance(answer, Granted)
    ]


def test_a_row_that_somebody_holds_delays_no_neighbour(
    store: SqlStore, sessions: BlockingSessions, postgres_url: str
) -> None:
    ends = begun(store, sessions, 1, 2, 3)

    with psycopg.connect(postgres_url) as holder:
        holder.execute("SELECT FROM nebis_record WHERE identity = %s FOR UPDATE", (claim(2).identity,))
        answers = sessions.run(store.apply(ends))

    assert answers == [KEPT, Locked(), KEPT]
    assert sessions.run(store.apply(ends[1:2])) == [KEPT]


def test_a_row_that_somebody_holds_delays_no_claim_in_the_same_batch(
    store: SqlStore, sessions: BlockingSessions, postgres_url: str
) -> None:
    ends = begun(store, sessions, 1, 2)

    with psycopg.connect(postgres_url) as holder:
        holder.execute("SELECT FROM nebis_record WHERE identity = %s FOR UPDATE", (claim(2).identity,))
        answers = sessions.run(store.apply([claim(3), *ends, claim(4)]))

    assert [type(answer) for answer in answers] == [Granted, Kept, Locked, Granted]
    assert sessions.run(store.apply([ends[1], claim(5)]))[0] == KEPT


def test_the_short_patience_of_a_completion_ends_with_it(store: SqlStore, sessions: BlockingSessions) -> None:
    before = sessions.run(ask("SHOW lock_timeout"))

    assert sessions.run(store.apply(begun(store, sessions, 1, 2))) == [KEPT, KEPT]

    assert sessions.run(ask("SHOW lock_timeout")) == before


def test_completions_beside_other_verbs_are_in_their_transaction(store: SqlStore, sessions: BlockingSessions) -> None:
    one, other = begun(store, sessions, 1, 2)

    answers = sessions.run(store.apply([one, Renew(ownership=other.ownership, lease_us=60_000_000)]))

    assert answers == [KEPT, KEPT]


@pytest.mark.parametrize("is_beside_a_claim", [False, True])
@pytest.mark.parametrize("is_beside_a_held_row", [False, True])
def test_whoever_waits_is_woken_by_the_completion_and_nobody_else(
    store: SqlStore,
    sessions: BlockingSessions,
    postgres_url: str,
    is_beside_a_claim: bool,
    is_beside_a_held_row: bool,
) -> None:
    ends = begun(store, sessions, 1, 2, 3)
    terms = replace(claim(2).terms, will_wait=True)
    waiting = replace(claim(2), nonce=claim(7).nonce, record_id=claim(7).record_id, terms=terms)
    [running] = sessions.run(store.apply([waiting]))
    assert isinstance(running, Running)

    with psycopg.connect(postgres_url, autocommit=True) as listener, psycopg.connect(postgres_url) as holder:
        listener.execute("LISTEN nebis")
        if is_beside_a_held_row:
            holder.execute("SELECT FROM nebis_record WHERE identity = %s FOR UPDATE", (claim(3).identity,))
        answers = sessions.run(store.apply([*ends, *([claim(4)] if is_beside_a_claim else [])]))
        assert answers[:3] == [KEPT, KEPT, Locked() if is_beside_a_held_row else KEPT]
        [call] = listener.notifies(timeout=5, stop_after=1)
        assert call.payload == claim(2).identity.hex()
        assert not list(listener.notifies(timeout=0))


@pytest.mark.parametrize("pooler", [False, True])
@pytest.mark.parametrize("is_beside_a_completion", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_begins_elsewhere_in_this_moment_harms_no_neighbour(
    store: SqlStore, postgres_url: str, way: str, *, is_beside_a_completion: bool, pooler: bool
) -> None:
    """Both see that the key is new, and the index lets one of them have it."""
    # As patient as it takes: what is tested is the end of the wait, on however busy a machine.
    sessions = WAYS[way](postgres_url, pooler=pooler, max_connections=1, lock_timeout_seconds=60.0)
    ends = begun(store, sessions, 1)
    neighbours = ends if is_beside_a_completion else [claim(4)]

    with ThreadPoolExecutor(1) as pool:
        with psycopg.connect(postgres_url) as twin:
            changes = {"identity": f"\\x{claim(2).identity.hex()}", "record_id": str(claim(2).record_id)}
            twin.execute(
                "INSERT INTO nebis_record SELECT (jsonb_populate_record(one, %s::jsonb)).* FROM nebis_record AS one",
                (json.dumps(changes),),
            )
            answers = pool.submit(sessions.run, store.apply([claim(2), claim(3), *neighbours]))
            wait_until_one_waits(postgres_url)
        [theirs, ours, neighbour] = answers.result()
    sessions.close()

    assert isinstance(theirs, Running)
    assert isinstance(ours, Granted)
    assert isinstance(neighbour, Kept if is_beside_a_completion else Granted)


def test_what_a_batch_shares_is_stored_as_if_each_had_brought_it(store: SqlStore, sessions: BlockingSessions) -> None:
    """Terms that all have in common are sent once; one more operation, and each brings its own."""
    alike, apart = [claim(1), claim(2)], [claim(3), claim(4, operation="refund")]
    granted = [sessions.run(store.apply(batch)) for batch in (alike, apart, [claim(5)])]
    read = [sessions.run(store.find(claim(number).identity)) for number in range(1, 6)]

    assert [answer.record for batch in granted for answer in batch if isinstance(answer, Granted)] == read

    told, silent = (Outcome(kind=kind, body=b"done") for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.UNKNOWN))
    ends = [
        Complete(
            ownership=record.ownership,
            outcome=silent if number == 4 else told,
            retention=KEPT_FOR,
            resource=None if number == 3 else Resource(type="payment", id="pay_1"),
        )
        for number, record in enumerate(read, start=1)
        if record is not None
    ]
    for batch in (ends[:2], ends[2:4], ends[4:]):
        assert sessions.run(store.apply(batch)) == [KEPT] * len(batch)
    ended = [sessions.run(store.find(claim(number).identity)) for number in range(1, 6)]

    assert [(record.outcome_kind, record.outcome) for record in ended if record is not None] == [
        (end.outcome.kind, end.outcome.body) for end in ends
    ]
    assert [record.resource for record in ended if record is not None] == [end.resource for end in ends]
    kept = [record.forget_at - record.expires_at for record in ended if record is not None]
    assert kept == [1, 1, 1, UNKNOWN_FORGET_FACTOR, 1]
