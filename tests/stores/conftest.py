"""Every store that ships, as the conformance suite sees it."""

from collections.abc import Iterator

import pytest

from nebis.testing.conformance import Harness
from nebis.testing.conformance.plugin import stage, store, twin
from tests.stores.harnesses import MemoryHarness

__all__ = ["stage", "store", "twin"]


@pytest.fixture(scope="session", params=["memory"])
def harness() -> Iterator[Harness]:
    made = MemoryHarness()
    yield made
    made.close()
