"""Compare-and-set through every kind of connection: of two writers with one version, one wins."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]  # It ships no types.
import psycopg
import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from nebis import AsyncAttempt, AsyncNebis, Local, MisuseError, PreconditionFailed
from nebis.rowversion import CompareAndSet, Style, compare_and_set, compare_and_set_async

TABLE = "CREATE TABLE account (id INTEGER, owner TEXT, version INTEGER NOT NULL)"
ROW = "INSERT INTO account VALUES (1, 'ann', 7)"
CHANGE: dict[str, Any] = {"where": {"id": 1}, "values": {"owner": "bob"}}


@pytest.fixture
def database(postgres_url: str) -> str:
    """A database with one account, at version 7."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute(TABLE)
        connection.execute(ROW)
    return postgres_url


@contextmanager
def psycopg2_connection(url: str) -> Iterator[Any]:
    connection = psycopg2.connect(url)
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    with Session(engine) as session, session.begin():
        yield session
    engine.dispose()


BLOCKING: dict[str, Callable[[str], Any]] = {
    "psycopg": psycopg.connect,
    "psycopg2": psycopg2_connection,
    "sqlalchemy": sqlalchemy_connection,
    "sqlalchemy-session": sqlalchemy_session,
}


@pytest.mark.parametrize("kind", BLOCKING)
def test_the_second_writer_changes_nothing(database: str, kind: str) -> None:
    with BLOCKING[kind](database) as connection:
        assert compare_and_set(connection, "account", version=7, **CHANGE) == 8
        with pytest.raises(PreconditionFailed):
            compare_and_set(connection, "account", version=7, **CHANGE)

    with psycopg.connect(database) as reader:
        assert reader.execute("SELECT * FROM account").fetchall() == [(1, "bob", 8)]


def test_the_second_writer_changes_nothing_in_a_file(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute(TABLE)
    connection.execute(ROW)

    assert compare_and_set(connection, "account", version=7, **CHANGE) == 8
    with pytest.raises(PreconditionFailed):
        compare_and_set(connection, "main.account", version=7, **CHANGE)
    connection.close()


def test_writers_at_once_with_one_version_have_one_winner(database: str) -> None:
    """P18."""
    together = threading.Barrier(4)

    def write(name: str) -> int | None:
        with psycopg.connect(database) as connection:
            together.wait()
            try:
                return compare_and_set(connection, "account", where={"id": 1}, version=7, values={"owner": name})
            except PreconditionFailed:
                return None

    with ThreadPoolExecutor(4) as threads:
        written = list(threads.map(write, ["ann", "bob", "cyd", "dee"]))

    assert sorted(filter(None, written)) == [8]


async def _asyncpg(url: str, scene: Callable[[Any], Awaitable[None]]) -> None:
    connection = await asyncpg.connect(url)
    try:
        await scene(connection)
    finally:
        await connection.close()


async def _psycopg(url: str, scene: Callable[[Any], Awaitable[None]]) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await scene(connection)


async def _sqlalchemy(url: str, scene: Callable[[Any], Awaitable[None]]) -> None:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.begin() as connection:
        await scene(connection)
    await engine.dispose()


ASYNCIO = {"asyncpg": _asyncpg, "psycopg": _psycopg, "sqlalchemy": _sqlalchemy}


async def _two_writers(connection: Any) -> None:
    assert await compare_and_set_async(connection, "account", version=7, **CHANGE) == 8
    with pytest.raises(PreconditionFailed):
        await compare_and_set_async(connection, "account", version=7, **CHANGE)


@pytest.mark.parametrize("kind", ASYNCIO)
def test_the_second_writer_changes_nothing_under_asyncio(database: str, kind: str) -> None:
    asyncio.run(ASYNCIO[kind](database, _two_writers))


def test_the_second_writer_changes_nothing_in_a_transaction_of_ours(tmp_path: Path) -> None:
    async def scene() -> None:
        async with AsyncNebis(f"sqlite:///{tmp_path / 'shop.db'}") as nebis:

            @nebis.operation("change", effects=Local)
            async def change(attempt: AsyncAttempt, version: int) -> int:
                async with attempt.transaction() as tx:
                    await tx.execute("CREATE TABLE IF NOT EXISTS account (id, owner, version)")
                    await tx.execute("INSERT INTO account SELECT 1, 'ann', 7 WHERE NOT EXISTS (SELECT 1 FROM account)")
                    tx.finish(await compare_and_set_async(tx.connection, "account", version=version, **CHANGE))
                return version

            first, second = str(uuid4()), str(uuid4())
            assert await change(key=first, tenant="shop", command=7) == 8
            with pytest.raises(PreconditionFailed):
                await change(key=second, tenant="shop", command=7)
            assert await change(key=first, tenant="shop", command=7) == 8
            # What was refused left nothing under its key: the same key may be used for the version that is current.
            assert await change(key=second, tenant="shop", command=8) == 9

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("style", "text"),
    [
        (Style.QUESTION, "UPDATE shop.t SET a = ?, b = ?, rev = rev + 1 WHERE id = ? AND kind = ? AND rev = ?"),
        (Style.PERCENT, "UPDATE shop.t SET a = %s, b = %s, rev = rev + 1 WHERE id = %s AND kind = %s AND rev = %s"),
        (Style.DOLLAR, "UPDATE shop.t SET a = $1, b = $2, rev = rev + 1 WHERE id = $3 AND kind = $4 AND rev = $5"),
        (Style.COLON, "UPDATE shop.t SET a = :p1, b = :p2, rev = rev + 1 WHERE id = :p3 AND kind = :p4 AND rev = :p5"),
    ],
)
def test_the_statement_is_one_update(style: Style, text: str) -> None:
    change = CompareAndSet(
        table="shop.t", where={"id": 1, "kind": "x"}, version=7, values={"a": 2, "b": 3}, version_column="rev"
    )

    assert change.text(style) == text
    assert change.parameters == (2, 3, 1, "x", 7)


@pytest.mark.parametrize(
    ("table", "where", "values"),
    [
        ('t"; DROP TABLE t', {"id": 1}, {"a": 1}),
        ("t", {"id = id OR 1": 1}, {"a": 1}),
        ("t", {"id": 1}, {"a = 1 --": 1}),
        ("t", {}, {"a": 1}),
        ("t", {"id": 1}, {}),
        ("t", {"id": 1}, {"version": 9}),
    ],
)
def test_what_is_no_plain_name_never_becomes_a_statement(table: str, where: Any, values: Any) -> None:
    """SEC20."""
    with sqlite3.connect(":memory:") as connection, pytest.raises(MisuseError):
        compare_and_set(connection, table, where=where, version=1, values=values)
    connection.close()


def test_more_than_one_row_and_a_strange_connection_are_told() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(TABLE)
    connection.execute(ROW)
    connection.execute(ROW)

    with pytest.raises(MisuseError, match="2 rows"):
        compare_and_set(connection, "account", version=7, **CHANGE)
    connection.close()
    with pytest.raises(MisuseError, match="does not know"):
        compare_and_set(object(), "account", version=7, **CHANGE)
    with pytest.raises(MisuseError, match="does not know"):
        asyncio.run(compare_and_set_async(object(), "account", version=7, **CHANGE))
