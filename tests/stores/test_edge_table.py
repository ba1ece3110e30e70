"""Every edge and every refusal of the state machine is reached on every store; the table says how often."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nebis.testing.conformance.differential import TOURS
from nebis.testing.conformance.table import hit_table, unreached
from nebis.testing.conformance.tour import covering, tour
from nebis.testing.conformance.twin import Hit, Twin
from tests.stores.conftest import STORES, make_harness

TABLE = Path(__file__).parents[2] / "build" / "edges.md"


def hits_on(name: str, request: pytest.FixtureRequest) -> Counter[Hit]:
    harness = make_harness(name, request)
    try:
        twin = Twin(harness.fresh())
        tour(twin, covering(TOURS))
        twin.connection.close()
        return twin.hits
    finally:
        harness.close()


def test_every_edge_and_refusal_is_reached_on_every_store(request: pytest.FixtureRequest) -> None:
    hits = {name: hits_on(name, request) for name in STORES}

    table = hit_table(hits)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table)
    print(table)  # noqa: T201 - shown by `pytest -s`, and whenever this fails.
    assert not unreached(hits)


def test_a_store_that_misses_an_edge_is_named() -> None:
    assert ("forgetful", Hit("Claim", "claim: new")) in unreached({"forgetful": Counter()})
