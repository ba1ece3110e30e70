"""The root of all errors, and the branch that says: change the request. `errors.py` draws the whole tree."""

from __future__ import annotations

from collections.abc import Callable
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
