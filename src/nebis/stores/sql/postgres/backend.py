"""A PostgreSQL store with access to it: by URL, or through a pool that the application already has.

A pool of the application is used with the settings that it has: each of our transactions makes the ones that it cannot
do without, and query plans are left alone. It cannot serve heartbeats, which must not queue behind the work that they
keep alive; therefore a pool comes with `url=` or `connect=`, from which direct connections are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nebis.errors import ConfigError, StoreUnavailable
from nebis.ports.store import AsyncBackend, BlockingBackend, Capabilities, Listener, StoreFailure, Tier
from nebis.stores.sql.dialect import postgres_dialect
from nebis.stores.sql.postgres.access import Access, Route
from nebis.stores.sql.postgres.failures import Unreachable
from nebis.stores.sql.postgres.listener import ListeningThread
from nebis.stores.sql.postgres.location import Driver, Location
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.startup import ServerReport, inspect
from nebis.stores.sql.postgres.transactions_home import Home
from nebis.stores.sql.postgres.transactions_targets import AsyncTransactions, BlockingTransactions
from nebis.stores.sql.statements import checked_schema
from nebis.stores.sql.verbs import SqlStore

_POOL_IS_NOT_ENOUGH = (
    "a pool that is handed in cannot serve heartbeats, which must not queue behind the work that they keep alive; "
    "add url= or connect=, one of them, for direct connections"
)


def open_blocking(location: object, *, schema: str | None = None, **options: Any) -> BlockingBackend:
    """Check the server and give blocking access to it.

    Raises `ConfigError` for what must be corrected, and `StoreUnavailable` for a server that is not there now.
    """
    route = _route(location, options)
    access = _access(route)
    sessions = access.blocking_sessions()
    store = _store(access, route, schema)
    transactions = BlockingTransactions(route, sessions, Home(schema))
    return BlockingBackend(
        store=store,
        sessions=transactions,
        beat=access.direct_sessions,
        transaction=transactions.open,
        lend=transactions.lend,
        listen=_listen(access, route),
        lanes=route.settings.max_connections,
    )


def open_async(location: object, *, schema: str | None = None, **options: Any) -> AsyncBackend:
    """Check the server and give asyncio access to it; the check blocks for about as long as a login takes.

    Raises `ConfigError` for what must be corrected, and `StoreUnavailable` for a server that is not there now.
    """
    route = _route(location, options)
    access = _access(route)
    sessions = access.async_sessions()
    store = _store(access, route, schema)
    transactions = AsyncTransactions(route, sessions, Home(schema))
    return AsyncBackend(
        store=store,
        sessions=transactions,
        beat=access.direct_sessions,
        transaction=transactions.open,
        lend=transactions.lend,
        listen=_listen(access, route),
        lanes=route.settings.max_connections,
        reading_lanes=route.settings.max_connections,
    )


def examine(location: object, **options: Any) -> ServerReport:
    """Return what a server says of itself; raise as `open_blocking` does when it cannot be asked."""
    route = _route(location, options)
    return _examine(_access(route), route)


def driver_of_pool(pool: object) -> Driver | None:
    """Recognise an open pool without importing a driver that may not be installed."""
    packages = {kind.__module__.partition(".")[0] for kind in type(pool).__mro__}
    if "psycopg_pool" in packages:
        return Driver.PSYCOPG
    return Driver.ASYNCPG if "asyncpg" in packages else None


def _route(location: object, options: dict[str, Any]) -> Route:
    url, connect = options.pop("url", None), options.pop("connect", None)
    settings = Settings.from_options(options)
    if isinstance(location, str):
        if url is not None or connect is not None:
            raise ConfigError(["url= and connect= belong to a pool that is handed in; leave them out beside a URL"])
        return Route(location=Location.parse(location), settings=settings)
    driver = driver_of_pool(location)
    if driver is None:
        raise ConfigError([f"{type(location).__name__} is no pool of psycopg or asyncpg; hand in one, or a URL"])
    if (url is None) == (connect is None):
        raise ConfigError([_POOL_IS_NOT_ENOUGH])
    place = Location.parse(url, driver=driver) if url is not None else Location.behind_connect(driver)
    return Route(location=place, settings=settings, pool=location, connect=connect)


def _access(route: Route) -> Access:
    # Imported only now: a driver is an extra, and `import nebis` must work without any.
    try:
        match route.location.driver:
            case Driver.PSYCOPG:
                from nebis.stores.sql.postgres.psycopg_access import PsycopgAccess  # noqa: PLC0415

                return PsycopgAccess(route)
            case Driver.ASYNCPG:
                from nebis.stores.sql.postgres.asyncpg_access import AsyncpgAccess  # noqa: PLC0415

                return AsyncpgAccess(route)
    except ImportError as error:
        extra = route.location.driver.value
        raise ConfigError(
            [f"the driver of this location is missing ({error.name or error}); run: pip install 'nebis[{extra}]'"]
        ) from None


def _store(access: Access, route: Route, schema: str | None) -> SqlStore:
    dialect = postgres_dialect(checked_schema(schema))
    report = _examine(access, route)
    weaknesses = report.weaknesses() if route.settings.durability == "strict" else ()
    if faults := [*report.faults(), *weaknesses]:
        raise ConfigError(faults)
    capabilities = Capabilities(
        name="postgres",
        tier=Tier.FULL,
        survives_restart=True,
        joins_transactions=True,
        wakes_other_processes=not route.settings.pooler,
        assumptions=report.assumptions(),
        has_leading_ids=True,
    )
    return SqlStore(dialect, capabilities)


def _examine(access: Access, route: Route) -> ServerReport:
    sessions = access.direct_sessions()
    try:
        return sessions.run(inspect(route.primary))
    except StoreFailure as failure:
        if isinstance(failure, Unreachable) and failure.is_misconfigured:
            raise ConfigError([failure.detail]) from None
        raise StoreUnavailable(failure.detail) from None
    finally:
        sessions.close()


def _listen(access: Access, route: Route) -> Callable[[Callable[[bytes], None]], Listener] | None:
    # Behind a pooler the server connection that listens is not the one that our client connection keeps (F044).
    if route.settings.pooler:
        return None
    return lambda callback: ListeningThread(access.ear, callback)
