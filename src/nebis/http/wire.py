"""How an API speaks: what its headers are called, and where its problems and operations are explained."""

from __future__ import annotations

from dataclasses import dataclass

from nebis.http.headers import is_name, is_value

_REUSED_STATUSES = (400, 409, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The names and addresses that all routes of an API share."""

    key_header: str = "Idempotency-Key"
    # The name in the IETF draft; some older APIs have published X-Idempotency-Key.
    replayed_header: str = "Idempotency-Replayed"
    # A debugging aid: clients should not need to know.
    expires_header: str | None = None
    # "Idempotency-Expires" tells on each replay until when the answer is kept; off, as few clients can use it.
    deadline_header: str | None = None
    # "Request-Deadline" says until when the client waits, as an HTTP date, as RFC 3339 or in seconds since 1970. No
    # name is standard, and both clocks have to agree.
    timeout_header: str | None = None
    # "Request-Timeout" or "grpc-timeout" says for how long from now: "1.5", "1500ms", "1500m" (gRPC's milliseconds).
    problem_base: str = "urn:nebis:problem:"
    # The type of a problem is this and its code. Put the address of your own documentation here.
    status_path: str | None = None
    # The path below which operations can be looked up, such as "/operations/"; 202 and 409 answers then name it.
    key_reused_status: int = 422
    # What the IETF draft asks for; some published APIs answer 400 or 409.

    def faults(self) -> list[str]:
        """Return every reason why an API cannot speak like this, each with what to change."""
        named = (
            self.key_header,
            self.replayed_header,
            self.expires_header,
            self.deadline_header,
            self.timeout_header,
        )
        found = [f"{name!r} is no name for a header; use letters and dashes" for name in named if not _is_header(name)]
        if self.key_reused_status not in _REUSED_STATUSES:
            found.append(f"key_reused_status is 422, 409 or 400, not {self.key_reused_status}; choose one of them")
        if not is_value(self.problem_base):
            found.append("problem_base is no address; give one that the code of a problem can be added to")
        if self.status_path is not None and not (is_value(self.status_path) and self.status_path.endswith("/")):
            found.append("status_path must end with a slash, such as '/operations/'; the id is added to it")
        return found

    def location(self, operation_id: str) -> str | None:
        """Return where an operation can be looked up, if anywhere."""
        return None if self.status_path is None else self.status_path + operation_id


def _is_header(name: str | None) -> bool:
    return name is None or is_name(name)
