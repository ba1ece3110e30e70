"""What a protected route adds to an OpenAPI document: its header, and the problems that it may answer with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nebis.http.options import BodyKey, BusinessKey, RequiredKey
from nebis.http.problem import PROBLEM_TYPE
from nebis.integrations.protection import Admission

PROBLEMS: Mapping[int, str] = {
    400: "The idempotency key is missing or malformed, or the body is ambiguous.",
    409: "The first request with this key is still running, or its outcome is not known yet.",
    410: "The answer for this key is no longer kept.",
    413: "The body is too large.",
    422: "The key was used before with a different request.",
    503: "Nothing was run, or it is not known yet; send the same request again.",
}

PROBLEM_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "operation_id": {"type": "string"},
        "retry_after": {"type": "integer"},
    },
}


def parameter(admission: Admission) -> dict[str, Any] | None:
    """Describe the header that carries the key, where one does."""
    if isinstance(admission.key, BodyKey) or (isinstance(admission.key, BusinessKey) and admission.key.always):
        return None
    return {
        "name": admission.wire.key_header,
        "in": "header",
        "required": isinstance(admission.key, RequiredKey),
        "description": "A key that is new for each request and the same for each retry of it.",
        "schema": {
            "type": "string",
            "minLength": admission.subject.policy.shortest_key,
            "maxLength": 255,
        },
    }


def described(
    admission: Admission, responses: Mapping[Any, Any] | None, extra: Mapping[str, Any] | None
) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Add the problems to a route's documented responses, and the header to its parameters; what is there stays.

    The 422 goes beside the framework's own, which is added only where a route names none itself.
    """
    problem = {PROBLEM_TYPE: {"schema": dict(PROBLEM_SCHEMA)}}
    listed = dict(responses or {})
    for status, text in PROBLEMS.items():
        if status != 422 and status not in listed and str(status) not in listed:
            listed[status] = {"description": text, "content": problem}
    merged = dict(extra or {})
    header = parameter(admission)
    if header is not None:
        merged["parameters"] = [*merged.get("parameters", ()), header]
    own = dict(merged.get("responses", {}))
    own.setdefault("422", {"description": PROBLEMS[422], "content": problem})
    merged["responses"] = own
    return listed, merged
