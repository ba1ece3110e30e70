"""The status of an operation, for the client that was told to come back or lost its answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from nebis.core.envelope import unseal
from nebis.core.record import Record, RecordId, State
from nebis.errors import OperationUnknown, RecordCorrupt
from nebis.http.exchange import Exchange, thaw

_RETRY_AFTER_SECONDS = {State.IN_PROGRESS: 2, State.IN_DOUBT: 60}
_NOBODY = RecordId(UUID(int=0))
_LARGEST_ANSWER_BYTES = 64 * 1024 * 1024


def operation_id_of(text: str) -> RecordId:
    """Read an operation id; what is none becomes the id of nothing, so that both are looked up alike (SEC07)."""
    try:
        return RecordId(UUID(text))
    except ValueError:
        return _NOBODY


def status_view(record: Record | None, *, tenant: str) -> Exchange:
    """Render the status of a tenant's own record; anything else is `OperationUnknown`, whatever the reason (I12)."""
    if record is None or record.tenant != tenant:
        raise OperationUnknown
    retry_after = _RETRY_AFTER_SECONDS.get(record.state)
    members = {
        "operation_id": str(record.record_id),
        "operation": record.operation,
        "state": record.state.value,
        "created_at": _moment(record.created_at),
        "completed_at": _moment(record.completed_at),
        "expires_at": _moment(record.expires_at),
        "retry_after": retry_after,
        "outcome": _outcome(record),
    }
    headers = [("content-type", "application/json"), ("cache-control", "no-store")]
    if retry_after is not None:
        headers.append(("retry-after", str(retry_after)))
    return Exchange(status=200, headers=tuple(headers), body=json.dumps(members, separators=(",", ":")).encode())


def _outcome(record: Record) -> dict[str, Any] | None:
    if record.outcome_kind is None:
        return None
    return {"kind": record.outcome_kind.value, "status": _status(record)}


def _status(record: Record) -> int | None:
    """Return the stored status; an outcome that came another way than over HTTP has none."""
    if record.outcome is None:
        return None
    try:
        return thaw(unseal(record.outcome, limit_bytes=_LARGEST_ANSWER_BYTES)).exchange.status
    except RecordCorrupt:
        return None


def _moment(micros: int | None) -> str | None:
    if micros is None:
        return None
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
