"""A shop that takes orders through SQLAlchemy, on every driver and in both worlds: each behaviour is written once."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, create_engine, insert, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from nebis import AsyncAttempt, AsyncNebis, Attempt, Local, Nebis, Rejected, seconds

T = TypeVar("T")

MODES = ("guarded", "single")
SHORT_LEASE: dict[str, Any] = {"lease": seconds(0.6), "renewal": seconds(0.2), "effect_timeout": seconds(0.5)}


surprises: list[Callable[[], None]] = []
"""What happens, once, while the next order is in its transaction."""


class Base(DeclarativeBase):
    """The tables of the shop."""


class Payment(Base):
    """A row of the application's own."""

    __tablename__ = "payments"

    id: Mapped[str] = mapped_column(primary_key=True)


@dataclass(frozen=True)
class Order:
    """A payment to make, and how its handler goes about it."""

    id: str
    way: str = "straight"


def fulfil(handle: Session | Connection, order: Order) -> str:
    """Write the row of an order, in the way that it says; under asyncio this runs where blocking calls may."""
    put(handle, order.id)
    while surprises:
        surprises.pop()()
    match order.way:
        case "straight":
            pass
        case "commits inside":
            handle.commit()
            put(handle, f"{order.id} again")
        case "rolls back inside":
            handle.rollback()
            put(handle, f"{order.id} again")
        case "says COMMIT inside":
            _flushed(handle).execute(text("COMMIT"))
            put(handle, f"{order.id} again")
        case "is refused at its commit":
            for _ in range(2):
                handle.execute(text("INSERT INTO receipts VALUES (:id)"), {"id": order.id})
        case "is warned at its commit":
            handle.execute(text("INSERT INTO warnings VALUES (:id)"), {"id": order.id})
        case "rejects":
            raise Rejected("sold out")
        case "breaks":
            raise ValueError(order.id)
        case "swallows a conflict":
            with suppress(IntegrityError):
                put(handle, "taken")
                _flushed(handle)
        case _:
            raise AssertionError(order.way)
    return order.id


LATE = (
    "CREATE TABLE receipts (id text UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    "CREATE TABLE warnings (id text)",
    """
    CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE WARNING 'the standby is gone' USING ERRCODE = '01000'; RETURN NULL; END $$
    """,
    """
    CREATE CONSTRAINT TRIGGER late AFTER INSERT ON warnings DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION warn()
    """,
)
"""What PostgreSQL says only when it commits: a refusal, and a warning like that of a lost synchronous standby."""


def put(handle: Session | Connection, payment: str) -> None:
    """Write one row, as an object that is not flushed yet where there are objects."""
    if isinstance(handle, Session):
        handle.add(Payment(id=payment))
    else:
        handle.execute(insert(Payment).values(id=payment))


def _flushed(handle: Session | Connection) -> Session | Connection:
    if isinstance(handle, Session):
        handle.flush()
    return handle


class Shop(Protocol):
    """A shop in either world."""

    is_session: bool
    database: str

    def order(self, key: str, order: Order, mode: str) -> str:
        """Take an order, on a connection or session of its own."""
        ...

    def commit_alone(self, order: Order) -> None:
        """Fulfil an order in a transaction that stores no outcome; raise what the store says of its commit."""
        ...

    def use(self, work: Callable[[Connection], T]) -> T:
        """Do something on a connection that is committed afterwards."""
        ...

    def close(self) -> None:
        """Close everything."""
        ...


def payments(shop: Shop, prefix: str) -> list[str]:
    """Return the rows of one order, as anybody else sees them."""
    everything = shop.use(lambda connection: connection.scalars(select(Payment.id).order_by(Payment.id)).all())
    return [payment for payment in everything if payment.startswith(prefix)]


def staged(shop: Shop, order: str) -> list[str]:
    """Return what is to be published of one order."""
    query = text("SELECT ordering_key FROM nebis_outbox WHERE ordering_key = :order")
    return list(shop.use(lambda connection: connection.scalars(query, {"order": order}).all()))


