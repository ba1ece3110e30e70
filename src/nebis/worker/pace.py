"""How often a worker looks, and how it says what it did."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from nebis.recovery import Report

log = logging.getLogger("nebis.worker")

INTERVAL = timedelta(seconds=5)
"""Between two passes: soon enough that nobody waits for it on top of a lease, and one small query when all is well."""

Told = Callable[[Report], None]


def tell(report: Report) -> None:
    """Log a pass that did something, or found what it cannot do."""
    if not report.is_idle:
        log.info("%s", report)


def complain(error: Exception) -> None:
    """Log a pass that did not come to its end."""
    log.warning("a pass did not finish (%s: %s); trying again", type(error).__name__, error)
