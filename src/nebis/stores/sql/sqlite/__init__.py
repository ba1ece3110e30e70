"""The SQLite store: one file, any number of processes on one machine."""

from nebis.stores.sql.sqlite.backend import open_async, open_blocking

__all__ = ["open_async", "open_blocking"]