class BlockingShop:
    """A shop of threads."""

    def __init__(self, store_url: str, engine_url: str, *, is_session: bool, **options: Any) -> None:
        self.is_session = is_session
        self.engine: Engine = create_engine(engine_url)
        self.database = self.engine.dialect.name
        self.nebis = Nebis(store_url, housekeeping=False, **options)
        self.handle: Any = None
        self._operations = {"guarded": self._guarded(), "single": self._single()}
        self.nebis.open()
        Base.metadata.create_all(self.engine)

    def order(self, key: str, order: Order, mode: str) -> str:
        with self.open_handle() as self.handle:
            return self.order_with(key, order, mode)

    def order_with(self, key: str, order: Order, mode: str) -> str:
        """Take an order with the handle that is open."""
        connection = self.handle if mode == "single" else None
        result: str = self._operations[mode](key=key, tenant="shop", command=order, connection=connection)
        return result

    def commit_alone(self, order: Order) -> None:
        world, _ = self.nebis.opened()
        assert world.backend.transaction is not None
        with self.open_handle() as handle:
            transaction = world.backend.transaction(handle)
            transaction.begin()
            fulfil(handle, order)
            transaction.commit()

    def open_handle(self) -> Session | Connection:
        return Session(self.engine) if self.is_session else self.engine.connect()

    def use(self, work: Callable[[Connection], T]) -> T:
        with self.engine.begin() as connection:
            return work(connection)

    def close(self) -> None:
        self.nebis.close()
        self.engine.dispose()

    def _guarded(self) -> Any:
        @self.nebis.operation("guarded", effects=Local, **SHORT_LEASE)
        def guarded(attempt: Attempt, order: Order) -> str:
            with attempt.transaction(self.handle) as transaction:
                transaction.stage("order.fulfilled", order.id, ordering_key=order.id)
                transaction.stage("mail", b"\x00thank you")
                transaction.finish(fulfil(transaction.connection, order))
            return order.id

        return guarded

    def _single(self) -> Any:
        @self.nebis.operation("single", effects=Local, single_transaction=True)
        def single(order: Order) -> str:
            return fulfil(self.handle, order)

        return single


class AsyncShop:
    """A shop of an event loop."""

    def __init__(self, store_url: str, engine_url: str, *, is_session: bool, **options: Any) -> None:
        self.is_session = is_session
        self.engine: AsyncEngine = create_async_engine(engine_url)
        self.database = self.engine.dialect.name
        self.nebis = AsyncNebis(store_url, housekeeping=False, **options)
        self.handle: Any = None
        self._runner = asyncio.Runner()
        self._operations = {"guarded": self._guarded(), "single": self._single()}
        self._runner.run(self.nebis.open())
        self.use(Base.metadata.create_all)

    def order(self, key: str, order: Order, mode: str) -> str:
        return self._runner.run(self._order(key, order, mode))

    async def _order(self, key: str, order: Order, mode: str) -> str:
        async with self._open_handle() as self.handle:
            connection = self.handle if mode == "single" else None
            result: str = await self._operations[mode](key=key, tenant="shop", command=order, connection=connection)
            return result

    def commit_alone(self, order: Order) -> None:
        self._runner.run(self._commit_alone(order))

    async def _commit_alone(self, order: Order) -> None:
        world, _ = await self.nebis.opened()
        assert world.backend.transaction is not None
        async with self._open_handle() as handle:
            transaction = world.backend.transaction(handle)
            await transaction.begin()
            await handle.run_sync(fulfil, order)
            await transaction.commit()

    def _open_handle(self) -> Any:
        return AsyncSession(self.engine) if self.is_session else self.engine.connect()

    def use(self, work: Callable[[Connection], T]) -> T:
        return self._runner.run(self._use(work))

    async def _use(self, work: Callable[[Connection], T]) -> T:
        async with self.engine.begin() as connection:
            return await connection.run_sync(work)

    def close(self) -> None:
        self._runner.run(self.nebis.close())
        self._runner.run(self.engine.dispose())
        self._runner.close()

    def _guarded(self) -> Any:
        @self.nebis.operation("guarded", effects=Local, **SHORT_LEASE)
        async def guarded(attempt: AsyncAttempt, order: Order) -> str:
            async with attempt.transaction(self.handle) as transaction:
                transaction.stage("order.fulfilled", order.id, ordering_key=order.id)
                transaction.stage("mail", b"\x00thank you")
                transaction.finish(await transaction.connection.run_sync(fulfil, order))
            return order.id

        return guarded

    def _single(self) -> Any:
        @self.nebis.operation("single", effects=Local, single_transaction=True)
        async def single(order: Order) -> str:
            result: str = await self.handle.run_sync(fulfil, order)
            return result

        return single
