"""The pytest plugin that comes with the package: fixtures to repeat, race and crash operations of your own.

Loaded in every run of pytest where Nebis is installed: it adds names and nothing else, and imports what is behind them
when a test asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def nebis_duplicate() -> Callable[..., Any]:
    """Call an operation several times with one key: `nebis_duplicate(pay, tenant=..., command=..., times=3)`."""
    from nebis.testing.repetition import duplicate  # noqa: PLC0415 - only where it is used.

    return duplicate


@pytest.fixture
def nebis_race() -> Callable[..., Any]:
    """Call an operation many times at once with one key: `nebis_race(pay, tenant=..., command=..., count=8)`."""
    from nebis.testing.repetition import race  # noqa: PLC0415 - only where it is used.

    return race


@pytest.fixture
def nebis_crash_points() -> Callable[..., Any]:
    """Die before and after everything that an operation asks for, and retry: `nebis_crash_points(pay, ...)`."""
    from nebis.testing.repetition import crash_points  # noqa: PLC0415 - only where it is used.

    return crash_points
