"""Turn how a request ended into a result or an error: the only place where answers become exceptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar, assert_never

from nebis.core.answers import Doubtful, Gone, Reused, Running, Unreadable
from nebis.core.envelope import unseal
from nebis.core.fingerprint import Fingerprint, matches
from nebis.core.record import Outcome, OutcomeKind, Record, State
from nebis.core.rejection import decode_rejection
from nebis.declaration import Declaration
from nebis.errors import (
    InDoubt,
    InFlight,
    KeyExpired,
    KeyReused,
    NaturalKeyReused,
    NebisError,
    NotConfirmed,
    OriginalUnsettled,
    OutcomeUnknown,
    ResultUnstorable,
    StoreUnavailable,
)
from nebis.flows.request import Ending, Failed, Finished, Request, Vanished

C = TypeVar("C")
R = TypeVar("R")

_SUCCEEDED: Final = OutcomeKind.SUCCEEDED
"""Looked up once: nearly every answer is one."""
RETRY_AFTER_BOUND_SECONDS = 2.0
"""Most attempts end long before their lease; whoever comes back a little early is only told again."""

Unanswered: TypeAlias = Running | Reused | Doubtful | Gone | Unreadable | Vanished


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution(Generic[R]):
    """A result together with where it came from."""

    result: R = field(repr=False)
    operation_id: str
    is_replay: bool


def answered(declaration: Declaration[C, R], ending: Ending) -> Execution[R]:
    """Return the stored result, decoded anew for the first caller too (I4), or raise what the caller must do next."""
    if not isinstance(ending, Finished):
        raise unanswered(declaration, ending)
    result = _result(declaration, ending)
    return Execution(result=result, operation_id=str(ending.record_id), is_replay=ending.is_replay)


def answer_of(declaration: Declaration[C, R], ending: Ending) -> R:
    """Do the same for a caller that wants the result and nothing else."""
    if isinstance(ending, Finished):
        return _result(declaration, ending)
    raise unanswered(declaration, ending)


def unanswered(declaration: Declaration[C, R], ending: Failed | Unanswered) -> Exception:
    """Return what a caller is raised that gets no result."""
    return failure(ending) if isinstance(ending, Failed) else refusal(declaration.name, ending)


def refusal(operation: str, ending: Unanswered) -> NebisError:
    """Return the error that tells a caller why there is no answer, and what to do."""
    match ending:
        case Running():
            left_seconds = max(0.05, ending.lease_left_us / 1_000_000)
            return InFlight(
                operation,
                operation_id=str(ending.record.record_id),
                retry_after_seconds=min(left_seconds, RETRY_AFTER_BOUND_SECONDS),
            )
        case Reused():
            return KeyReused(operation)
        case Doubtful():
            return InDoubt(ending.record.doubt_reason or "unknown", operation_id=str(ending.record.record_id))
        case Gone():
            return KeyExpired(operation)
        case Unreadable():
            return StoreUnavailable(
                f"the record was made with fingerprint version {ending.record.fingerprint_version}, "
                "which this process does not know"
            )
        case Vanished():
            return NotConfirmed("another attempt ended this one and its record is no longer there")
        case _:
            assert_never(ending)


def _result(declaration: Declaration[C, R], ending: Finished) -> R:
    outcome = ending.outcome
    body = unseal(outcome.body, limit_bytes=declaration.readable_bytes)
    if outcome.kind is _SUCCEEDED:
        return declaration.result_codec.decode_result(body)
    match outcome.kind:
        case OutcomeKind.REJECTED:
            rejection = decode_rejection(body)
            rejection.is_replay = ending.is_replay
            raise rejection
        case OutcomeKind.UNSTORABLE:
            raise ResultUnstorable(decode_rejection(body).detail)
        case OutcomeKind.UNKNOWN:
            raise OutcomeUnknown(declaration.name, str(ending.record_id))
        case _:
            assert_never(outcome.kind)


def original(request: Request, record: Record, found: Record | None) -> Any:
    """Return what an earlier request was answered that this one repeats under a fresh key; None if nothing is kept.

    Raises `NaturalKeyReused` if it asked for something else, `OriginalUnsettled` if it has no answer yet.
    """
    # An earlier attempt of this very record may have left the row that its successor runs into.
    if found is None or found.record_id == record.record_id:
        return None
    if (found.tenant, found.operation) != (record.tenant, record.operation):
        return None
    fingerprints = dict(request.claim(record.record_id, record.nonce).fingerprints)
    ours = fingerprints.get(found.fingerprint_version)
    if ours is None:
        return None  # Made under a rule or a secret that this process does not know: never guessed (F104).
    if not matches(Fingerprint(ours), Fingerprint(found.fingerprint)):
        raise NaturalKeyReused(record.operation)
    if found.state in (State.IN_PROGRESS, State.IN_DOUBT):
        raise OriginalUnsettled(str(found.record_id))
    if found.outcome_kind is None or found.outcome is None:
        return None
    return request.reveal(Outcome(kind=found.outcome_kind, body=found.outcome))


def failure(ending: Failed) -> Exception:
    """Return the handler's own exception, or the doubt that it left behind."""
    if ending.doubt_reason is None:
        return ending.error
    doubt = InDoubt(ending.doubt_reason, operation_id=str(ending.record.record_id))
    doubt.__cause__ = ending.error
    return doubt
