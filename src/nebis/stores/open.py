"""Picks a store by the scheme of its URL, or by the kind of pool that is handed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from inspect import signature
from typing import Any, assert_never

from nebis.errors import ConfigError
from nebis.ports.store import AsyncBackend, BlockingBackend
from nebis.stores import memory
from nebis.stores.sql.postgres import backend as postgres
from nebis.stores.sql.postgres.location import SCHEMES as POSTGRES_SCHEMES
from nebis.stores.sql.sqlite import backend as sqlite


class Kind(Enum):
    """One of the stores that Nebis brings."""

    MEMORY = auto()
    SQLITE = auto()
    POSTGRES = auto()


_KINDS = {"memory": Kind.MEMORY, "sqlite": Kind.SQLITE, **dict.fromkeys(POSTGRES_SCHEMES, Kind.POSTGRES)}


def open_blocking(location: object, **options: Any) -> BlockingBackend:
    """Open a store for blocking code: `memory://`, `sqlite:///file`, `postgresql://...`, or a psycopg pool.

    Raises `ConfigError` with one line for each thing to correct, and `StoreUnavailable` if a server is not there now.
    """
    kind = _kind(location)
    match kind:
        case Kind.MEMORY:
            _require_known(options, memory.open_blocking, but="store")
            return memory.open_blocking()
        case Kind.SQLITE:
            _require_known(options, sqlite.open_blocking, but="url")
            return sqlite.open_blocking(str(location), **options)
        case Kind.POSTGRES:
            return postgres.open_blocking(location, **options)
        case _:
            assert_never(kind)


def open_async(location: object, **options: Any) -> AsyncBackend:
    """Open a store for asyncio code: as `open_blocking`, and also `postgresql+asyncpg://...` or an asyncpg pool."""
    kind = _kind(location)
    match kind:
        case Kind.MEMORY:
            _require_known(options, memory.open_async, but="store")
            return memory.open_async()
        case Kind.SQLITE:
            _require_known(options, sqlite.open_async, but="url")
            return sqlite.open_async(str(location), **options)
        case Kind.POSTGRES:
            return postgres.open_async(location, **options)
        case _:
            assert_never(kind)


def _kind(location: object) -> Kind:
    if not isinstance(location, str):
        return Kind.POSTGRES
    # The rest of a URL may hold a password, so no message repeats more than its scheme.
    scheme, separator, _ = location.partition("://")
    known = ", ".join(f"{name}://" for name in _KINDS)
    if not separator:
        raise ConfigError([f"the location of a store must be a URL that begins with one of {known}"])
    if scheme not in _KINDS:
        raise ConfigError([f"no store knows URLs that begin with {scheme[:40]}://; use one of {known}"])
    return _KINDS[scheme]


def _require_known(options: Mapping[str, Any], function: Callable[..., object], *, but: str) -> None:
    known = sorted(signature(function).parameters.keys() - {but})
    unknown = [name for name in options if name not in known]
    if unknown:
        advice = f"use one of {', '.join(known)}" if known else "leave it out"
        raise ConfigError([f"{name!r} is not an option of this kind of store; {advice}" for name in unknown])
