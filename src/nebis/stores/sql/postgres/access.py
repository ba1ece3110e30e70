"""What a backend needs of a driver, and which driver it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from nebis.ports.store import AsyncSessions, BlockingSessions
from nebis.stores.sql.postgres.listener import Ear
from nebis.stores.sql.postgres.location import Location
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.startup import Primary


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How to get to one database."""

    location: Location
    settings: Settings
    pool: Any = None
    """A pool of the application, or None: then connections are our own."""
    connect: Callable[[], Any] | None = None
    """Opens a direct connection where the application does not want to give a URL."""
    primary: Primary = field(default_factory=Primary)

    @property
    def is_pinned(self) -> bool:
        """Whether direct connections hold our settings from the start."""
        return self.connect is None and not self.settings.pooler


class Access(Protocol):
    """One driver on one route."""

    def blocking_sessions(self) -> BlockingSessions:
        """Return sessions for threads, or raise `ConfigError` if this driver or pool has none."""
        ...

    def async_sessions(self) -> AsyncSessions:
        """Return sessions for an event loop, or raise `ConfigError` if this pool has none."""
        ...

    def direct_sessions(self) -> BlockingSessions:
        """Return sessions with a single direct connection, for whoever must not queue (F095)."""
        ...

    def ear(self) -> Ear:
        """Return a connection that listens."""
        ...
