"""What a protected route tells its clients: the header, the window, what counts as the same request, every answer.

The IETF draft on the Idempotency-Key header demands that an API publishes these. OpenAPI documents (`openapi.py`) and
the page of an API (`contract.py`) say them in the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from nebis.core.fingerprint import FingerprintRule
from nebis.core.verbs import ExpiredPolicy
from nebis.errors import (
    DeadlineMalformed,
    DeadlinePassed,
    KeyExpired,
    KeyReused,
    NaturalKeyReused,
    NebisError,
    OperationUnknown,
    OriginalUnsettled,
    PreconditionFailed,
    PreconditionMalformed,
    PreconditionRequired,
    Rejected,
    ResourceGone,
    TenantMissing,
    TokenExpired,
    TokenInvalid,
    TooFast,
)
from nebis.http.options import Accept, BodyKey, BusinessKey, OptionalKey, Public, RequiredKey
from nebis.http.problem import ANSWERS
from nebis.integrations.bound import Bound
from nebis.integrations.protection import Admission, Protection
from nebis.integrations.report import promise

IN_FLIGHT: Final = "retry the same key after Retry-After, do not show an error"
"""What a client does on 409: the one sentence that keeps people from paying twice by hand."""

MEANINGS: Final[Mapping[int, str]] = {
    400: "The idempotency key is missing or malformed, or the request is ambiguous. Correct it and send it again.",
    401: "Nobody is signed in, and keys belong to somebody.",
    409: f"The first request with this key is still running, or its outcome is not known yet: {IN_FLIGHT}.",
    410: "The answer for this key is no longer kept, or the key has expired. It is never run again under this key.",
    412: "The resource was changed since it was read. Read it again, and decide anew.",
    413: "The body is too large.",
    422: "The key was used before with a different request, or the operation said no.",
    428: "The request has to say, by If-Match, which version of the resource it changes.",
    429: "Too many new requests. Wait for Retry-After; replays of earlier keys are answered all the while.",
    500: "The request was carried out or its record is damaged. It never runs again; tell the operator.",
    503: "Nothing was run, or it is not known yet. Send the same request with the same key again.",
    504: "The deadline of the request had passed. Nothing was run.",
}

# Raised by a handler that asks for these, and documented where it does; or told by another route.
NOT_BY_ITSELF: Final = frozenset(
    {NaturalKeyReused, OperationUnknown, OriginalUnsettled, PreconditionFailed, PreconditionMalformed}
    | {PreconditionRequired}
)
WITH_RETRY_AFTER: Final = frozenset({409, 429, 503})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One status that a route may answer by itself."""

    status: int
    codes: tuple[str, ...]
    """The last parts of `type`, one for each reason."""

    @property
    def meaning(self) -> str:
        """Return what a client makes of it."""
        return MEANINGS.get(self.status, "The operation said no.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What one route tells its clients."""

    name: str
    header: str | None
    """The header that carries the key, where one does."""
    is_required: bool
    shortest_key: int
    key: str
    window: str
    afterwards: str
    matching: str
    in_flight: str
    replayed_header: str
    problem_base: str
    answers: tuple[Answer, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the terms as prose."""
        return (self.key, self.window, self.afterwards, self.matching, self.in_flight)


def terms(admission: Admission) -> Terms:
    """Return the terms of a protected route."""
    rule, policy, wire = admission.key, admission.subject.policy, admission.wire
    is_made = isinstance(rule, BodyKey) or (isinstance(rule, BusinessKey) and rule.always)
    never_runs = policy.when_expired is ExpiredPolicy.REFUSE
    return Terms(
        name=admission.name,
        header=None if is_made else wire.key_header,
        is_required=isinstance(rule, RequiredKey),
        shortest_key=policy.shortest_key,
        key=_key(admission),
        window=(
            f"The answer is kept for {promise(admission).window} after it was given. Within this window the same "
            f"request with the same key gets the same answer, marked by `{wire.replayed_header}: true`."
        ),
        afterwards=(
            "After the window the key is refused with 410."
            if never_runs
            else "After the window the key is forgotten, and the request would be carried out anew."
        ),
        matching=_matching(admission),
        in_flight=_in_flight(admission),
        replayed_header=wire.replayed_header,
        problem_base=wire.problem_base,
        answers=tuple(
            Answer(status=status, codes=tuple(sorted(codes))) for status, codes in sorted(_codes(admission).items())
        ),
    )


def _key(admission: Admission) -> str:
    rule, header = admission.key, admission.wire.key_header
    match rule:
        case RequiredKey():
            text = f"Send `{header}`: a key that is new for each request and the same for each retry of it."
        case OptionalKey():
            text = f"Send `{header}` to be able to retry: a key that is new for each request. Without it none is kept."
        case BodyKey():
            text = f"The member `{rule.field}` of the body is the idempotency key: new for each request."
        case BusinessKey():
            made = "The idempotency key is made from the request itself"
            text = f"{made}; `{header}` is not read." if rule.always else f"{made} if `{header}` is not sent."
        case _:
            assert_never(rule)
    if admission.subject.policy.issued_keys:
        text += " Only keys that this service issued for the operation are taken."
    return text


def _in_flight(admission: Admission) -> str:
    if isinstance(admission.subject.policy.in_flight, Accept):
        return "While the first request runs, a second one is answered with 202 and the place of its status."
    return f"409 means that the first request is in flight: {IN_FLIGHT}."


def _matching(admission: Admission) -> str:
    rule: FingerprintRule = admission.subject.fingerprints.newest
    counted = "body" if rule.include is None else f"members {_named(rule.include)} of the body"
    if rule.exclude:
        counted += f" without {_named(rule.exclude)}"
    parts = ["path", *_query(rule), counted] if isinstance(admission, Protection) else [counted]
    parts += [f"header `{name}`" for name in rule.headers]
    return (
        f"Two requests are the same if these have equal values: {', '.join(parts)}. Order of names and white space in "
        f"JSON do not count. Another request with the same key is refused with {admission.wire.key_reused_status}, "
        "and nothing is run."
    )


def _query(rule: FingerprintRule) -> Iterator[str]:
    if rule.query == "all":
        yield "query"
    elif rule.query:
        yield f"{_named(rule.query)} of the query"


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _codes(admission: Admission) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for error, row in ANSWERS.items():
        if _may_answer(admission, error):
            status = row.status
            if error is KeyReused:
                status = admission.wire.key_reused_status
            elif error is Rejected and isinstance(admission, Bound):
                status = admission.rejected_status
            found.setdefault(status, set()).add(error.code)
    return found


def _may_answer(admission: Admission, error: type[NebisError]) -> bool:
    policy, wire = admission.subject.policy, admission.wire
    conditions: Mapping[type[NebisError], bool] = {
        TenantMissing: not isinstance(admission.tenant, Public),
        KeyExpired: policy.when_expired is ExpiredPolicy.REFUSE,
        ResourceGone: isinstance(admission, Protection) and admission.reconstruct is not None,
        TokenInvalid: policy.issued_keys,
        TokenExpired: policy.issued_keys,
        TooFast: bool(policy.velocity) or policy.quota is not None,
        DeadlineMalformed: wire.deadline_header is not None or wire.timeout_header is not None,
        DeadlinePassed: wire.deadline_header is not None or wire.timeout_header is not None,
    }
    return error not in NOT_BY_ITSELF and conditions.get(error, True)
