"""What an application says about its routes when it starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nebis.integrations.report import Report
from nebis.integrations.routetable.application import report_of

log = logging.getLogger("nebis")

_is_announced: ContextVar[bool] = ContextVar("nebis_is_announced", default=False)


def announce(app: object) -> None:
    """Log which routes are protected and how, and warn of those that are not. Never stops an application."""
    if _is_announced.get():
        return
    try:
        report = report_of(app)
    except Exception as error:  # noqa: BLE001 - a log line is not worth an application that does not start.
        log.warning("nebis could not list the routes of this application (%s)", type(error).__name__)
    else:
        tell(report)


@contextmanager
def announced(app: object) -> Iterator[None]:
    """Announce an application, and keep those inside of it from doing so again: they know less."""
    announce(app)
    token = _is_announced.set(True)
    try:
        yield
    finally:
        _is_announced.reset(token)


def tell(report: Report) -> None:
    """Log a report: what is protected in one block, and a warning for each kind of thing to look at."""
    lines = [
        f"  {one.shown}: {what.name}, effects {what.effects.value}, key {what.key}, kept for {what.window}; "
        f"after a crash {what.crash}; resumed by {what.resumer}"
        for one, what in report.protected
    ]
    log.info("%s", "\n".join([f"nebis protects {len(lines)} route{'' if len(lines) == 1 else 's'}", *lines]))
    for fault in report.faults:
        log.warning("%s", fault)
    for warning in report.warnings:
        log.warning("%s", warning)
    if report.unprotected:
        log.warning(
            "not protected, so that a retry runs again what it does: %s. Protect each, or mark it with "
            "@unprotected('why a repeated request does no harm')",
            ", ".join(one.shown for one in report.unprotected),
        )
