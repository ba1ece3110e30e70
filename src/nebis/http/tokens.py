"""Tokens over HTTP: what a client asks for before a request whose key must be one of ours."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final

from nebis.errors import BodyRefused, TenantMissing
from nebis.http.body import json_of
from nebis.http.exchange import Exchange
from nebis.http.headers import HeaderPairs, require_once

LARGEST_ASK_BYTES: Final = 4 * 1024


def asked_operation(body: bytes, headers: HeaderPairs, tenant: object) -> tuple[str, str]:
    """Return for which operation and whom a token is asked; raise a `RequestError`."""
    require_once(headers)
    if not isinstance(tenant, str) or not tenant:
        raise TenantMissing
    tree = json_of(body, headers, limit_bytes=LARGEST_ASK_BYTES)
    operation = tree.get("operation") if isinstance(tree, dict) else None
    if not isinstance(operation, str):
        raise BodyRefused('it is JSON like {"operation": "create_payment"}')
    return operation, tenant


def issued_view(token: str, expires_at_seconds: int) -> Exchange:
    """Render a token for the one client that asked for it."""
    moment = datetime.fromtimestamp(expires_at_seconds, UTC).isoformat().replace("+00:00", "Z")
    return Exchange(
        status=201,
        headers=(("content-type", "application/json"), ("cache-control", "no-store")),
        body=json.dumps({"token": token, "expires_at": moment}, separators=(",", ":")).encode(),
    )
