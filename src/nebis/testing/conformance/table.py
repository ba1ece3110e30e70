"""The table of edges and refusals by store: how often each was reached, and which were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nebis.testing.conformance.refusals import refusal_hits
from nebis.testing.conformance.tour import explored
from nebis.testing.conformance.twin import Hit


def expected_hits() -> list[Hit]:
    """Return every edge and every refusal that a store must reach."""
    refusals = refusal_hits()
    return sorted(hit for hit in explored() if hit not in refusals) + sorted(refusals)


def unreached(hits: Mapping[str, Counter[Hit]]) -> list[tuple[str, Hit]]:
    """Return each store with each edge or refusal that it never reached."""
    return [(store, hit) for store, counted in hits.items() for hit in expected_hits() if not counted[hit]]


def hit_table(hits: Mapping[str, Counter[Hit]]) -> str:
    """Render hit counts as a Markdown table, one column per store."""
    lines = [f"| verb | edge or refusal | {' | '.join(hits)} |", f"|---|---|{'---:|' * len(hits)}"]
    for hit in expected_hits():
        counts = " | ".join(str(counted[hit]) for counted in hits.values())
        lines.append(f"| {hit.verb} | {hit.result} | {counts} |")
    return "\n".join(lines) + "\n"
