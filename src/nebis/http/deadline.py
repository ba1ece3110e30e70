"""Deadlines as clients write them: a moment, or the time that is left."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from nebis.deadline import Deadline
from nebis.errors import DeadlineMalformed
from nebis.http.headers import HeaderPairs, values
from nebis.http.wire import Wire

# Each is anchored, and no two parts of one can match the same characters: none can backtrack (SEC37).
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_EPOCH_SECONDS = re.compile(r"[0-9]{10}(?:\.[0-9]{1,9})?")
_EPOCH_MILLISECONDS = re.compile(r"[0-9]{13}")
_REMAINING = re.compile(r"([0-9]{1,8}(?:\.[0-9]{1,9})?)(ms|s|H|M|S|m|u|n)?")
# Those of one letter are gRPC's, where m is a millisecond.
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "s": 1.0, "m": 1e-3, "ms": 1e-3, "u": 1e-6, "n": 1e-9}


def deadline_of(headers: HeaderPairs, wire: Wire) -> Deadline | None:
    """Return until when the client waits; the earlier one if it says it twice, in either way.

    Raises `DeadlineMalformed` for what cannot be read: who cannot be understood may wait no longer.
    """
    if wire.deadline_header is None and wire.timeout_header is None:
        return None
    found = [_moment(text, wire.deadline_header) for text in _sent(headers, wire.deadline_header)]
    found += [_remaining(text, wire.timeout_header) for text in _sent(headers, wire.timeout_header)]
    return min(found, default=None)


def _sent(headers: HeaderPairs, name: str | None) -> list[str]:
    return [] if name is None else values(headers, name)


def _moment(text: str, header: str | None) -> Deadline:
    assert header is not None
    try:
        if _HTTP_DATE.fullmatch(text):
            return Deadline.at(parsedate_to_datetime(text))
        if _RFC_3339.fullmatch(text):
            return Deadline.at(datetime.fromisoformat(text.upper()))
        if _EPOCH_SECONDS.fullmatch(text):
            return Deadline.at(datetime.fromtimestamp(float(text), UTC))
        if _EPOCH_MILLISECONDS.fullmatch(text):
            return Deadline.at(datetime.fromtimestamp(int(text) / 1000, UTC))
    except (ValueError, OverflowError):
        pass  # The thirtieth of February has the right form.
    raise DeadlineMalformed(header)


def _remaining(text: str, header: str | None) -> Deadline:
    assert header is not None
    found = _REMAINING.fullmatch(text)
    if found is None:
        raise DeadlineMalformed(header)
    return Deadline.after(timedelta(seconds=float(found[1]) * _UNITS[found[2] or "s"]))
