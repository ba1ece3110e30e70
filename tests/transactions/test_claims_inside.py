"""The claim of a transaction is one statement, whose parts follow each other: reserve, bound, insert, restore."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from nebis.core.answers import Granted, Replay, Running
from nebis.core.owning import KEPT
from nebis.ports.store import BlockingBackend, BlockingTransaction, RowLocked
from nebis.stores import open_blocking
from nebis.stores.sql.dialect import postgres_dialect
from nebis.testing.conformance.specimens import claim, complete
from tests.stores.postgres_ways import execute

LOCK_TIMEOUT = "SELECT current_setting('lock_timeout')"
FENCE = "SELECT last_value, is_called FROM nebis_fence"
LONG_SECONDS = 60
"""Whoever waited for this long would be noticed. It is also the application's lock timeout."""


@contextmanager
def opened(url: str, *, lock_timeout_seconds: float) -> Iterator[BlockingBackend]:
    backend = open_blocking(url, lock_timeout_seconds=lock_timeout_seconds)
    try:
        backend.sessions.run(backend.store.migrate())
        yield backend
    finally:
        backend.sessions.close()


@contextmanager
def begun(backend: BlockingBackend, target: object | None = None) -> Iterator[BlockingTransaction]:
    assert backend.transaction is not None
    transaction = backend.transaction(target)
    transaction.begin()
    try:
        yield transaction
    finally:
        transaction.rollback()


@pytest.fixture
def application(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose own lock timeout is much longer than ours."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SET lock_timeout = '1min'")
        connection.commit()
        yield connection


def timeout_of(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute(LOCK_TIMEOUT).fetchone()
    assert row is not None
    return str(row[0])


@contextmanager
def insertion_under_way(url: str) -> Iterator[None]:
    """Insert the key in an open transaction that reserved nothing: a claim of it has to wait at the unique index."""
    probe = postgres_dialect().statements.probe
    assert probe is not None
    with psycopg.connect(url) as holder:
        holder.execute(probe.pyformat.encode(), {"identity": claim().identity})
        yield
        holder.rollback()


def test_what_a_claim_waits_for_is_bounded_by_our_lock_timeout_and_not_the_applications_f045(
    postgres_url: str, application: psycopg.Connection[Any]
) -> None:
    with (
        opened(postgres_url, lock_timeout_seconds=0.2) as backend,
        insertion_under_way(postgres_url),
        begun(backend, application) as transaction,
    ):
        began = time.monotonic()
        with pytest.raises(RowLocked, match="55P03"):
            transaction.run(backend.store.apply([claim()]))
        seconds = time.monotonic() - began

    assert 0.2 <= seconds < LONG_SECONDS / 2
    assert timeout_of(application) == "1min"


def test_a_claim_that_failed_leaves_a_savepoint_with_the_applications_lock_timeout(
    postgres_url: str, application: psycopg.Connection[Any]
) -> None:
    with (
        opened(postgres_url, lock_timeout_seconds=0.2) as backend,
        insertion_under_way(postgres_url),
        begun(backend, application) as transaction,
    ):
        application.execute("SET LOCAL lock_timeout = '7s'")
        application.execute("SAVEPOINT mine")
        with pytest.raises(RowLocked):
            transaction.run(backend.store.apply([claim()]))
        application.execute("ROLLBACK TO SAVEPOINT mine")
        seen = timeout_of(application)

    assert seen == "7s"
    assert timeout_of(application) == "1min"


@pytest.mark.parametrize("theirs", ["0", "7s", "1500ms"])
def test_after_a_claim_the_lock_timeout_is_the_applications_again(
    postgres_url: str, application: psycopg.Connection[Any], theirs: str
) -> None:
    """Granted or not, and even if it was changed in the very transaction."""
    seen: list[tuple[type | None, str]] = []
    for _ in range(2):
        # Opened anew, so that it has seen nothing end, and claims before it reads.
        with (
            opened(postgres_url, lock_timeout_seconds=0.2) as backend,
            begun(backend, application) as transaction,
        ):
            application.execute(f"SET LOCAL lock_timeout = '{theirs}'".encode())
            (answer,) = transaction.run(backend.store.apply([claim()]))
            seen.append((type(answer), timeout_of(application)))
            if isinstance(answer, Granted):
                transaction.run(backend.store.apply([complete(answer.record.ownership)]))
                transaction.commit()
        seen.append((None, timeout_of(application)))
        application.rollback()

    assert seen == [(Granted, theirs), (None, "1min"), (Replay, theirs), (None, "1min")]


def test_a_twin_that_is_claiming_is_noticed_at_once_and_nothing_is_tried(
    postgres_url: str, application: psycopg.Connection[Any]
) -> None:
    """Its row is not in the way: no fence is drawn for one of ours, and nobody waits at the unique index (F045)."""
    with opened(postgres_url, lock_timeout_seconds=LONG_SECONDS) as backend, begun(backend) as twin:
        (answer,) = twin.run(backend.store.apply([claim()]))
        drawn = execute(postgres_url, FENCE)
        with begun(backend, application) as transaction:
            began = time.monotonic()
            with pytest.raises(RowLocked, match="another transaction"):
                transaction.run(backend.store.apply([claim(by="second")]))
            seconds = time.monotonic() - began
            seen = timeout_of(application)

    assert isinstance(answer, Granted)
    assert seconds < LONG_SECONDS / 2
    assert seen == "1min"
    assert execute(postgres_url, FENCE) == drawn


def test_of_several_keys_all_are_claimed_or_none(postgres_url: str) -> None:
    keys = [claim(key, by="second") for key in ("a", "b", "c")]
    with opened(postgres_url, lock_timeout_seconds=LONG_SECONDS) as backend:
        with begun(backend) as twin:
            twin.run(backend.store.apply([claim("b")]))
            drawn = execute(postgres_url, FENCE)
            with begun(backend) as transaction, pytest.raises(RowLocked):
                transaction.run(backend.store.apply(keys))
            assert execute(postgres_url, FENCE) == drawn
        with begun(backend) as transaction:
            answers = transaction.run(backend.store.apply(keys))
            transaction.commit()
        with begun(backend) as transaction:
            again = transaction.run(backend.store.apply([claim(key, by="third") for key in ("b", "c")]))

        granted = [answer.record for answer in answers if isinstance(answer, Granted)]
        assert len(granted) == 3
        assert [type(answer) for answer in again] == [Running] * 2
        assert granted == [backend.sessions.run(backend.store.find(key.identity)) for key in keys]


def test_several_records_are_completed_inside_unless_somebody_ended_the_transaction(postgres_url: str) -> None:
    with opened(postgres_url, lock_timeout_seconds=LONG_SECONDS) as backend:
        answers = backend.sessions.run(backend.store.apply([claim("a"), claim("b"), claim("c")]))
        ends = [complete(answer.record.ownership) for answer in answers if isinstance(answer, Granted)]

        with begun(backend) as transaction:
            transaction.connection.execute("ROLLBACK")
            assert transaction.settle(backend.store.apply(ends)) is None
        assert execute(postgres_url, "SELECT count(*) FROM nebis_record WHERE state = 'C'") == [(0,)]

        with begun(backend) as transaction:
            assert transaction.settle(backend.store.apply(ends)) == [KEPT] * 3
            assert execute(postgres_url, "SELECT count(*) FROM nebis_record WHERE state = 'C'") == [(0,)]
            transaction.commit()
        assert execute(postgres_url, "SELECT count(*) FROM nebis_record WHERE state = 'C'") == [(3,)]
