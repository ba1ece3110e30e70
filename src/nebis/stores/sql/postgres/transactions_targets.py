"""Which transaction belongs to what the application hands in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from nebis.errors import MisuseError
from nebis.flow import Ask, Flow, drive, drive_async
from nebis.ports.store import AsyncSessions, AsyncTransaction, BlockingSessions, BlockingTransaction
from nebis.stores.sql.joining import adapter_for
from nebis.stores.sql.joining.keeper import OnDriver
from nebis.stores.sql.joining.postgres import joined as joined_library
from nebis.stores.sql.joining.postgres import joined_async as joined_library_async
from nebis.stores.sql.joining.postgres import lent as lent_library
from nebis.stores.sql.postgres import transactions_async, transactions_blocking
from nebis.stores.sql.postgres.access import Route
from nebis.stores.sql.postgres.async_connections import AsyncSource, OwnAsyncConnections
from nebis.stores.sql.postgres.blocking_sessions import BlockingSource, OwnConnections
from nebis.stores.sql.postgres.location import Driver
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.transactions import TransactionTalk
from nebis.stores.sql.postgres.transactions_asks import Elsewhere
from nebis.stores.sql.postgres.transactions_async import AsyncTransactionDriver
from nebis.stores.sql.postgres.transactions_home import Home

if TYPE_CHECKING:
    from nebis.stores.sql.postgres.transactions_psycopg import BlockingPsycopgTransactions

T = TypeVar("T")


class PlainSettings(Settings):
    """Settings of connections on which the application's own statements run: how those are planned is its affair."""

    __slots__ = ()

    def pins(self) -> dict[str, str]:
        """Return no more than what each transaction would else set for itself."""
        return {name: value for name, value in super().pins().items() if name == "idle_in_transaction_session_timeout"}


class BlockingTransactions:
    """Transactions for threads, on connections apart from those that claim: a transaction may take its time (F045)."""

    def __init__(self, route: Route, sessions: BlockingSessions, home: Home) -> None:
        self._route = route
        self._sessions = sessions
        self._settings = _plain(route.settings)
        self._shared = transactions_blocking.Belongings(home, self._settings, sessions)
        self._own = self._source()

    def open(self, target: object | None) -> BlockingTransaction:
        """Return a transaction on a connection of ours, or on what the application handed in."""
        if target is None:
            own = transactions_blocking.OwnPlace(self._own)
            return transactions_blocking.PostgresTransaction(self._shared, self._psycopg(), own)
        if _driver_of(target) is Driver.PSYCOPG:
            import psycopg  # noqa: PLC0415 - a driver is an extra.

            if isinstance(target, psycopg.Connection):
                driver = self._psycopg()
                joined = transactions_blocking.JoinedPlace(target, driver)
                return transactions_blocking.PostgresTransaction(self._shared, driver, joined)
        library = adapter_for(target)
        if library is None:
            raise _unknown(target, "psycopg.Connection, or a connection or session of SQLAlchemy or Django")
        return joined_library(library, self._shared)

    def lend(self, target: object, flow: Flow[T]) -> T:
        """Perform a store flow inside a transaction that the application began on this connection."""
        if _driver_of(target) is Driver.PSYCOPG:
            import psycopg  # noqa: PLC0415 - a driver is an extra.

            if isinstance(target, psycopg.Connection):
                from nebis.stores.sql.postgres.transactions_psycopg import require_inside  # noqa: PLC0415

                require_inside(target)
                driver = self._psycopg()
                return self._lent(driver, flow, lambda ask: driver.perform(target, ask))
        library = adapter_for(target)
        if library is None:
            raise _unknown(target, "psycopg.Connection, or a connection or session of SQLAlchemy or Django")
        hands = library.hands()
        raw, kept = hands.do(lent_library(self._settings))
        return self._lent(kept, flow, lambda ask: hands.do(iter(OnDriver(lambda: kept.perform(raw, ask)))))

    def _lent(self, driver: Any, flow: Flow[T], perform: Callable[[Ask[Any]], Any]) -> T:
        talk = TransactionTalk(self._shared.home, self._settings, driver.describe, is_ours=False, is_open=True)
        return drive(
            talk.lend(flow),
            lambda ask: self._sessions.run(iter(ask.query)) if isinstance(ask, Elsewhere) else perform(ask),
        )

    def run(self, flow: Flow[T]) -> T:
        """Perform a store flow outside of any transaction of the application."""
        return self._sessions.run(flow)

    def close(self) -> None:
        """Close every connection that is ours."""
        self._own.close()
        self._sessions.close()

    def _psycopg(self) -> BlockingPsycopgTransactions:
        from nebis.stores.sql.postgres.transactions_psycopg import BlockingPsycopgTransactions  # noqa: PLC0415

        return BlockingPsycopgTransactions(self._route.location, self._settings)

    def _source(self) -> BlockingSource[Any]:
        from nebis.stores.sql.postgres.psycopg_blocking import BorrowedPsycopgPool  # noqa: PLC0415

        if self._route.pool is not None:
            return BorrowedPsycopgPool(self._route.pool, self._settings)
        size = self._settings.max_connections
        return OwnConnections(self._psycopg(), self._route.primary, self._settings, size=size, is_pinned=False)


