"""Idempotent HTTP, apart from any framework: keys, bodies, stored exchanges, problems and the choices of a route.

Nothing here does I/O. Integrations translate between these values and their framework.
"""

from nebis.http.conditional import IfMatch, require_match, strong_etag
from nebis.http.exchange import Exchange
from nebis.http.options import (
    Accept,
    BodyKey,
    BusinessKey,
    OptionalKey,
    ProxyHeader,
    Public,
    Reconstruct,
    Reference,
    RequiredKey,
    public,
)
from nebis.http.wire import Wire

__all__ = [
    "Accept",
    "BodyKey",
    "BusinessKey",
    "Exchange",
    "IfMatch",
    "OptionalKey",
    "ProxyHeader",
    "Public",
    "Reconstruct",
    "Reference",
    "RequiredKey",
    "Wire",
    "public",
    "require_match",
    "strong_etag",
]
