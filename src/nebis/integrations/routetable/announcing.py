"""What an application says about its routes when it starts: once, whichever of its parts gets to speak first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from weakref import WeakSet

from nebis.integrations.report import Report
from nebis.integrations.routetable.application import known_by, report_of

log = logging.getLogger("nebis")

TOLD = "nebis.told"
"""Marks the environ of a request that came through rules which have spoken for all that is inside of them."""

_is_announced: ContextVar[bool] = ContextVar("nebis_is_announced", default=False)
_told: WeakSet[object] = WeakSet()
_remembering = threading.Lock()


def announce(app: object) -> None:
    """Log which routes are protected and how, and warn of those that are not. Never stops an application."""
    if _is_announced.get():
        return
    try:
        if not remember(known_by(app)):
            return
        report = report_of(app)
    except Exception as error:  # noqa: BLE001 - a log line is not worth an application that does not start.
        log.warning("nebis could not list the routes of this application (%s)", type(error).__name__)
    else:
        tell(report)


def announce_inside(app: object, environ: Mapping[str, object]) -> None:
    """Announce an application at a request to it, unless there are rules around it, which know more."""
    if TOLD in environ:
        remember(known_by(app))
    else:
        announce(app)


def is_told(known: object) -> bool:
    """Tell whether an application was announced, by what it is known by: cheap enough for every request."""
    return known in _told


def remember(known: object) -> bool:
    """Remember that an application is announced; False if it was before."""
    # What cannot be remembered weakly has a lifespan, which begins once.
    with _remembering, suppress(TypeError):
        if known in _told:
            return False
        _told.add(known)
    return True


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
