"""A PostgreSQL store with access to it: by URL, or through a pool that the application already has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nebis.errors import ConfigError, StoreUnavailable
from nebis.ports.store import AsyncBackend, AsyncSessions, BlockingBackend, BlockingSessions, Capabilities, Listener, Tier
from nebis.stores.sql.dialect import postgres_dialect
from nebis.stores.sql.postgres.failures import Unreachable
from nebis.stores.sql.postgres.listener import Ear, ListeningThread
from nebis.stores.sql.postgres.location import Driver, Location
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.startup import Primary, ServerReport, inspect
from nebis.stores.sql.verbs import SqlStore
