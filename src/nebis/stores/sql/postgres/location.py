"""Where a PostgreSQL server is, and which driver goes there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import SplitResult, unquote, urlsplit

from nebis.errors import ConfigError


class Driver(StrEnum):
    """A library that speaks to PostgreSQL, by the name of the extra that brings it."""

    PSYCOPG = "postgres"
    ASYNCPG = "asyncpg"


_SCHEMES = {
    "postgresql": Driver.PSYCOPG,
    "postgres": Driver.PSYCOPG,
    "postgresql+asyncpg": Driver.ASYNCPG,
}
SCHEMES = tuple(_SCHEMES)
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """One database, as its URL names it."""

    driver: Driver
    url: str = field(repr=False)
    """In the form that both drivers understand. It may hold a password: never print it."""
    role: str
    database: str
    place: str
    """Host and port for messages, without anything secret."""

    @classmethod
    def behind_connect(cls, driver: Driver) -> Location:
        """Stand for the server that only a caller's own `connect=` knows."""
        return cls(driver=driver, url="", role="of connect=", database="of connect=", place="the address of connect=")

    @classmethod
    def parse(cls, url: str, *, driver: Driver | None = None) -> Location:
        """Read a URL; raise `ConfigError`, without repeating it, if it is none of PostgreSQL."""
        scheme, separator, rest = url.partition("://")
        if not separator or scheme not in _SCHEMES:
            raise ConfigError(
                ["the location of PostgreSQL must look like postgresql://role:password@host:5432/database"]
            )
        plain = f"postgresql://{rest}"
        # A password that was not encoded would be taken for a host or a database, and printed as such.
        before_query = rest.partition("?")[0]
        if before_query.count("@") > 1 or "@" in before_query.partition("/")[2] or _STRAY_PERCENT.search(before_query):
            raise ConfigError([UNREADABLE])
        try:
            parts = urlsplit(plain)
        except ValueError:
            raise ConfigError([UNREADABLE]) from None
        return cls(
            driver=driver or _SCHEMES[scheme],
            url=plain,
            role=_role(parts),
            database=unquote(parts.path.removeprefix("/")) or _role(parts),
            place=parts.netloc.rpartition("@")[2] or "the local socket",
        )


UNREADABLE = (
    "the URL of PostgreSQL cannot be read; write postgresql://role:password@host:5432/database and percent-encode "
    "every character of role and password that is neither a letter nor a digit"
)


def _role(parts: SplitResult) -> str:
    userinfo, separator, _ = parts.netloc.rpartition("@")
    return unquote(userinfo.partition(":")[0]) if separator else ""
