"""How records are spoken of: words for states, short spans, plain instants, and nothing that a terminal would obey."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import typer

from nebis.core.record import Record, State

STATE_WORDS: Final = {
    State.IN_PROGRESS: "in progress",
    State.AVAILABLE: "available",
    State.IN_DOUBT: "in doubt",
    State.COMPLETED: "completed",
    State.EXPIRED: "expired",
}
STATE_STYLES: Final = {
    State.IN_PROGRESS: "cyan",
    State.AVAILABLE: "blue",
    State.IN_DOUBT: "bold red",
    State.COMPLETED: "green",
    State.EXPIRED: "dim",
}

_SECOND_US: Final = 1_000_000
_UNITS_US: Final = {"s": _SECOND_US, "m": 60 * _SECOND_US, "h": 3600 * _SECOND_US, "d": 86_400 * _SECOND_US}
_SPAN: Final = re.compile(r"(\d{1,9})\s*([smhd])")
_HINT_LENGTH: Final = 4
_LONGEST_TEXT: Final = 200


def visible(text: str, *, longest: int = _LONGEST_TEXT) -> str:
    """Return text from a row as it may be shown: no control character reaches a terminal or breaks a line (SEC24)."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut)


def key_hint(key: str) -> str:
    """Return enough of a key to recognise it, and too little to use it (SEC24)."""
    shown = key[: min(_HINT_LENGTH, len(key) // 3)]
    return f"{visible(shown)}… ({len(key)})"


def state_of(text: str) -> State:
    """Read a state as people write it, or raise a usage error."""
    try:
        return State(text.strip().lower().replace(" ", "_").replace("-", "_"))
    except ValueError:
        known = ", ".join(state.value.replace("_", "-") for state in State)
        raise typer.BadParameter(f"there is no state {visible(text, longest=40)!r}; use one of {known}") from None


def span_us(text: str) -> int:
    """Read a span such as 90s, 5m, 1h or 2d, or raise a usage error."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{visible(text, longest=40)!r} is no span; write 90s, 5m, 1h or 2d")
    return int(found[1]) * _UNITS_US[found[2]]


def span(us: int) -> str:
    """Return a span in its two largest units."""
    seconds = max(us, 0) // _SECOND_US
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h {seconds % 3600 // 60:02}m"
    return f"{seconds // 86_400}d {seconds % 86_400 // 3600:02}h"


def instant(us: int) -> str:
    """Return an instant of the store's clock, in UTC."""
    return f"{datetime.fromtimestamp(us // _SECOND_US, UTC):%Y-%m-%d %H:%M:%S}Z"


def timestamp(us: int | None) -> str | None:
    """Return an instant for programs."""
    return None if us is None else datetime.fromtimestamp(us / _SECOND_US, UTC).isoformat()


def lease(record: Record, now: int) -> str:
    """Say how long an owner still has, or for how long nobody had the record."""
    if record.state is not State.IN_PROGRESS:
        return ""
    if record.has_lapsed(now):
        return f"lapsed {span(now - record.lease_until)}"
    return f"{span(record.lease_until - now)} left"


def resource_name(record: Record) -> str:
    """Name what the operation works on."""
    return "" if record.resource is None else visible(f"{record.resource.type}/{record.resource.id}")


def summary(record: Record, now: int) -> dict[str, object]:
    """Return a record for programs: no body, no command, and of the key only a hint."""
    return {
        "id": str(record.record_id),
        "state": record.state.value,
        "operation": record.operation,
        "tenant": record.tenant,
        "key_hint": key_hint(record.key),
        "effects": record.mode.value,
        "created_at": timestamp(record.created_at),
        "age_seconds": (now - record.created_at) / _SECOND_US,
        "lease_left_seconds": (record.lease_until - now) / _SECOND_US if record.state is State.IN_PROGRESS else None,
        "attempts": record.attempts,
        "recoveries": record.recoveries,
        "fence": record.fence,
        "doubt_reason": record.doubt_reason,
        "doubt_since": timestamp(record.doubt_since),
        "outcome_kind": record.outcome_kind,
        "resource": None if record.resource is None else {"type": record.resource.type, "id": record.resource.id},
    }
