"""What is staged exists exactly when its transaction committed (I8), on every kind of connection.

The kill tests of `tests/transactions` stage a message in each of their transactions too.
"""

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
from django.db import connections
from django.db import transaction as django_transaction
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from nebis import AsyncAttempt, AsyncNebis, Attempt, Declared, Local, MisuseError, Nebis
from nebis.messaging import Message, stage, stage_async
from nebis.ports.outbox import EntryQuery, outbox_of
from tests.transactions.django_shop import database


@dataclass(frozen=True)
class Order:
    id: str
    fails: bool = False


def staged(nebis: Nebis) -> list[Message]:
    """Return what is in the outbox, in order."""
    backend = nebis.opened()[0].backend
    return [entry.message for entry in backend.sessions.run(outbox_of(backend.store).entries(EntryQuery(limit=1000)))]


def ids(nebis: Nebis) -> list[str]:
    return [message.id for message in staged(nebis)]


@pytest.fixture
def nebis(url: str) -> Iterator[Nebis]:
    with Nebis(url, housekeeping=False) as opened:
        yield opened


def place(nebis: Nebis, **policy: Any) -> Any:
    @nebis.operation("order", effects=Local, **policy)
    def run(attempt: Attempt, command: Order) -> str:
        with attempt.transaction() as tx:
            tx.stage("order.placed", command, ordering_key=command.id)
            tx.stage("order.placed", {"second": command.id}, key="second")
            tx.stage("mail", "thank you", id=f"mail-{command.id}", headers={"To": "ann"})
            tx.finish(command.id)
            if command.fails:
                raise LookupError("after all was staged")
        return command.id

    return run


@pytest.mark.parametrize("single", [False, True])
def test_messages_are_there_in_order_once_the_transaction_committed(nebis: Nebis, single: bool) -> None:
    run = place(nebis, single_transaction=single)

    with pytest.raises(LookupError):
        run(key="a", tenant="t", command=Order("1", fails=True))
    assert staged(nebis) == []
    for _ in range(2):
        run(key="b", tenant="t", command=Order("2"))

    first, second, mail = staged(nebis)
    assert (first.topic, first.payload, first.ordering_key) == ("order.placed", b'{"id":"2","fails":false}', "2")
    assert second.payload == b'{"second":"2"}'
    assert (mail.id, mail.payload, mail.headers) == ("mail-2", b"thank you", (("To", "ann"),))


def test_ids_are_those_of_the_record_whichever_attempt_stages_them(nebis: Nebis) -> None:
    seen: list[tuple[str, str]] = []

    @nebis.operation("order", effects=Local)
    def run(attempt: Attempt, command: Order) -> str:
        with attempt.transaction() as tx:
            seen.append((tx.stage("a", b""), tx.stage("b", b"", key="named")))
            if len(seen) == 1:
                raise LookupError("the first attempt fails")
            tx.finish("done")
        return "done"

    with pytest.raises(LookupError):
        run(key="a", tenant="t", command=Order("1"))
    run(key="a", tenant="t", command=Order("1"))
    run(key="b", tenant="t", command=Order("1"))

    # What failed gave the key back as it was, so its second attempt is the same record.
    assert seen[0] == seen[1]
    assert len({*seen[0], *seen[2]}) == 4
    assert ids(nebis) == [*seen[1], *seen[2]]


def test_what_is_refused_at_stage_leaves_the_transaction_as_it_was(nebis: Nebis) -> None:
    @nebis.operation("order", effects=Local)
    def run(attempt: Attempt, command: Order) -> str:
        with attempt.transaction() as tx:
            for topic, payload, more in (
                ("", b"", {}),
                ("x" * 300, b"", {}),
                ("a", object(), {}),
                ("a", b"x" * 2_000_000, {}),
                ("a", b"", {"id": "1", "key": "1"}),
            ):
                with pytest.raises(MisuseError):
                    tx.stage(topic, payload, **more)  # type: ignore[arg-type]
            tx.stage("a", b"", id="good")
            with pytest.raises(MisuseError, match="the same id"):
                tx.stage("a", b"", id="good")
            tx.finish("done")
        with pytest.raises(MisuseError, match="inside the block"):
            tx.stage("a", b"")
        return "done"

    assert run(key="a", tenant="t", command=Order("1")) == "done"
    assert ids(nebis) == ["good"]


def test_under_asyncio_staging_is_not_awaited(url: str) -> None:
    async def scene() -> None:
        async with AsyncNebis(url, housekeeping=False) as nebis:

            @nebis.operation("order", effects=Local)
            async def run(attempt: AsyncAttempt, command: Order) -> str:
                async with attempt.transaction() as tx:
                    tx.stage("order.placed", command, id=command.id)
                    tx.finish(command.id)
                return command.id

            await run(key="a", tenant="t", command=Order("1"))

    asyncio.run(scene())
    with Nebis(url, housekeeping=False) as nebis:
        assert ids(nebis) == ["1"]


def test_a_store_without_transactions_has_no_outbox() -> None:
    with Nebis("memory://") as nebis, pytest.raises(MisuseError, match="use PostgreSQL or SQLite"):
        stage(nebis, object(), "a", b"")


