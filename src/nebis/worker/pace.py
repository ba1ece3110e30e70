"""How often a worker looks, and how it says what it did."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from nebis.ports.store import StoreFailure
from nebis.recovery import Report

log = logging.getLogger("nebis.worker")

INTERVAL = timedelta(seconds=5)
"""Between two passes: soon enough that nobody waits for it on top of a lease, and one small query when all is well."""

SIGN_SECONDS = 60.0
"""Between two signs of life, by which `nebis doctor` sees a worker: often enough for people, and next to no writes."""

Told = Callable[[Report], None]


class SignOfLife:
    """When this worker said last that it is alive."""

    def __init__(self) -> None:
        self._due = 0.0

    def is_due(self) -> bool:
        """Tell whether it is time to say so again, and count that as said."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + SIGN_SECONDS
        return True


def tell(report: Report) -> None:
    """Log a pass that did something, or found what it cannot do."""
    if not report.is_idle:
        log.info("%s", report)


def complain(error: Exception) -> None:
    """Log a pass that did not come to its end."""
    log.warning("a pass did not finish (%s: %s); trying again", type(error).__name__, error)


def unseen(failure: StoreFailure) -> None:
    """Log a sign of life that was not written: nobody but `nebis doctor` misses it."""
    log.info("the sign of life was not written (%s)", failure.detail)
