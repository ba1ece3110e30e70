"""Why a server could not be reached, in one line that says what to do and repeats no secret."""

from __future__ import annotations

from nebis.stores.sql.postgres.failures import Unreachable
from nebis.stores.sql.postgres.location import UNREADABLE, Location

# libpq gives no SQLSTATE for a refused login, so the server's words must do; in another language the last resort of
# `explain` quotes them.
_WORDS_BY_STATE = {
    "28P01": ("password authentication failed", "no password supplied"),
    "3D000": ("database ",),
    "28000": ("role ",),
    "53300": ("too many clients", "too many connections", "remaining connection slots"),
    "57P03": ("is starting up", "is shutting down", "not yet accepting", "is in recovery mode"),
}
_UNKNOWN_HOST = ("could not translate host name", "failed to resolve host", "name or service not known")
_NOBODY_THERE = (
    "connection refused",
    "connect call failed",
    "no such file or directory",
    "no route to host",
    "network is unreachable",
)


def explain(location: Location, *, sqlstate: str | None, message: str) -> Unreachable:
    """Turn what a driver said about a failed login into a line for people."""
    match sqlstate or _state_of(message):
        case "28P01":
            return _misconfigured(
                f"PostgreSQL at {location.place} refuses the password of role {location.role!r}; "
                "correct it in the URL, in PGPASSWORD or in the password file"
            )
        case "3D000":
            return _misconfigured(
                f"PostgreSQL at {location.place} has no database {location.database!r}; create it or correct the URL"
            )
        case "28000":
            return _misconfigured(
                f"PostgreSQL at {location.place} does not let role {location.role!r} in; "
                "create the role, or let it in with pg_hba.conf"
            )
        case "53300":
            return Unreachable(
                f"PostgreSQL at {location.place} has no connection left; lower max_connections here or raise it there"
            )
        case "57P03":
            return Unreachable(f"PostgreSQL at {location.place} is starting up or shutting down")
        case _:
            return _explain_network(location, message)


def unreadable() -> Unreachable:
    """Refuse a URL whose own words must not be repeated: the part that is wrong may be the password."""
    return _misconfigured(UNREADABLE)


def timed_out(location: Location, seconds: float) -> Unreachable:
    """Say that nobody answered."""
    return Unreachable(f"PostgreSQL at {location.place} did not answer within {seconds:g} s")


def unknown_host(location: Location) -> Unreachable:
    """Say that no such host exists."""
    return _misconfigured(f"the host of {location.place!r} is not known; correct it in the URL")


def _explain_network(location: Location, message: str) -> Unreachable:
    lowered = message.lower()
    if any(words in lowered for words in _UNKNOWN_HOST):
        return unknown_host(location)
    if any(words in lowered for words in _NOBODY_THERE):
        return Unreachable(f"nothing listens at {location.place}; start PostgreSQL there or correct the URL")
    return Unreachable(f"PostgreSQL at {location.place} cannot be reached: {_first_line(message)}")


def _state_of(message: str) -> str | None:
    for state, words in _WORDS_BY_STATE.items():
        if any(word in message for word in words):
            return state if state not in {"3D000", "28000"} or "does not exist" in message else None
    return "28000" if "pg_hba.conf" in message else None


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0][:200] if message.strip() else "no reason was given"


def _misconfigured(detail: str) -> Unreachable:
    return Unreachable(detail, is_misconfigured=True)