class AsyncTransactions:
    """The asyncio twin of `BlockingTransactions`."""

    def __init__(self, route: Route, sessions: AsyncSessions, home: Home) -> None:
        self._route = route
        self._sessions = sessions
        self._settings = _plain(route.settings)
        self._shared = transactions_async.Belongings(home, self._settings, sessions)
        self._driver = self._maker()
        """Returns the driver of our own connections, anew for each transaction."""
        self._own = self._source()
        self.run = sessions.run
        self.run_unshielded = sessions.run_unshielded

    def open(self, target: object | None) -> AsyncTransaction:
        """Return a transaction on a connection of ours, or on what the application handed in."""
        if target is None:
            own = transactions_async.OwnPlace(self._own)
            return transactions_async.AsyncPostgresTransaction(self._shared, self._driver(), own)
        driver = self._driver_for(target)
        if driver is not None:
            joined = transactions_async.JoinedPlace(target, driver)
            return transactions_async.AsyncPostgresTransaction(self._shared, driver, joined)
        library = adapter_for(target)
        if library is None:
            raise _unknown(
                target,
                "psycopg.AsyncConnection, an asyncpg connection, or a connection or session of SQLAlchemy or Django",
            )
        return joined_library_async(library, self._shared)

    async def lend(self, target: object, flow: Flow[T]) -> T:
        """Perform a store flow inside a transaction that the application began on this connection."""
        driver = self._driver_for(target)
        if driver is not None:
            if _driver_of(target) is Driver.PSYCOPG:
                from nebis.stores.sql.postgres.transactions_psycopg import require_inside  # noqa: PLC0415

                require_inside(cast("Any", target))
            elif driver.is_idle(target):
                raise MisuseError("The connection is in no transaction; begin one first.")
            return await self._lent(driver, flow, lambda ask: driver.perform(target, ask))
        library = adapter_for(target)
        if library is None:
            raise _unknown(
                target,
                "psycopg.AsyncConnection, an asyncpg connection, or a connection or session of SQLAlchemy or Django",
            )
        hands = library.async_hands()
        raw, kept = await hands.do(lent_library(self._settings))
        return await self._lent(kept, flow, lambda ask: hands.do(iter(OnDriver(lambda: kept.perform(raw, ask)))))

    async def _lent(self, driver: Any, flow: Flow[T], perform: Callable[[Ask[Any]], Awaitable[Any]]) -> T:
        talk = TransactionTalk(self._shared.home, self._settings, driver.describe, is_ours=False, is_open=True)

        async def performed(ask: Ask[Any]) -> Any:
            return await (self._sessions.run(iter(ask.query)) if isinstance(ask, Elsewhere) else perform(ask))

        return await drive_async(talk.lend(flow), performed)

    async def close(self) -> None:
        """Close every connection that is ours."""
        await self._own.close()
        await self._sessions.close()

    def _maker(self) -> Callable[[], AsyncTransactionDriver[Any]]:
        # Looked up once, and not for each transaction.
        match self._route.location.driver:
            case Driver.PSYCOPG:
                return self._psycopg()
            case Driver.ASYNCPG:
                return self._asyncpg()

    def _driver_for(self, target: object) -> AsyncTransactionDriver[Any] | None:
        """Return the driver of a raw connection: it need not be the one that the store itself uses."""
        match _driver_of(target):
            case Driver.PSYCOPG:
                import psycopg  # noqa: PLC0415 - a driver is an extra.

                return self._psycopg()() if isinstance(target, psycopg.AsyncConnection) else None
            case Driver.ASYNCPG:
                return self._asyncpg()()
            case None:
                return None

    def _psycopg(self) -> Callable[[], AsyncTransactionDriver[Any]]:
        from nebis.stores.sql.postgres.transactions_psycopg import AsyncPsycopgTransactions  # noqa: PLC0415

        return partial(AsyncPsycopgTransactions, self._route.location, self._settings)

    def _asyncpg(self) -> Callable[[], AsyncTransactionDriver[Any]]:
        from nebis.stores.sql.postgres.transactions_asyncpg import AsyncpgTransactions  # noqa: PLC0415

        return partial(AsyncpgTransactions, self._route.location, self._settings)

    def _source(self) -> AsyncSource[Any]:
        pool, settings = self._route.pool, self._settings
        if pool is None:
            size = settings.max_connections
            return OwnAsyncConnections(self._driver(), self._route.primary, settings, size=size, is_pinned=False)
        match self._route.location.driver:
            case Driver.PSYCOPG:
                from nebis.stores.sql.postgres.psycopg_async import BorrowedAsyncPsycopgPool  # noqa: PLC0415

                return BorrowedAsyncPsycopgPool(pool, settings)
            case Driver.ASYNCPG:
                from nebis.stores.sql.postgres.asyncpg_driver import BorrowedAsyncpgPool  # noqa: PLC0415

                return BorrowedAsyncpgPool(pool, settings)


def _plain(settings: Settings) -> PlainSettings:
    return PlainSettings(**{field.name: getattr(settings, field.name) for field in fields(settings)})


def _driver_of(target: object) -> Driver | None:
    """Recognise a raw connection without importing a driver that may not be installed."""
    packages = {kind.__module__.partition(".")[0] for kind in type(target).__mro__}
    if "psycopg" in packages:
        return Driver.PSYCOPG
    return Driver.ASYNCPG if "asyncpg" in packages else None


def _unknown(target: object, accepted: str) -> MisuseError:
    return MisuseError(f"Nebis cannot join {type(target).__module__}.{type(target).__name__}; hand in a {accepted}.")
