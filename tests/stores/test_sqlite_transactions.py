"""Transactions on SQLite: the application's rows and ours in one commit."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebis.core.answers import Granted
from nebis.errors import MisuseError
from nebis.flow import Flow
from nebis.ports.store import BlockingBackend, BlockingTransaction, DefiniteFailure, RowLocked
from nebis.stores.sql.asks import Query, in_transaction
from nebis.stores.sql.dialect import sqlite_dialect
from nebis.stores.sql.sqlite import open_async
from nebis.testing.conformance.specimens import START_US, claim
from tests.stores.sql_backends import opened_sqlite, sqlite_url


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[BlockingBackend]:
    opened = opened_sqlite(tmp_path, busy_seconds=0.05)
    yield opened
    opened.sessions.close()


@pytest.fixture
def users(tmp_path: Path, backend: BlockingBackend) -> Iterator[sqlite3.Connection]:
    """A connection that the application already has, with the habits of its own."""
    connection = sqlite3.connect(tmp_path / "nebis.db")
    connection.row_factory = sqlite3.Row
    connection.execute("CREATE TABLE payments (id TEXT)")
    connection.commit()
    yield connection
    connection.close()


def begun(backend: BlockingBackend, target: object | None = None) -> BlockingTransaction:
    assert backend.transaction is not None
    transaction = backend.transaction(target)
    transaction.begin()
    return transaction


def payments(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM payments").fetchone()
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize("is_committed", [True, False])
def test_rows_and_records_share_their_fate(
    backend: BlockingBackend, users: sqlite3.Connection, is_committed: bool
) -> None:
    transaction = begun(backend, users)
    transaction.connection.execute("INSERT INTO payments VALUES ('p1')")
    (answer,) = transaction.run(backend.store.apply([claim()], now=START_US))
    if is_committed:
        transaction.commit()
    else:
        transaction.rollback()

    assert isinstance(answer, Granted)
    assert payments(users) == int(is_committed)
    assert (backend.sessions.run(backend.store.find(claim().identity)) is not None) is is_committed
    assert not users.in_transaction


def test_a_users_own_commit_is_noticed(backend: BlockingBackend, users: sqlite3.Connection) -> None:
    transaction = begun(backend, users)
    assert transaction.is_same()

    users.commit()
    ended = transaction.is_same()
    users.execute("INSERT INTO payments VALUES ('p1')")
    another = transaction.is_same()
    transaction.rollback()

    assert not ended
    assert not another


def test_a_flow_that_fails_inside_a_transaction_leaves_nothing_of_itself(backend: BlockingBackend) -> None:
    statements = sqlite_dialect().statements

    def half() -> Flow[None]:
        yield from Query(statements.write_migration, {"name": "half", "checksum": "x", "oldest_code": None})
        yield from Query(statements.write_migration, {"name": "half", "checksum": "x", "oldest_code": None})

    transaction = begun(backend)
    with pytest.raises(DefiniteFailure):
        transaction.run(in_transaction(half()))
    transaction.run(in_transaction(backend.store.clock()))
    transaction.commit()

    def applied() -> Flow[list[object]]:
        return [row[0] for row in (yield from Query(statements.read_migrations))]

    assert "half" not in backend.sessions.run(applied())


def test_others_are_refused_while_a_transaction_is_open_and_served_after_it(backend: BlockingBackend) -> None:
    transaction = begun(backend)

    with pytest.raises(RowLocked):
        backend.sessions.run(backend.store.apply([claim()], now=START_US))
    assert backend.sessions.run(backend.store.barrier(claim().identity)) is not None
    transaction.rollback()

    assert backend.sessions.run(backend.store.barrier(claim().identity)) is None


def test_a_connection_in_a_transaction_of_its_own_is_refused(
    backend: BlockingBackend, users: sqlite3.Connection
) -> None:
    users.execute("INSERT INTO payments VALUES ('p1')")

    with pytest.raises(MisuseError, match="already in a transaction"):
        begun(backend, users)

    users.rollback()


def test_a_connection_to_another_file_is_refused(backend: BlockingBackend, tmp_path: Path) -> None:
    for place in (":memory:", str(tmp_path / "other.db")):
        other = sqlite3.connect(place)

        with pytest.raises(MisuseError, match="open on another file"):
            begun(backend, other)

        other.close()


def test_what_is_no_connection_or_reads_text_differently_is_refused(
    backend: BlockingBackend, users: sqlite3.Connection
) -> None:
    users.text_factory = bytes

    with pytest.raises(MisuseError, match="text_factory"):
        begun(backend, users)
    with pytest.raises(MisuseError, match="str is no sqlite3"):
        begun(backend, "shop.db")


def test_a_joined_connection_syncs_its_commits_even_if_it_did_not_before(
    backend: BlockingBackend, users: sqlite3.Connection
) -> None:
    users.execute("PRAGMA synchronous = OFF")

    transaction = begun(backend, users)
    transaction.commit()

    assert users.execute("PRAGMA synchronous").fetchone()[0] == 2


def test_under_asyncio_the_application_writes_by_way_of_the_thread(tmp_path: Path) -> None:
    opened_sqlite(tmp_path).sessions.close()

    async def scenario() -> list[tuple[object, ...]]:
        backend = open_async(sqlite_url(tmp_path))
        assert backend.transaction is not None
        with pytest.raises(MisuseError, match="hand in none"):
            backend.transaction(object())
        for key in ("rolled back", "committed"):
            transaction = backend.transaction(None)
            await transaction.begin()
            await transaction.connection.execute("CREATE TABLE payments (id TEXT)")
            await transaction.connection.execute("INSERT INTO payments VALUES (?)", (key,))
            await transaction.run(backend.store.apply([claim(key)], now=START_US))
            assert await transaction.is_same()
            if key == "committed":
                await transaction.commit()
            await transaction.rollback()
        assert await backend.sessions.run(backend.store.find(claim("rolled back").identity)) is None
        assert await backend.sessions.run(backend.store.find(claim("committed").identity)) is not None
        transaction = backend.transaction(None)
        await transaction.begin()
        rows: list[tuple[object, ...]] = await transaction.connection.execute("SELECT id FROM payments")
        await transaction.rollback()
        await backend.sessions.close()
        return rows

    assert asyncio.run(scenario()) == [("committed",)]


def test_a_begin_that_is_cancelled_keeps_no_lock(tmp_path: Path) -> None:
    opened_sqlite(tmp_path).sessions.close()

    async def scenario() -> object:
        backend = open_async(sqlite_url(tmp_path))
        assert backend.transaction is not None
        beginning = asyncio.create_task(backend.transaction(None).begin())
        await asyncio.sleep(0)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        (answer,) = await backend.sessions.run(backend.store.apply([claim()], now=START_US))
        await backend.sessions.close()
        return answer

    assert isinstance(asyncio.run(scenario()), Granted)
