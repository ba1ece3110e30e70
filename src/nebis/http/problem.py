"""What every error looks like over HTTP: one table, rendered as RFC 9457 problems."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

from nebis.errors import (
    BodyRefused,
    BodyTooLarge,
    ClaimLost,
    DeadlineMalformed,
    DeadlinePassed,
    EffectTimedOut,
    HeaderRepeated,
    InDoubt,
    InFlight,
    KeyExpired,
    KeyMalformed,
    KeyMissing,
    KeyRepeated,
    KeyReused,
    NaturalKeyReused,
    NebisError,
    NotConfirmed,
    NotYet,
    OperationUnknown,
    OriginalUnsettled,
    OutcomeUnknown,
    Overloaded,
    PreconditionFailed,
    PreconditionMalformed,
    PreconditionRequired,
    RecordCorrupt,
    Rejected,
    ResourceGone,
    ResultUnstorable,
    Retryable,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    TenantMissing,
    TokenExpired,
    TokenInvalid,
    TooFast,
)
from nebis.http.exchange import Exchange
from nebis.http.wire import Wire

PROBLEM_TYPE: Final = "application/problem+json"
RETRY_SOON_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    status: int
    title: str
    detail: str | None = None
    """What is told in place of the error's own words, which may name hosts, tables or somebody's data."""


_TRY_AGAIN = "Nothing was run. Send the same request with the same key again."
_ASK_AGAIN = "The request may have been carried out. Ask again with the same key, never with a new one."
_LOOK = "Nothing was run again. Tell the operator of this service, with the operation id if there is one."

ANSWERS: Final[Mapping[type[NebisError], Row]] = {
    KeyMissing: Row(400, "Idempotency key missing"),
    KeyMalformed: Row(400, "Idempotency key malformed"),
    KeyRepeated: Row(400, "Idempotency key sent more than once"),
    HeaderRepeated: Row(400, "Header sent more than once"),
    BodyRefused: Row(400, "Request body refused"),
    TokenInvalid: Row(400, "Token invalid"),
    DeadlineMalformed: Row(400, "Deadline malformed"),
    PreconditionMalformed: Row(400, "Precondition malformed"),
    TenantMissing: Row(401, "Not authenticated"),
    OperationUnknown: Row(404, "No such operation"),
    InFlight: Row(409, "Request in flight"),
    InDoubt: Row(
        409,
        "Outcome unknown",
        "It is not known yet whether the request was carried out. Ask again with the same key, never with a new one.",
    ),
    OriginalUnsettled: Row(
        409,
        "Original request not finished",
        "Nothing was run. The request that this one repeats has no answer yet; send this one again, unchanged.",
    ),
    KeyExpired: Row(410, "Idempotency key expired"),
    TokenExpired: Row(410, "Token expired"),
    ResourceGone: Row(410, "Resource gone"),
    PreconditionFailed: Row(412, "Precondition failed"),
    BodyTooLarge: Row(413, "Request body too large"),
    KeyReused: Row(422, "Idempotency key reused"),
    NaturalKeyReused: Row(422, "Reference used before"),
    Rejected: Row(422, "Rejected"),
    PreconditionRequired: Row(428, "Precondition required"),
    TooFast: Row(429, "Too many requests"),
    OutcomeUnknown: Row(500, "Outcome unknown for good"),
    ResultUnstorable: Row(
        500,
        "Response not storable",
        "The request was carried out, but its answer could not be kept. It never runs again.",
    ),
    RecordCorrupt: Row(500, "Record corrupt", _LOOK),
    SchemaMismatch: Row(500, "Store not usable", _LOOK),
    StoreError: Row(500, "Store not usable", _LOOK),
    StoreUnavailable: Row(503, "Store unavailable", _TRY_AGAIN),
    NotConfirmed: Row(503, "Not confirmed", _ASK_AGAIN),
    EffectTimedOut: Row(503, "No answer in time", _ASK_AGAIN),
    Overloaded: Row(503, "Overloaded", _TRY_AGAIN),
    NotYet: Row(503, "Not yet", _TRY_AGAIN),
    DeadlinePassed: Row(504, "Deadline passed"),
    Retryable: Row(503, "Try again", _TRY_AGAIN),
    ClaimLost: Row(503, "Not confirmed", "Another attempt took over. Ask again with the same key."),
}


def row_of(error: NebisError) -> Row | None:
    """Return the line of an error, or of its nearest ancestor; None for mistakes of the application itself."""
    return next((ANSWERS[kind] for kind in type(error).__mro__ if kind in ANSWERS), None)


def problem(error: NebisError, wire: Wire, *, status: int | None = None) -> Exchange | None:
    """Render an error for the caller, or return None if it is a mistake of the application, to be raised."""
    row = row_of(error)
    if row is None:
        return None
    if status is None:
        status = wire.key_reused_status if isinstance(error, KeyReused) else row.status
    members: dict[str, object] = {
        "type": wire.problem_base + error.code,
        "title": row.title,
        "status": status,
        "detail": row.detail or str(error),
    }
    headers = [("content-type", PROBLEM_TYPE), ("cache-control", "no-store")]
    if isinstance(error, Rejected):
        members["reason"] = str(error.reason)
    operation_id = getattr(error, "operation_id", None)
    if operation_id is not None:
        members["operation_id"] = operation_id
        location = wire.location(operation_id)
        if location is not None:
            headers.append(("location", location))
    seconds = _retry_after_seconds(error)
    if seconds is not None:
        members["retry_after"] = seconds
        headers.append(("retry-after", str(seconds)))
    return Exchange(status=status, headers=tuple(headers), body=_json(members))


def accepted(error: InFlight, wire: Wire) -> Exchange:
    """Render a running operation as accepted: its caller comes back to the status, not with the request."""
    seconds = whole_seconds(error.retry_after_seconds)
    headers = [("content-type", "application/json"), ("cache-control", "no-store"), ("retry-after", str(seconds))]
    location = None if error.operation_id is None else wire.location(error.operation_id)
    if location is not None:
        headers.append(("location", location))
    members = {"operation_id": error.operation_id, "state": "in_progress", "retry_after": seconds}
    return Exchange(status=202, headers=tuple(headers), body=_json(members))


def whole_seconds(seconds: float) -> int:
    """Round a pause up to what Retry-After can say."""
    return max(1, ceil(seconds))


def _retry_after_seconds(error: NebisError) -> int | None:
    if isinstance(error, NotYet | InDoubt | TooFast):
        return whole_seconds(error.retry_after_seconds)
    return whole_seconds(RETRY_SOON_SECONDS) if isinstance(error, Retryable | ClaimLost) else None


def _json(members: Mapping[str, object]) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode()
