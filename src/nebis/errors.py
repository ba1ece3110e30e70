"""Every error of Nebis, sorted by what its reader must do next.

NebisError
├── RequestError            change the request
│   ├── KeyMissing          400
│   ├── KeyMalformed        400
│   ├── KeyRepeated         400
│   ├── HeaderRepeated      400
│   ├── BodyRefused         400
│   ├── TenantMissing       401
│   ├── TokenInvalid        400
│   ├── TokenExpired        410
│   ├── DeadlineMalformed   400
│   ├── DeadlinePassed      504
│   ├── TooFast             429
│   ├── OperationUnknown    404
│   ├── PreconditionMalformed 400
│   ├── PreconditionFailed  412
│   ├── BodyTooLarge        413
│   ├── KeyReused           422
│   ├── NaturalKeyReused    422
│   ├── PreconditionRequired 428
│   └── KeyExpired          410
├── NotYet                  try again later, with the same key
│   ├── InFlight            409
│   ├── EffectTimedOut      503
│   ├── StoreUnavailable    503
│   ├── NotConfirmed        503
│   └── Overloaded          503
├── ClaimLost               stop now, you no longer own it
├── InDoubt                 do not retry blindly, reconcile
│   ├── EffectInDoubt
│   └── WriteInDoubt
├── Final                   the answer of this key, for good
│   ├── Rejected            the operation said no, and says so again on every replay
│   ├── OutcomeUnknown      nobody could prove the outcome in time
│   ├── ResultUnstorable    the work was done, its result could not be kept
│   └── ResourceGone        what the operation made is no longer there to be shown
├── Retryable               raised by a handler: nothing happened, run me again
│   └── OriginalUnsettled   409, what this request repeats has no answer yet
├── MisuseError             fix the calling code
├── StoreError              page someone
│   ├── SchemaMismatch
│   └── RecordCorrupt
└── ConfigError             fix the deployment; lists every fault at once

`Rejected`, `Retryable` and `InDoubt` are also the signals that a handler raises to say what happened.
`tests/test_errors.py` compares this drawing with the classes and snapshots every message.
"""

from __future__ import annotations

from collections.abc import Sequence

from nebis.refusals import (
    BodyRefused,
    BodyTooLarge,
    DeadlineMalformed,
    DeadlinePassed,
    HeaderRepeated,
    KeyExpired,
    KeyMalformed,
    KeyMissing,
    KeyRepeated,
    KeyReused,
    NaturalKeyReused,
    NebisError,
    OperationUnknown,
    PreconditionFailed,
    PreconditionMalformed,
    PreconditionRequired,
    RequestError,
    TenantMissing,
    TokenExpired,
    TokenInvalid,
    TooFast,
)

__all__ = [
    "BodyRefused",
    "BodyTooLarge",
    "ClaimLost",
    "ConfigError",
    "DeadlineMalformed",
    "DeadlinePassed",
    "EffectInDoubt",
    "EffectTimedOut",
    "Final",
    "HeaderRepeated",
    "InDoubt",
    "InFlight",
    "KeyExpired",
    "KeyMalformed",
    "KeyMissing",
    "KeyRepeated",
    "KeyReused",
    "MisuseError",
    "NaturalKeyReused",
    "NebisError",
    "NotConfirmed",
    "NotYet",
    "OperationUnknown",
    "OriginalUnsettled",
    "OutcomeUnknown",
    "Overloaded",
    "PreconditionFailed",
    "PreconditionMalformed",
    "PreconditionRequired",
    "RecordCorrupt",
    "Rejected",
    "RequestError",
    "ResourceGone",
    "ResultUnstorable",
    "Retryable",
    "SchemaMismatch",
    "StoreError",
    "StoreUnavailable",
    "TenantMissing",
    "TokenExpired",
    "TokenInvalid",
    "TooFast",
    "WriteInDoubt",
]


class NotYet(NebisError):
    """An answer that is not there yet; the same request with the same key will find it."""

    code = "not-yet"

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)


class InFlight(NotYet):
    """Another attempt that is running this key right now."""

    code = "in-flight"

    def __init__(self, operation: str, *, operation_id: str | None, retry_after_seconds: float) -> None:
        """Name the attempt, or None for one inside a transaction of which nobody sees anything yet."""
        self.operation = operation
        self.operation_id = operation_id
        super().__init__(
            f"{operation!r} is running for this key; try again with the same key in {retry_after_seconds:.1f} s.",
            retry_after_seconds=retry_after_seconds,
        )


class EffectTimedOut(NotYet):
    """A downstream that did not answer in time: its effect may have happened, and another attempt asks again."""

    code = "effect-timed-out"

    def __init__(self, effect: str, timeout_seconds: float) -> None:
        self.effect = effect
        self.timeout_seconds = timeout_seconds
        super().__init__(
            f"The effect {effect!r} had no answer after {timeout_seconds:g} s; try again with the same key.",
            retry_after_seconds=1.0,
        )


