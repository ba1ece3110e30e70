"""A rejection as it is stored and told to every caller."""

from __future__ import annotations

import json
from typing import Final

from nebis.core.envelope import seal
from nebis.errors import RecordCorrupt, Rejected, ResultUnstorable

LONGEST_REJECTION: Final = 10_000
"""Characters. A rejection says why in words; documents belong into a result."""


def encode_rejection(error: Exception) -> bytes:
    """Render a rejection, or a result that could not be kept, as it is told to every caller.

    Of an exception that is neither, only the type is kept: what else it carries may be somebody's payload (SEC24).
    """
    undone: tuple[str, ...] = ()
    match error:
        case Rejected():
            reason, detail, undone = str(error.reason), str(error.detail), error.undone
        case ResultUnstorable():
            reason, detail = "unstorable", error.detail
        case _:
            reason, detail = type(error).__name__, ""
    told: dict[str, object] = {"reason": reason[:LONGEST_REJECTION], "detail": detail[:LONGEST_REJECTION]}
    if undone:
        told["undone"] = list(undone)
    return seal(json.dumps(told, separators=(",", ":")).encode())


def decode_rejection(body: bytes) -> Rejected:
    """Read what a stored rejection says, or raise `RecordCorrupt`."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RecordCorrupt("a rejection is not JSON") from error
    if not isinstance(told, dict) or not all(isinstance(told.get(name), str) for name in ("reason", "detail")):
        raise RecordCorrupt("a rejection has another shape than nebis writes")
    undone = told.get("undone", [])
    if not isinstance(undone, list) or not all(isinstance(name, str) for name in undone):
        raise RecordCorrupt("a rejection has another shape than nebis writes")
    return Rejected(told["reason"], detail=told["detail"], undone=tuple(undone))
