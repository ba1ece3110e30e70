"""Deadlines: until when anybody waits for a request. They only stop things from beginning; no safety rests on them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from nebis.errors import MisuseError


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A moment on this process's own clock, which only grows; another process is told the time that is left."""

    at_seconds: float

    @classmethod
    def after(cls, span: timedelta) -> Deadline:
        """Return the deadline that is so far away from now."""
        return cls(time.monotonic() + span.total_seconds())

    @classmethod
    def at(cls, moment: datetime) -> Deadline:
        """Return the deadline at a moment of the wall clock, as this host has it now."""
        if moment.tzinfo is None:
            raise MisuseError("A deadline is a moment with a time zone, such as datetime.now(UTC); this one has none.")
        return cls(time.monotonic() + moment.timestamp() - time.time())

    @property
    def left(self) -> timedelta:
        """Return how much time is left; nothing if it has passed."""
        return timedelta(seconds=max(0.0, self.at_seconds - time.monotonic()))

    @property
    def has_passed(self) -> bool:
        """Tell whether nobody waits any more."""
        return time.monotonic() >= self.at_seconds
