"""PostgreSQL through asyncpg, put together.

Heartbeats and the start-up check are blocking; here they run on an event loop of their own, so that one URL means one
driver, whatever else is installed.
"""

from __future__ import annotations

from nebis.errors import ConfigError
from nebis.ports.store import AsyncSessions, BlockingSessions
from nebis.stores.sql.postgres.access import Route
from nebis.stores.sql.postgres.async_connections import OwnAsyncConnections
from nebis.stores.sql.postgres.async_sessions import AsyncSqlSessions
from nebis.stores.sql.postgres.asyncpg_driver import Asyncpg, BorrowedAsyncpgPool
from nebis.stores.sql.postgres.asyncpg_ear import AsyncpgEar
from nebis.stores.sql.postgres.asyncpg_pipeline import AsyncpgPipeline
from nebis.stores.sql.postgres.listener import Ear
from nebis.stores.sql.postgres.pipelines import Pipelines
from nebis.stores.sql.postgres.private_loop import SessionsOnPrivateLoop


class AsyncpgAccess:
    """asyncpg on one route."""

    def __init__(self, route: Route) -> None:
        self._route = route

    def blocking_sessions(self) -> BlockingSessions:
        """Refuse: asyncpg has no blocking half."""
        raise ConfigError(["asyncpg cannot serve blocking code; use a postgresql:// URL and install 'nebis[postgres]'"])

    def async_sessions(self) -> AsyncSessions:
        """Return sessions for an event loop."""
        route = self._route
        if route.pool is None:
            return self._own_sessions(route.settings.max_connections)
        return AsyncSqlSessions(self._driver(), BorrowedAsyncpgPool(route.pool, route.settings), route.settings)

    def direct_sessions(self) -> BlockingSessions:
        """Return sessions with a single direct connection."""
        return SessionsOnPrivateLoop(lambda: self._own_sessions(1))

    def ear(self) -> Ear:
        """Return a connection that listens."""
        return AsyncpgEar(self._driver())

    def _own_sessions(self, size: int) -> AsyncSessions:
        route, driver = self._route, self._driver()
        own = OwnAsyncConnections(driver, route.primary, route.settings, size=size, is_pinned=route.is_pinned)
        # A pipeline keeps one connection to itself; there must be others for whatever cannot go over it.
        pipelines = Pipelines(own, AsyncpgPipeline) if route.is_pinned and size > 1 else None
        return AsyncSqlSessions(driver, own, route.settings, pipelines=pipelines)

    def _driver(self) -> Asyncpg:
        return Asyncpg(self._route.location, self._route.settings, connect=self._route.connect)
