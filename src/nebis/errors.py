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

from collections.abc import Callable, Sequence
from typing import Any


class NebisError(Exception):
    """The root of everything that Nebis raises on purpose."""

    code: str = "nebis-error"

    def __reduce__(self) -> tuple[Callable[..., NebisError], tuple[type[NebisError], tuple[Any, ...], dict[str, Any]]]:
        """Travel between processes whole, whatever arguments the class takes."""
        return _revived, (type(self), self.args, self.__dict__)


def _revived(cls: type[NebisError], args: tuple[Any, ...], attributes: dict[str, Any]) -> NebisError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    return error


class RequestError(NebisError):
    """A request that can never succeed as it is."""

    code = "request-error"


class KeyMissing(RequestError):
    """A protected operation that was called without a key."""

    code = "key-missing"

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(f"{operation!r} needs an idempotency key; send one that is new for each logical request.")


class KeyMalformed(RequestError):
    """A key outside the grammar."""

    code = "key-malformed"

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"The idempotency key is malformed: {detail}. Send 1 to 255 visible ASCII characters.")


class KeyRepeated(RequestError):
    """A request with more than one key, of which every proxy on the way may have seen another."""

    code = "key-repeated"

    def __init__(self, header: str) -> None:
        self.header = header
        super().__init__(f"{header} was sent more than once, or has a comma; send one key in one header.")


class HeaderRepeated(RequestError):
    """A header that decides who asks for what, sent twice."""

    code = "header-repeated"

    def __init__(self, header: str) -> None:
        self.header = header
        super().__init__(f"{header} was sent more than once; send it once.")


class BodyRefused(RequestError):
    """A command that has no unambiguous canonical form."""

    code = "body-refused"

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"The request body is refused: {detail}. Correct it and send it again.")


class BodyTooLarge(RequestError):
    """A command above the size limit."""

    code = "body-too-large"

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        super().__init__(f"The request body is larger than {limit_bytes} bytes; send a smaller one.")


class TenantMissing(RequestError):
    """A request of nobody: keys belong to a tenant, and anonymous callers never share one by accident (SEC02)."""

    code = "tenant-missing"

    def __init__(self) -> None:
        super().__init__("Nobody is signed in, and an idempotency key belongs to somebody; authenticate first.")


class TokenInvalid(RequestError):
    """A token that was not issued for this effect or operation, or to somebody else, or not by anybody who may."""

    code = "token-invalid"

    def __init__(self) -> None:
        super().__init__("The token is not one that was issued for this; ask whoever issues them for a genuine one.")


class TokenExpired(RequestError):
    """A genuine token whose time was over before it began anything."""

    code = "token-expired"

    def __init__(self) -> None:
        super().__init__("The token has expired and nothing was begun with it; ask for a new one.")


class DeadlineMalformed(RequestError):
    """A deadline that nobody can read, so that nobody knows whether it has passed."""

    code = "deadline-malformed"

    def __init__(self, header: str) -> None:
        self.header = header
        super().__init__(f"{header} is not a deadline that this service understands; correct it, or leave it out.")


class DeadlinePassed(RequestError):
    """A request that came, or an effect that would begin, after nobody waits for it any more."""

    code = "deadline-passed"

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(
            f"The deadline of this request of {operation!r} has passed, so that nothing new is begun for it; "
            "ask again with the same key and a later deadline."
        )


class TooFast(RequestError):
    """A fresh key above a limit of its tenant, or of something that its command names."""

    code = "too-fast"

    def __init__(self, operation: str, *, retry_after_seconds: float) -> None:
        self.operation = operation
        self.retry_after_seconds = retry_after_seconds
        super().__init__(
            f"There were too many new requests of {operation!r}; nothing was recorded. "
            f"Send this one again, with the same key, in {retry_after_seconds:.1f} s."
        )


class OperationUnknown(RequestError):
    """An operation id that is nobody's, or somebody else's: nobody is told which."""

    code = "operation-unknown"

    def __init__(self) -> None:
        super().__init__("There is no such operation; check the id, or repeat the request with its own key.")


class KeyReused(RequestError):
    """A key that already stands for another command."""

    code = "key-reused"

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(
            f"This key was used before with a different command for {operation!r}; "
            "nothing was run. Send the original command, or a new key for a new request."
        )


class NaturalKeyReused(RequestError):
    """A fresh key for something that exists already, and that was asked for differently."""

    code = "natural-key-reused"

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(
            f"What this request would make with {operation!r} exists already and was asked for with a different "
            "command; nothing was run. Send the original command, or another reference for a new request."
        )


class PreconditionMalformed(RequestError):
    """An `If-Match` that is no list of entity tags."""

    code = "precondition-malformed"

    def __init__(self) -> None:
        super().__init__('If-Match is malformed; send the ETag as it was received, such as "7", a list of them, or *.')


class PreconditionFailed(RequestError):
    """A change of something that somebody else has changed since the caller read it."""

    code = "precondition-failed"

    def __init__(self) -> None:
        super().__init__("It was changed since it was read; nothing was done. Read it again, and decide anew.")


class PreconditionRequired(RequestError):
    """A change that does not say which version it is a change of."""

    code = "precondition-required"

    def __init__(self) -> None:
        super().__init__("This request needs If-Match; read the resource, and send the ETag that it had.")


class KeyExpired(RequestError):
    """A key whose answer is no longer kept, under a policy that refuses to run again."""

    code = "key-expired"

    def __init__(self, operation: str) -> None:
        self.operation = operation
        super().__init__(
            f"The answer for this key of {operation!r} is no longer kept and the operation does not run again; "
            "look the result up, or send a new key for a new request."
        )


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
