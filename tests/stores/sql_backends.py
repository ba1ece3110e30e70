"""Stores in SQL databases, opened as an application opens them."""

from pathlib import Path

from nebis.ports.store import BlockingBackend
from nebis.stores.sql.sqlite import open_blocking


def sqlite_url(folder: Path, name: str = "nebis.db") -> str:
    return f"sqlite:///{folder / name}"


def opened_sqlite(folder: Path, *, busy_seconds: float = 5.0) -> BlockingBackend:
    """Open the file in that folder and bring its schema up to date."""
    backend = open_blocking(sqlite_url(folder), busy_seconds=busy_seconds)
    backend.sessions.run(backend.store.migrate())
    return backend
