"""What a protected route adds to an OpenAPI document: its header, its terms, and the problems that it may answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nebis.http.options import Accept
from nebis.http.problem import PROBLEM_TYPE
from nebis.integrations.protection import Admission
from nebis.integrations.terms import WITH_RETRY_AFTER, Answer, Terms, terms

_RETRY_AFTER: Mapping[str, Any] = {
    "description": "Seconds to wait before the same request is sent again, with the same key.",
    "schema": {"type": "integer", "minimum": 1},
}


def parameter(admission: Admission) -> dict[str, Any] | None:
    """Describe the header that carries the key, where one does."""
    told = terms(admission)
    if told.header is None:
        return None
    return {
        "name": told.header,
        "in": "header",
        "required": told.is_required,
        "description": told.key,
        "schema": {
            "type": "string",
            "minLength": told.shortest_key,
            "maxLength": 255,
            "pattern": "^[\\x21-\\x2b\\x2d-\\x7e]+$",
        },
    }


def description(admission: Admission, own: str | None) -> str:
    """Add the terms to what an operation says about itself."""
    return "\n\n".join([*filter(None, [own]), f"**Idempotency.** {' '.join(terms(admission).sentences)}"])


def responses(admission: Admission) -> dict[str, dict[str, Any]]:
    """Describe every answer that the route may give by itself, as the values of an Operation Object."""
    told = terms(admission)
    found = {str(answer.status): _response(answer, told) for answer in told.answers}
    if isinstance(admission.subject.policy.in_flight, Accept):
        found["202"] = {
            "description": "The first request with this key is still running. Its status is at Location.",
            "headers": {"Retry-After": dict(_RETRY_AFTER), "Location": {"schema": {"type": "string"}}},
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    return found


def replayed(admission: Admission) -> dict[str, Any]:
    """Describe the header that marks an answer which was given before."""
    return {
        admission.wire.replayed_header: {
            "description": "Present if this is the stored answer of an earlier request with the same key.",
            "schema": {"type": "string", "enum": ["true"]},
        }
    }


def merge(operation: dict[str, Any], admission: Admission) -> None:
    """Add all of it to an Operation Object; what is there stays, and is added to."""
    operation["description"] = description(admission, operation.get("description"))
    header = parameter(admission)
    if header is not None:
        operation["parameters"] = [*operation.get("parameters", ()), header]
    known: dict[str, Any] = operation.setdefault("responses", {})
    for status, response in known.items():
        if status.startswith("2"):
            response["headers"] = {**replayed(admission), **response.get("headers", {})}
    for status, response in responses(admission).items():
        if status not in known:
            known[status] = response
        else:
            known[status]["content"] = {**response["content"], **known[status].get("content", {})}


def described(
    admission: Admission, given: Mapping[Any, Any] | None, extra: Mapping[str, Any] | None, *, status: int
) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Add the problems to a route's documented responses, and the header to its parameters; what is there stays.

    The 422 goes beside the framework's own, which is added only where a route names none itself.
    """
    listed = dict(given or {})
    merged = dict(extra or {})
    own: dict[str, Any] = dict(merged.get("responses", {}))
    own[str(status)] = {"headers": replayed(admission), **own.get(str(status), {})}
    for number, response in responses(admission).items():
        if number == "422":
            own.setdefault(number, response)
        elif number not in listed and int(number) not in listed:
            listed[int(number)] = response
    header = parameter(admission)
    if header is not None:
        merged["parameters"] = [*merged.get("parameters", ()), header]
    merged["responses"] = own
    return listed, merged


def _response(answer: Answer, told: Terms) -> dict[str, Any]:
    kinds = ", ".join(f"`{code}`" for code in answer.codes)
    found: dict[str, Any] = {
        "description": f"{answer.meaning} ({kinds})",
        "content": {PROBLEM_TYPE: {"schema": _problem(answer, told)}},
    }
    if answer.status in WITH_RETRY_AFTER:
        found["headers"] = {"Retry-After": dict(_RETRY_AFTER)}
    return found


def _problem(answer: Answer, told: Terms) -> dict[str, Any]:
    return {
        "title": "Problem",
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "enum": [told.problem_base + code for code in answer.codes]},
            "title": {"type": "string"},
            "status": {"type": "integer", "enum": [answer.status]},
            "detail": {"type": "string"},
            "operation_id": {"type": "string"},
            "retry_after": {"type": "integer"},
        },
    }