class StoreUnavailable(NotYet):
    """A store that could not be reached, so that nothing was started."""

    code = "store-unavailable"

    def __init__(self, detail: str, *, retry_after_seconds: float = 1.0) -> None:
        self.detail = detail
        super().__init__(
            f"The store is unavailable ({detail}); nothing was run. Try again with the same key.",
            retry_after_seconds=retry_after_seconds,
        )


class NotConfirmed(NotYet):
    """A write whose fate could not be learnt in time."""

    code = "not-confirmed"

    def __init__(self, detail: str, *, retry_after_seconds: float = 1.0) -> None:
        self.detail = detail
        super().__init__(
            f"The store did not confirm ({detail}); the work may be done. Ask again with the same key.",
            retry_after_seconds=retry_after_seconds,
        )


class Overloaded(NotYet):
    """A process that already has as many callers waiting as it may hold."""

    code = "overloaded"

    def __init__(self, detail: str, *, retry_after_seconds: float = 1.0) -> None:
        self.detail = detail
        super().__init__(
            f"Too much is waiting already ({detail}); nothing was run. Try again with the same key.",
            retry_after_seconds=retry_after_seconds,
        )


class ClaimLost(NebisError):
    """An attempt that no longer owns its record: whatever it writes is refused."""

    code = "claim-lost"

    def __init__(self, operation: str, reason: str) -> None:
        self.operation = operation
        self.reason = reason
        super().__init__(f"This attempt of {operation!r} no longer owns its record ({reason}); stop, another one does.")


class InDoubt(NebisError):
    """An outcome that nobody can prove yet. A handler raises it to say so itself."""

    code = "outcome-unknown"

    def __init__(self, reason: str, *, operation_id: str | None = None, retry_after_seconds: float = 60.0) -> None:
        self.reason = reason
        self.operation_id = operation_id
        self.retry_after_seconds = retry_after_seconds
        super().__init__(
            f"The outcome is in doubt ({reason}) and is being reconciled; "
            "ask again with the same key, never with a new one."
        )


class EffectInDoubt(InDoubt):
    """An effect that may or may not have happened outside."""


class WriteInDoubt(InDoubt):
    """A commit of the handler's own that may or may not have happened."""


class Final(NebisError):
    """The one answer of a key, told to every caller alike."""

    code = "final"


class Rejected(Final):
    """A definite refusal by the operation itself; stored, and raised again by every replay."""

    code = "rejected"
    is_replay: bool = False
    """Whether this caller was told what an earlier one was told; not part of what is stored."""

    def __init__(self, reason: str, *, detail: str = "", undone: tuple[str, ...] = ()) -> None:
        self.reason = reason
        self.detail = detail
        self.undone = undone
        """Names of effects that had happened and were undone."""
        super().__init__(f"Rejected: {reason}{f' ({detail})' if detail else ''}.")


class OutcomeUnknown(Final):
    """A record that left doubt by its deadline, without proof."""

    code = "outcome-unknown-final"

    def __init__(self, operation: str, operation_id: str) -> None:
        self.operation = operation
        self.operation_id = operation_id
        super().__init__(
            f"The outcome of {operation!r} ({operation_id}) was never proved and is closed as unknown; "
            "compare with the downstream's own books."
        )


class ResultUnstorable(Final):
    """Work that was done, with a result that could not be kept."""

    code = "response-unstorable"

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"The work was done but its result could not be stored: {detail}. It is never run again.")


class ResourceGone(Final):
    """An answer that is rebuilt from a resource which was deleted since; raised by whoever rebuilds it."""

    code = "resource-gone"

    def __init__(self) -> None:
        super().__init__("The operation was done, and what it made was deleted since; it is never run again.")


class Retryable(NebisError):
    """A handler's word that nothing happened and that another attempt may run."""

    code = "retryable"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"Nothing happened ({reason}); try again with the same key.")


class OriginalUnsettled(Retryable):
    """A repetition under a fresh key, of a request that has not come to its end."""

    code = "original-unsettled"

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__("the request that this one repeats has no answer yet")


class MisuseError(NebisError):
    """A call that the code around it should never make."""

    code = "misuse"


class StoreError(NebisError):
    """A store that answers what it never may: a person has to look."""

    code = "store-error"


class SchemaMismatch(StoreError):
    """Tables that are not what this version of the code needs."""

    code = "schema-mismatch"

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"The schema does not fit this version of nebis: {detail}.")


class RecordCorrupt(StoreError):
    """Stored bytes that fail their own check; the operation is never run again because of it."""

    code = "record-corrupt"

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"A stored record is corrupt: {detail}. Nothing was run; restore it or resolve it by hand.")


class ConfigError(NebisError):
    """Faults of a deployment, all of them at once."""

    code = "config-error"

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        lines = "\n".join(f"  - {fault}" for fault in self.faults)
        super().__init__(f"Fix the configuration:\n{lines}")
