"""The query of a request, as it counts."""

from __future__ import annotations

from urllib.parse import parse_qsl


def query_pairs(raw: str) -> list[tuple[str, str]]:
    """Read a query, given as Latin-1, in its order; byte for byte, as two that are no UTF-8 are not the same."""
    # No query is what most requests have, and the parser would look at it for long before it finds nothing.
    return parse_qsl(raw, keep_blank_values=True, encoding="latin-1") if raw else []
