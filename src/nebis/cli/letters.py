"""How parked messages are shown; never their payload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nebis.cli.phrases import instant, key_hint, span, timestamp, visible
from nebis.delivery import ParkReason
from nebis.ports.history import AuditLine
from nebis.ports.inbox import ParkedLetter, Progress

_COLUMNS: Final = ("id", "consumer", "reason", "topic", "offset", "attempts", "age", "state")

_ADVICE: Final = {
    ParkReason.NO_ID: "have its sender name each message, or give the consumer dedup=; then retry",
    ParkReason.ID_MALFORMED: "have its sender use 1 to 255 visible ASCII characters, or give the consumer dedup=",
    ParkReason.DEDUP_FAILED: "correct the consumer's dedup function, then retry",
    ParkReason.NO_OFFSET: "its consumer goes by offsets; hand them in with each delivery, or leave sequence= out",
    ParkReason.HEADERS_BROKEN: "have its sender correct them; only what could be read of them was kept",
    ParkReason.UNDECODABLE: "deploy a handler whose type reads it, then retry; or discard it",
    ParkReason.TOO_LARGE: "raise command_limit_bytes of the consumer, then retry",
    ParkReason.ID_REUSED: "another payload was applied under its id; apply this one by hand, or discard it",
    ParkReason.AFTER_RETENTION: "its id was settled long ago, with another payload or without success; discard it, "
    "or apply it by hand",
    ParkReason.OFFSET_SKIPPED: "later ones of its partition are applied; retry applies it out of order",
    ParkReason.ATTEMPTS_USED_UP: "mend what its handler fails at, then retry",
    ParkReason.REJECTED: "its handler said no for good, and says so again on retry; discard it",
    ParkReason.IN_DOUBT: "resolve its record; it goes on by itself afterwards",
    ParkReason.OUTCOME_UNKNOWN: "nobody could prove what happened; compare with the downstream's books, and discard it",
}
"""What a person can do about it."""


def lines(parked: Sequence[ParkedLetter], now: int) -> list[str]:
    """Return the table, with as much room as each column needs."""
    rows = [tuple(_cells(each, now)[name] for name in _COLUMNS) for each in parked]
    widths = [max(len(row[place]) for row in (_COLUMNS, *rows)) for place in range(len(_COLUMNS))]
    if not rows:
        return []
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (_COLUMNS, *rows)
    ]


def progress_lines(progresses: Sequence[Progress]) -> list[str]:
    """Return how far consumers are, a line each."""
    return [
        f"{visible(each.consumer)} has applied {visible(each.partition)} up to {each.last_offset}{_gaps(each)}"
        for each in progresses
    ]


def portrait(found: ParkedLetter | None, audits: Sequence[AuditLine], now: int, *, suffix: str = "") -> list[str]:
    """Return everything about one message but its payload, and what people did about it."""
    told = [] if found is None else _told(found, now, suffix)
    return [*told, *(_audited(line) for line in audits)]


def as_json(parked: ParkedLetter, now: int, audits: Sequence[AuditLine] | None = None) -> dict[str, object]:
    """Return a parked message for programs."""
    letter = parked.letter
    told: dict[str, object] = {
        "id": str(letter.parked_id),
        "consumer": letter.consumer,
        "reason": parked.reason.value,
        "detail": parked.detail,
        "is_due": parked.is_due,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "message_id_hint": None if letter.message_id is None else key_hint(letter.message_id),
        "content_type": letter.content_type,
        "payload_bytes": letter.payload_bytes,
        "attempts": parked.attempts,
        "operation_id": None if parked.record_id is None else str(parked.record_id),
        "parked_at": timestamp(parked.parked_at),
        "age_seconds": (now - parked.parked_at) / 1_000_000,
    }
    if audits is not None:
        told["headers"] = sorted(name for name, _ in letter.headers)
        told["audit"] = [
            {
                "at": timestamp(line.at),
                "who": line.signed.who,
                "what": line.signed.what,
                "reason": line.signed.reason,
                "answer": line.answer,
            }
            for line in audits
        ]
    return told


def _cells(parked: ParkedLetter, now: int) -> dict[str, str]:
    letter = parked.letter
    offset = "" if letter.offset is None else f"{letter.partition or ''}@{letter.offset}"
    return {
        "id": str(letter.parked_id),
        "consumer": visible(letter.consumer),
        "reason": parked.reason.value,
        "topic": visible(letter.topic),
        "offset": visible(offset),
        "attempts": str(parked.attempts),
        "age": span(now - parked.parked_at),
        "state": "to be sent in again" if parked.is_due else "parked",
    }


def _told(parked: ParkedLetter, now: int, suffix: str) -> list[str]:
    letter = parked.letter
    place = "" if letter.offset is None else f", partition {visible(letter.partition or '')} offset {letter.offset}"
    name = "no id" if letter.message_id is None else f"id {key_hint(letter.message_id)}"
    kept = "" if letter.payload is not None else ", too large to be kept: the broker still has it"
    told = [
        f"message {letter.parked_id} of {visible(letter.consumer)}",
        f"  from      {visible(letter.topic)}{place}, {name}",
        f"  holds     {letter.payload_bytes} bytes of {visible(letter.content_type)}{kept}",
        f"  headers   {', '.join(sorted(visible(header) for header, _ in letter.headers)) or 'none'}",
        f"  parked    {instant(parked.parked_at)}, {span(now - parked.parked_at)} ago",
        f"  because   {parked.reason.value}{f' ({visible(parked.detail)})' if parked.detail else ''}",
        f"  attempts  {parked.attempts}",
    ]
    if parked.record_id is not None:
        told.append(f"  record    nebis show {parked.record_id}{suffix}")
    if parked.is_due:
        told.append("  a worker sends it in again")
    return [*told, f"  next      {_ADVICE[parked.reason]}"]


def _gaps(progress: Progress) -> str:
    if progress.gap is None:
        return ""
    first, last = progress.gap
    skipped = f"{first}" if first == last else f"{first} to {last}"
    gaps = "1 gap" if progress.gaps == 1 else f"{progress.gaps} gaps"
    return f", after {gaps}; the latest skipped {skipped}"


def _audited(line: AuditLine) -> str:
    signed = line.signed
    return f"{instant(line.at)}  {visible(signed.who)}: {signed.what} -> {line.answer} ({visible(signed.reason)})"
