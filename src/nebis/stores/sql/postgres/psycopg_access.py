"""PostgreSQL through psycopg 3, put together."""

from __future__ import annotations

import psycopg_pool

from nebis.errors import ConfigError
from nebis.ports.store import AsyncSessions, BlockingSessions
from nebis.stores.sql.postgres.access import Route
from nebis.stores.sql.postgres.async_connections import OwnAsyncConnections
from nebis.stores.sql.postgres.async_sessions import AsyncSqlSessions
from nebis.stores.sql.postgres.blocking_sessions import BlockingSqlSessions, OwnConnections
from nebis.stores.sql.postgres.listener import Ear
from nebis.stores.sql.postgres.psycopg_async import AsyncPsycopg, BorrowedAsyncPsycopgPool
from nebis.stores.sql.postgres.psycopg_blocking import BlockingPsycopg, BorrowedPsycopgPool
from nebis.stores.sql.postgres.psycopg_ear import PsycopgEar


class PsycopgAccess:
    """psycopg on one route."""

    def __init__(self, route: Route) -> None:
        self._route = route

    def blocking_sessions(self) -> BlockingSessions:
        """Return sessions for threads."""
        route = self._route
        if route.pool is None:
            return self._own_blocking_sessions(route.settings.max_connections)
        if not isinstance(route.pool, psycopg_pool.ConnectionPool):
            raise ConfigError(["an asyncio pool cannot serve blocking code; hand in a psycopg_pool.ConnectionPool"])
        borrowed = BorrowedPsycopgPool(route.pool, route.settings)
        return BlockingSqlSessions(self._driver(), borrowed, route.settings)

    def async_sessions(self) -> AsyncSessions:
        """Return sessions for an event loop."""
        route = self._route
        driver = AsyncPsycopg(route.location, route.settings)
        if route.pool is None:
            own = OwnAsyncConnections(
                driver, route.primary, route.settings, size=route.settings.max_connections, is_pinned=route.is_pinned
            )
            return AsyncSqlSessions(driver, own, route.settings)
        if not isinstance(route.pool, psycopg_pool.AsyncConnectionPool):
            raise ConfigError(["a blocking pool cannot serve asyncio code; hand in a psycopg_pool.AsyncConnectionPool"])
        return AsyncSqlSessions(driver, BorrowedAsyncPsycopgPool(route.pool, route.settings), route.settings)

    def direct_sessions(self) -> BlockingSessions:
        """Return sessions with a single direct connection."""
        return self._own_blocking_sessions(1)

    def ear(self) -> Ear:
        """Return a connection that listens."""
        return PsycopgEar(self._driver())

    def _own_blocking_sessions(self, size: int) -> BlockingSessions:
        route, driver = self._route, self._driver()
        own = OwnConnections(driver, route.primary, route.settings, size=size, is_pinned=route.is_pinned)
        return BlockingSqlSessions(driver, own, route.settings)

    def _driver(self) -> BlockingPsycopg:
        return BlockingPsycopg(self._route.location, self._route.settings, connect=self._route.connect)
