"""What a session or connection of SQLAlchemy has to be like to be joined, and what it is like afterwards."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import StaticPool

from nebis import AsyncNebis, InFlight, Local, MisuseError, StoreUnavailable
from nebis.stores.sql.joining import adapter_for
from tests.engines.postgres import PostgresServer
from tests.transactions.sqlalchemy_shops import MODES, BlockingShop, Order, Payment, payments, put


@pytest.fixture(scope="module")
def postgres_shop(postgres_server: PostgresServer) -> Iterator[BlockingShop]:
    url = postgres_server.create_database()
    shop = BlockingShop(url, url.replace("postgresql", "postgresql+psycopg"), is_session=True)
    yield shop
    shop.close()
    postgres_server.drop_database(url)


@pytest.fixture(scope="module")
def sqlite_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingShop]:
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    shop = BlockingShop(f"sqlite:///{path}", f"sqlite:///{path}", is_session=True)
    yield shop
    shop.close()


@pytest.fixture(params=["postgres", "sqlite"])
def shop(request: pytest.FixtureRequest) -> BlockingShop:
    found: BlockingShop = request.getfixturevalue(f"{request.param}_shop")
    return found


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"{abs(hash(request.node.nodeid)):x}"


def order(shop: BlockingShop, handle: Any, key: str, mode: str = "guarded") -> str:
    shop.handle = handle
    return shop.order_with(key, Order(key), mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_session_that_has_only_read_so_far_is_joined(shop: BlockingShop, key: str, mode: str) -> None:
    with Session(shop.engine) as session:
        session.execute(select(Payment)).all()

        order(shop, session, key, mode)

    assert payments(shop, key) == [key]


def test_a_session_that_wrote_before_is_refused_and_keeps_what_it_wrote(shop: BlockingShop, key: str) -> None:
    """A single transaction: on SQLite the session's own lock would keep any other claim away, and so say less."""
    with Session(shop.engine) as session:
        put(session, f"{key} earlier")
        session.flush()

        with pytest.raises(MisuseError, match="commit or roll back before"):
            order(shop, session, key, "single")
        session.commit()

    assert payments(shop, key) == [f"{key} earlier"]


def test_what_was_added_before_the_block_is_written_in_it(shop: BlockingShop, key: str) -> None:
    with Session(shop.engine) as session:
        put(session, f"{key} added")

        order(shop, session, key)

    assert payments(shop, key) == [key, f"{key} added"]


def test_what_is_refused_before_the_commit_leaves_nothing_and_a_flush_tells_why(shop: BlockingShop, key: str) -> None:
    @shop.nebis.operation(f"conflict-{key}", effects=Local)
    def conflict(attempt: Any, command: str) -> str:
        with attempt.transaction(shop.handle) as transaction:
            put(shop.handle, f"{key} new")
            put(shop.handle, key)
            if command == "flushes":
                shop.handle.flush()
            transaction.finish(command)
        return command

    shop.order(key, Order(key), "guarded")
    with Session(shop.engine) as shop.handle:
        with pytest.raises(StoreUnavailable, match="IntegrityError"):
            conflict(key=f"{key}-1", tenant="shop", command="waits for the commit")
        with pytest.raises(IntegrityError):
            conflict(key=f"{key}-2", tenant="shop", command="flushes")

    assert payments(shop, key) == [key]


def test_a_session_inside_a_block_of_its_own_is_refused(shop: BlockingShop, key: str) -> None:
    with Session(shop.engine) as session, session.begin(), pytest.raises(MisuseError, match=r"session\.begin"):
        order(shop, session, key)


def test_a_session_inside_a_savepoint_is_refused(shop: BlockingShop, key: str) -> None:
    with Session(shop.engine) as session, session.begin_nested(), pytest.raises(MisuseError, match="savepoint"):
        order(shop, session, key, "single")


def test_a_savepoint_inside_the_block_is_the_applications_own_affair(shop: BlockingShop, key: str) -> None:
    @shop.nebis.operation(f"nested-{key}", effects=Local)
    def nested(attempt: Any, command: str) -> str:
        with attempt.transaction(shop.handle) as transaction:
            put(shop.handle, f"{command} kept")
            savepoint = shop.handle.begin_nested()
            put(shop.handle, f"{command} undone")
            shop.handle.flush()
            savepoint.rollback()
            transaction.finish(command)
        return command

    with Session(shop.engine) as shop.handle:
        nested(key=key, tenant="shop", command=key)

    assert payments(shop, key) == [f"{key} kept"]


