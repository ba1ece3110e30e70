"""The pytest plugin by which a store's author runs the suite, with `-p nebis.testing.conformance.plugin`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest

from nebis.testing.conformance.harness import Connection, Harness

_SUITES = (
    "claim",
    "take_over",
    "renew",
    "intend",
    "checkpoint",
    "complete",
    "suspend",
    "release",
    "withdraw",
    "doubt",
    "turn_back",
    "attach",
    "resolve",
    "ageing",
    "reading",
    "batches",
    "transactions",
    "secrets",
    "people",
    "migrations",
    "concurrency",
    "differential",
)
for _name in (*_SUITES, "stage", "twin"):
    # Without it a failed comparison would only say that it failed.
    if (module := f"nebis.testing.conformance.{_name}") not in sys.modules:
        pytest.register_assert_rewrite(module)

from nebis.testing.conformance.stage import Stage  # noqa: E402 - after the registration that concerns it.
from nebis.testing.conformance.twin import Twin  # noqa: E402 - after the registration that concerns it.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the store under test."""
    parser.addoption(
        "--nebis-store",
        metavar="MODULE:CALLABLE",
        help="what to call for a nebis.testing.conformance.Harness of the store under test",
    )


@pytest.fixture(scope="session")
def harness(pytestconfig: pytest.Config) -> Iterator[Harness]:
    """Make the harness that --nebis-store names."""
    target = pytestconfig.getoption("--nebis-store")
    if not target or ":" not in target:
        raise pytest.UsageError("Name the store under test: --nebis-store=package.module:make_harness")
    module, _, name = target.partition(":")
    made: Harness = getattr(importlib.import_module(module), name)()
    yield made
    made.close()


@pytest.fixture
def store(harness: Harness) -> Iterator[Connection]:
    """Connect to an empty store."""
    connection = harness.fresh()
    yield connection
    connection.close()


@pytest.fixture
def twin(store: Connection) -> Twin:
    """Put an empty store beside the state machine."""
    return Twin(store)


@pytest.fixture
def stage(twin: Twin) -> Stage:
    """Put one key on an empty store, with a clock that the test moves."""
    return Stage(twin)
