"""The endpoint that issues keys, apart from its framework."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from nebis.catalogue import Catalogue
from nebis.core.secret import Secrets
from nebis.errors import ConfigError, NebisError
from nebis.http.exchange import Exchange
from nebis.http.headers import HeaderPairs
from nebis.http.problem import problem
from nebis.http.tokens import asked_operation, issued_view
from nebis.http.wire import Wire

LIFETIME = timedelta(hours=1)
"""Long enough to fill in a form, short enough that one that leaks is soon worthless."""
SHORTEST = timedelta(seconds=1)
"""Keys carry whole seconds: one of less would be dead on arrival."""


def checked_lifetime(lifetime: timedelta | None) -> timedelta:
    """Give how long issued keys are good for, or refuse a span in which nobody could use one."""
    if lifetime is None:
        return LIFETIME
    if lifetime < SHORTEST:
        raise ConfigError([f"lifetime={lifetime!r} issues keys that nobody can use; give a second or more"])
    return lifetime


def issued(
    nebis: Catalogue[Any],
    secrets: Secrets,
    body: bytes,
    headers: HeaderPairs,
    tenant: object,
    *,
    lifetime: timedelta | None = None,
    wire: Wire | None = None,
) -> Exchange:
    """Issue a key to a tenant, for the operation that the body names; or say what is wrong with the request."""
    span = checked_lifetime(lifetime)
    try:
        operation, owner = asked_operation(body, headers, tenant)
        token, expires_at_seconds = nebis.issue(secrets, operation=operation, tenant=owner, lifetime=span)
    except NebisError as error:
        return refused(error, wire)
    return issued_view(token, expires_at_seconds)


def refused(error: NebisError, wire: Wire | None) -> Exchange:
    """Render an error, or raise it if it is a mistake of the application."""
    rendered = problem(error, wire or Wire())
    if rendered is None:
        raise error
    return rendered