@pytest.mark.parametrize("mode", MODES)
def test_a_connection_inside_engine_begin_is_refused(postgres_shop: BlockingShop, key: str, mode: str) -> None:
    with postgres_shop.engine.begin() as connection, pytest.raises(MisuseError, match=r"engine\.begin"):
        order(postgres_shop, connection, key, mode)


def test_a_session_on_a_connection_that_somebody_else_began_is_refused(postgres_shop: BlockingShop, key: str) -> None:
    """The pattern of test suites that roll everything back in the end."""
    with (
        postgres_shop.engine.begin() as connection,
        Session(connection) as session,
        pytest.raises(MisuseError, match="connection under the session"),
    ):
        order(postgres_shop, session, key)


def test_a_connection_that_commits_by_itself_is_refused(postgres_shop: BlockingShop, key: str) -> None:
    engine = postgres_shop.engine.execution_options(isolation_level="AUTOCOMMIT")

    with Session(engine) as session, pytest.raises(MisuseError, match="AUTOCOMMIT"):
        order(postgres_shop, session, key)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_that_is_older_than_the_claim_is_refused_and_a_new_one_is_fine(
    postgres_shop: BlockingShop, key: str, level: str
) -> None:
    engine = postgres_shop.engine.execution_options(isolation_level=level)

    with Session(engine) as session:
        session.execute(select(Payment)).all()
        with pytest.raises(MisuseError, match=level):
            order(postgres_shop, session, key)
        session.rollback()
        order(postgres_shop, session, key)

    assert payments(postgres_shop, key) == [key]


def test_a_session_of_two_phases_is_refused(postgres_shop: BlockingShop, key: str) -> None:
    with Session(postgres_shop.engine, twophase=True) as session, pytest.raises(MisuseError, match="two phases"):
        order(postgres_shop, session, key)


def test_a_session_on_another_kind_of_database_is_refused(
    postgres_shop: BlockingShop, sqlite_shop: BlockingShop, key: str
) -> None:
    for shop, other in ((postgres_shop, sqlite_shop), (sqlite_shop, postgres_shop)):
        with Session(other.engine) as session, pytest.raises(MisuseError, match="store's own"):
            order(shop, session, key)


def test_a_session_on_another_database_of_the_same_server_is_refused(
    postgres_shop: BlockingShop, postgres_url: str, key: str
) -> None:
    elsewhere = BlockingShop(postgres_url, postgres_url.replace("postgresql", "postgresql+psycopg"), is_session=True)
    try:
        with Session(elsewhere.engine) as session, pytest.raises(MisuseError, match="another database"):
            order(postgres_shop, session, key, "single")
    finally:
        elsewhere.close()


@pytest.mark.parametrize("mode", MODES)
def test_an_engine_that_cannot_connect_is_told_as_such(shop: BlockingShop, key: str, mode: str) -> None:
    url = "postgresql+psycopg://127.0.0.1:1/nobody" if shop.database == "postgresql" else "sqlite:////no/such/shop.db"

    with Session(create_engine(url)) as session, pytest.raises(StoreUnavailable, match="gave no connection"):
        order(shop, session, key, mode)


def test_a_scoped_session_is_the_session_of_its_scope(shop: BlockingShop, key: str) -> None:
    registry = scoped_session(sessionmaker(shop.engine))

    order(shop, registry, key)
    registry.remove()

    assert payments(shop, key) == [key]


def test_worlds_are_not_mixed(postgres_shop: BlockingShop, key: str) -> None:
    with pytest.raises(MisuseError, match="belongs to asyncio"):
        order(postgres_shop, AsyncSession(), key)

    async def with_a_blocking_session() -> None:
        nebis = AsyncNebis(postgres_shop.nebis._location, housekeeping=False)

        @nebis.operation("mixed", effects=Local)
        async def mixed(attempt: Any, command: str) -> str:
            async with attempt.transaction(Session(postgres_shop.engine)):
                raise AssertionError("this block must not be entered")

        async with nebis:
            await mixed(key=key, tenant="shop", command=key)

    with pytest.raises(MisuseError, match="block the event loop"):
        asyncio.run(with_a_blocking_session())


def test_what_is_no_connection_is_nobodys(postgres_shop: BlockingShop, key: str) -> None:
    assert adapter_for(object()) is None
    with pytest.raises(MisuseError, match="can be joined"):
        order(postgres_shop, postgres_shop.engine, key)