def test_staging_alone_follows_the_connections_own_transaction(nebis: Nebis, url: str) -> None:
    connection: Any = sqlite3.connect(url.removeprefix("sqlite:///")) if "sqlite" in url else psycopg.connect(url)

    stage(nebis, connection, "a", b"", id="undone")
    connection.rollback()
    stage(nebis, connection, "a", {"n": 1}, id="done", ordering_key="k")
    assert ids(nebis) == []
    connection.commit()
    stage(nebis, connection, "a", b"", id="done")
    random = stage(nebis, connection, "a", b"")
    connection.commit()
    connection.close()

    assert ids(nebis) == ["done", random]


def test_staging_alone_needs_a_transaction_on_the_stores_own_database(nebis: Nebis, url: str) -> None:
    if "sqlite" in url:
        automatic: Any = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        elsewhere: Any = sqlite3.connect(":memory:")
    else:
        automatic = psycopg.connect(url, autocommit=True)
        elsewhere = psycopg.connect(url.rpartition("/")[0] + "/postgres")

    with pytest.raises(MisuseError, match="begin one first"):
        stage(nebis, automatic, "a", b"")
    with pytest.raises(MisuseError, match=r"another (file|database)"):
        stage(nebis, elsewhere, "a", b"")
    with pytest.raises(MisuseError):
        stage(nebis, object(), "a", b"")
    automatic.close()
    elsewhere.close()

    assert ids(nebis) == []


@pytest.mark.parametrize("handle", ["session", "connection"])
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_staging_alone_in_a_transaction_of_sqlalchemy(nebis: Nebis, url: str, driver: str, handle: str) -> None:
    if "sqlite" in url and driver == "psycopg2":
        pytest.skip("SQLite has one driver for blocking code.")
    engine: Engine = create_engine(url if "sqlite" in url else url.replace("postgresql", f"postgresql+{driver}"))
    made: Any = Session(engine) if handle == "session" else engine.connect()
    with made as target:
        stage(nebis, target, "a", b"", id="undone")
        target.rollback()
        target.execute(text("SELECT 1"))
        stage(nebis, target, "a", b"", id="done")
        target.commit()
    engine.dispose()

    assert ids(nebis) == ["done"]


def test_staging_alone_in_an_atomic_block_of_django(nebis: Nebis, url: str) -> None:
    with database("outbox", url):
        connection = connections["outbox"]
        with pytest.raises(MisuseError, match="atomic block"):
            stage(nebis, connection, "a", b"")
        with django_transaction.atomic(using="outbox"):
            stage(nebis, connection, "a", b"", id="undone")
            django_transaction.set_rollback(True, using="outbox")
        with django_transaction.atomic(using="outbox"):
            stage(nebis, connection, "a", b"", id="done")

    assert ids(nebis) == ["done"]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg", "sqlalchemy", "ours"])
def test_staging_alone_under_asyncio(url: str, driver: str) -> None:
    if "sqlite" in url and driver in ("psycopg", "asyncpg"):
        pytest.skip("These are drivers of PostgreSQL.")

    async def scene() -> None:
        async with AsyncNebis(url, housekeeping=False) as nebis:
            await use[driver](nebis)

    async def with_psycopg(nebis: AsyncNebis) -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            with pytest.raises(MisuseError, match="begin one first"):
                await stage_async(nebis, connection, "a", b"")
            async with connection.transaction():
                await stage_async(nebis, connection, "a", b"", id="done")

    async def with_asyncpg(nebis: AsyncNebis) -> None:
        connection = await asyncpg.connect(url)
        with pytest.raises(MisuseError, match="begin one first"):
            await stage_async(nebis, connection, "a", b"")
        async with connection.transaction():
            await stage_async(nebis, connection, "a", b"", id="done")
        await connection.close()

    async def with_sqlalchemy(nebis: AsyncNebis) -> None:
        scheme = "sqlite+aiosqlite" if "sqlite" in url else "postgresql+asyncpg"
        engine = create_async_engine(f"{scheme}:{url.partition(':')[2]}")
        async with AsyncSession(engine) as session:
            await stage_async(nebis, session, "a", b"", id="undone")
            await session.rollback()
            await stage_async(nebis, session, "a", b"", id="done")
            await session.commit()
        await engine.dispose()

    async def in_a_step(nebis: AsyncNebis) -> None:
        @nebis.operation("order", effects=Declared)
        async def run(attempt: AsyncAttempt, command: Order) -> str:
            async def announce(connection: Any) -> str:
                return await stage_async(nebis, connection, "a", b"", id=command.id)

            first: str = await attempt.step("announce", announce)
            return first

        assert await run(key="a", tenant="t", command=Order("done")) == "done"

    use = {"psycopg": with_psycopg, "asyncpg": with_asyncpg, "sqlalchemy": with_sqlalchemy, "ours": in_a_step}
    asyncio.run(scene())
    with Nebis(url, housekeeping=False) as opened:
        assert ids(opened) == ["done"]
