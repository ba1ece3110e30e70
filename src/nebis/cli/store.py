"""The store that a command works on, from `--store` or NEBIS_STORE. Nothing here ever prints a password."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from nebis.errors import ConfigError
from nebis.ports.store import BlockingSessions, Store
from nebis.stores import open_async
from nebis.stores.sql.dialect import Dialect, postgres_dialect, sqlite_dialect
from nebis.stores.sql.migrations import Survey, survey
from nebis.stores.sql.postgres.location import SCHEMES, UNREADABLE, Location
from nebis.stores.sql.sqlite.location import check_location, path_of

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="NEBIS_STORE",
        metavar="URL",
        show_default=False,
        help="The store: postgresql://role@host/database or sqlite:///file.db. "
        "A password is safer in the variable, where other users of the machine do not see it.",
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", metavar="NAME", show_default=False, help="PostgreSQL: the schema that the tables are in."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

# Anything else may be a piece of a password that was not percent-encoded.
_PLACE = re.compile(r"(\[[\da-fA-F:.]+\]|[\w.%-]*)(:\d+)?(,(\[[\da-fA-F:.]+\]|[\w.%-]*)(:\d+)?)*")
_PAGE_FORMAT = slice(18, 19)
"""The byte of a SQLite file that says whether it has a rollback journal (1) or a write-ahead log (2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a store is, read from its URL but not opened."""

    url: str = field(repr=False)
    shown: str
    """The URL without anything secret."""
    dialect: Dialect | None = None
    """Absent where there is no schema."""
    path: Path | None = None
    """Of a SQLite file, present or not."""
    options: dict[str, Any] = field(default_factory=dict)


def locate(url: str | None, schema: str | None = None) -> Place:
    """Read a URL; raise `ConfigError` if it names no store."""
    if not url:
        raise ConfigError(["no store was named; pass --store URL or set NEBIS_STORE"])
    scheme = url.partition("://")[0]
    if scheme in SCHEMES:
        location = Location.parse(url)
        if not _PLACE.fullmatch(location.place) and location.place != "the local socket":
            raise ConfigError([UNREADABLE])
        role = f"{location.role}@" if location.role else ""
        host = "" if location.place == "the local socket" else location.place
        return Place(
            url=url,
            shown=f"postgresql://{role}{host}/{location.database}",
            dialect=postgres_dialect(schema),
            options={"schema": schema},
        )
    if schema is not None:
        raise ConfigError(["--schema is for PostgreSQL; leave it out"])
    if scheme == "sqlite":
        path = path_of(url)
        return Place(url=url, shown=f"sqlite:///{path}", dialect=sqlite_dialect(), path=path)
    if scheme == "memory":
        return Place(url=url, shown="memory://")
    raise ConfigError([f"no store knows such URLs; begin with sqlite:/// or {SCHEMES[0]}://"])


@contextmanager
def opened(place: Place) -> Iterator[tuple[Store, BlockingSessions]]:
    """Open the store with a connection of its own; a SQLite file keeps the way of journalling that it has."""
    options = dict(place.options)
    if place.path is not None:
        options["journal"] = journal_of(place.path)
    # Through the asyncio twin, whose heartbeat is blocking with every driver, asyncpg included.
    backend = open_async(place.url, **options)
    sessions = backend.beat()
    try:
        yield backend.store, sessions
    finally:
        sessions.close()


@contextmanager
def ready(place: Place) -> Iterator[tuple[Store, BlockingSessions]]:
    """Open a store whose schema this version can work with; looking creates no file.

    Raises `ConfigError` where there is nothing, `SchemaMismatch` where something else is.
    """
    if place.path is not None and not place.path.exists():
        check_location(place.path)
        raise ConfigError([f"{place.path} is not there; name the file that the application uses"])
    with opened(place) as (store, sessions):
        sessions.run(store.verify())
        yield store, sessions


def journal_of(path: Path) -> str:
    """Return how a file is journalled now, or how a new one will be."""
    if not path.is_file():
        return "wal"
    with path.open("rb") as file:
        return "rollback" if file.read(20)[_PAGE_FORMAT] == b"\1" else "wal"


def surveyed(place: Place) -> Survey:
    """Compare the schema with this version of the code. A SQLite file that is not there is not created by looking."""
    dialect = require_dialect(place)
    if place.path is not None and not place.path.exists():
        check_location(place.path)
        return Survey(applied=(), missing=dialect.migrations, newer=())
    with opened(place) as (_, sessions):
        return sessions.run(survey(dialect))


def require_dialect(place: Place) -> Dialect:
    """Return the dialect; raise `ConfigError` for a store that has no schema."""
    if place.dialect is None:
        raise ConfigError([f"{place.shown} has no schema, so there is nothing to migrate"])
    return place.dialect
