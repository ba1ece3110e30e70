"""Tell observers, and let none of them harm a request."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from nebis.ports.observer import Event, Observer

log = logging.getLogger("nebis")


def tell(observers: Sequence[Observer], event: Event) -> None:
    """Call each observer; one that raises is logged and changes nothing."""
    for observer in observers:
        try:
            observer(event)
        except Exception:  # What happened is stored already; an observer cannot undo it.
            log.exception("an observer failed on %s of %s", type(event).__name__, event.operation)