@pytest.mark.parametrize("mode", MODES)
def test_the_session_commits_in_its_own_way(shop: BlockingShop, key: str, mode: str) -> None:
    """Its events happen once, its objects expire, and it can be used again."""
    commits: list[object] = []
    with Session(shop.engine) as session:
        event.listen(session, "after_commit", commits.append)

        order(shop, session, key, mode)

        found = session.scalars(select(Payment).where(Payment.id == key)).one()
        assert commits == [session]
        assert found.id == key


def test_what_nebis_sends_is_not_in_the_log_of_statements(shop: BlockingShop, key: str) -> None:
    """SEC24: with `echo` on, SQLAlchemy prints statements with their values."""
    seen: list[str] = []

    def see(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    event.listen(shop.engine, "before_cursor_execute", see)
    try:
        shop.order(key, Order(key), "single")
    finally:
        event.remove(shop.engine, "before_cursor_execute", see)

    assert any("payments" in statement for statement in seen)
    assert not any("nebis" in statement for statement in seen)


def test_the_applications_lock_timeout_holds_for_its_own_statements(postgres_shop: BlockingShop, key: str) -> None:
    found: list[object] = []

    @postgres_shop.nebis.operation(f"timeouts-{key}", effects=Local, single_transaction=True)
    def look(command: str) -> str:
        found.append(postgres_shop.handle.scalar(text("SHOW lock_timeout")))
        return command

    with Session(postgres_shop.engine) as postgres_shop.handle:
        postgres_shop.handle.execute(text("SET lock_timeout = '1234ms'"))
        look(key=key, tenant="shop", command=key, connection=postgres_shop.handle)

    assert found == ["1234ms"]


def test_a_twin_of_a_single_transaction_is_told_that_it_is_in_flight(postgres_shop: BlockingShop, key: str) -> None:
    twins: list[BaseException] = []

    @postgres_shop.nebis.operation(f"twins-{key}", effects=Local, single_transaction=True)
    def work(command: str) -> str:
        with Session(postgres_shop.engine) as twin, pytest.raises(InFlight) as caught:
            # In a context of its own it is a twin; in that of the handler it would be a recursion (F067).
            Context().run(work, key=key, tenant="shop", command=command, connection=twin)
        twins.append(caught.value)
        return command

    with Session(postgres_shop.engine) as session:
        work(key=key, tenant="shop", command=key, connection=session)

    assert len(twins) == 1


def test_a_deferred_begin_of_the_library_is_replaced_by_one_that_locks(tmp_path: Path, key: str) -> None:
    """F041: the recipe that lets SQLAlchemy send BEGIN by itself would otherwise fail when it comes to write."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    shop = BlockingShop(url, url, is_session=True)
    _send_begin(shop.engine)

    shop.order(key, Order(key), "guarded")

    assert payments(shop, key) == [key]
    shop.close()


def _send_begin(engine: Engine) -> None:
    engine.dispose()

    @event.listens_for(engine, "connect")
    def connected(raw: Any, _: object) -> None:
        raw.isolation_level = None

    @event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


def test_a_cancelled_commit_goes_on_to_its_end_f017(tmp_path: Path, key: str) -> None:
    async def cancel_while_it_commits() -> bool:
        path = tmp_path / "shop.db"
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=StaticPool)
        async with AsyncNebis(f"sqlite:///{path}", housekeeping=False) as nebis:
            world, _ = await nebis.opened()
            assert world.backend.transaction is not None
            async with AsyncSession(engine) as session:
                transaction = world.backend.transaction(session)
                await transaction.begin()
                await session.execute(text("CREATE TABLE kept (id TEXT)"))
                commit = asyncio.create_task(transaction.commit())
                await asyncio.sleep(0)
                commit.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await commit
                await transaction.rollback()
                found = await session.execute(text("SELECT count(*) FROM sqlite_schema WHERE name = 'kept'"))
                is_kept = found.scalar() == 1
        await engine.dispose()
        return is_kept

    assert asyncio.run(cancel_while_it_commits())


def test_blocking_code_needs_no_greenlet() -> None:
    """SQLAlchemy brings it only for asyncio."""
    script = (
        "import sys; sys.modules['greenlet'] = None\n"
        "from sqlalchemy.orm import Session\n"
        "from nebis.stores.sql.joining import adapter_for\n"
        "adapter_for(Session()).hands()\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_subclass_is_recognised() -> None:
    class Lookalike(Session):
        """As frameworks make them."""

    assert adapter_for(Lookalike()) is not None
