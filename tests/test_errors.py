"""The tree of errors as it is drawn, and every message as it is read."""

import inspect
import re
from collections.abc import Iterator

import pytest

import nebis
from nebis import errors
from nebis.errors import NebisError

ID = "0190a5b2-7c9e-7000-8000-000000000001"

MESSAGES: dict[str, tuple[NebisError, str]] = {
    "KeyMissing": (
        errors.KeyMissing("pay"),
        "'pay' needs an idempotency key; send one that is new for each logical request.",
    ),
    "KeyMalformed": (
        errors.KeyMalformed("it is empty"),
        "The idempotency key is malformed: it is empty. Send 1 to 255 visible ASCII characters.",
    ),
    "KeyRepeated": (
        errors.KeyRepeated("Idempotency-Key"),
        "Idempotency-Key was sent more than once, or has a comma; send one key in one header.",
    ),
    "HeaderRepeated": (
        errors.HeaderRepeated("Authorization"),
        "Authorization was sent more than once; send it once.",
    ),
    "BodyRefused": (
        errors.BodyRefused("an object has the same name twice"),
        "The request body is refused: an object has the same name twice. Correct it and send it again.",
    ),
    "BodyTooLarge": (
        errors.BodyTooLarge(1024),
        "The request body is larger than 1024 bytes; send a smaller one.",
    ),
    "TenantMissing": (
        errors.TenantMissing(),
        "Nobody is signed in, and an idempotency key belongs to somebody; authenticate first.",
    ),
    "TokenInvalid": (
        errors.TokenInvalid(),
        "The token is not one that was issued for this; ask whoever issues them for a genuine one.",
    ),
    "TokenExpired": (
        errors.TokenExpired(),
        "The token has expired and nothing was begun with it; ask for a new one.",
    ),
    "DeadlineMalformed": (
        errors.DeadlineMalformed("Request-Deadline"),
        "Request-Deadline is not a deadline that this service understands; correct it, or leave it out.",
    ),
    "DeadlinePassed": (
        errors.DeadlinePassed("pay"),
        (
            "The deadline of this request of 'pay' has passed, so that nothing new is begun for it; "
            "ask again with the same key and a later deadline."
        ),
    ),
    "TooFast": (
        errors.TooFast("pay", retry_after_seconds=2.5),
        (
            "There were too many new requests of 'pay'; nothing was recorded. "
            "Send this one again, with the same key, in 2.5 s."
        ),
    ),
    "OperationUnknown": (
        errors.OperationUnknown(),
        "There is no such operation; check the id, or repeat the request with its own key.",
    ),
    "KeyReused": (
        errors.KeyReused("pay"),
        (
            "This key was used before with a different command for 'pay'; nothing was run. "
            "Send the original command, or a new key for a new request."
        ),
    ),
    "NaturalKeyReused": (
        errors.NaturalKeyReused("pay"),
        (
            "What this request would make with 'pay' exists already and was asked for with a different command; "
            "nothing was run. Send the original command, or another reference for a new request."
        ),
    ),
    "PreconditionMalformed": (
        errors.PreconditionMalformed(),
        'If-Match is malformed; send the ETag as it was received, such as "7", a list of them, or *.',
    ),
    "PreconditionFailed": (
        errors.PreconditionFailed(),
        "It was changed since it was read; nothing was done. Read it again, and decide anew.",
    ),
    "PreconditionRequired": (
        errors.PreconditionRequired(),
        "This request needs If-Match; read the resource, and send the ETag that it had.",
    ),
    "KeyExpired": (
        errors.KeyExpired("pay"),
        (
            "The answer for this key of 'pay' is no longer kept and the operation does not run again; "
            "look the result up, or send a new key for a new request."
        ),
    ),
    "InFlight": (
        errors.InFlight("pay", operation_id=ID, retry_after_seconds=1.25),
        "'pay' is running for this key; try again with the same key in 1.2 s.",
    ),
    "EffectTimedOut": (
        errors.EffectTimedOut("charge", 20.0),
        "The effect 'charge' had no answer after 20 s; try again with the same key.",
    ),
    "StoreUnavailable": (
        errors.StoreUnavailable("no route to host"),
        "The store is unavailable (no route to host); nothing was run. Try again with the same key.",
    ),
    "NotConfirmed": (
        errors.NotConfirmed("the connection broke"),
        "The store did not confirm (the connection broke); the work may be done. Ask again with the same key.",
    ),
    "Overloaded": (
        errors.Overloaded("64 requests"),
        "Too much is waiting already (64 requests); nothing was run. Try again with the same key.",
    ),
    "ClaimLost": (
        errors.ClaimLost("pay", "fenced"),
        "This attempt of 'pay' no longer owns its record (fenced); stop, another one does.",
    ),
    "InDoubt": (
        errors.InDoubt("gateway-timeout"),
        (
            "The outcome is in doubt (gateway-timeout) and is being reconciled; "
            "ask again with the same key, never with a new one."
        ),
    ),
    "EffectInDoubt": (
        errors.EffectInDoubt("code-changed"),
        (
            "The outcome is in doubt (code-changed) and is being reconciled; "
            "ask again with the same key, never with a new one."
        ),
    ),
    "WriteInDoubt": (
        errors.WriteInDoubt("transaction-ended-inside"),
        (
            "The outcome is in doubt (transaction-ended-inside) and is being reconciled; "
            "ask again with the same key, never with a new one."
        ),
    ),
    "Rejected": (
        errors.Rejected("declined", detail="insufficient funds"),
        "Rejected: declined (insufficient funds).",
    ),
    "OutcomeUnknown": (
        errors.OutcomeUnknown("pay", ID),
        (
            f"The outcome of 'pay' ({ID}) was never proved and is closed as unknown; "
            "compare with the downstream's own books."
        ),
    ),
    "ResultUnstorable": (
        errors.ResultUnstorable("it has 5 bytes, 4 are allowed"),
        "The work was done but its result could not be stored: it has 5 bytes, 4 are allowed. It is never run again.",
    ),
    "ResourceGone": (
        errors.ResourceGone(),
        "The operation was done, and what it made was deleted since; it is never run again.",
    ),
    "Retryable": (
        errors.Retryable("busy"),
        "Nothing happened (busy); try again with the same key.",
    ),
    "OriginalUnsettled": (
        errors.OriginalUnsettled(ID),
        "Nothing happened (the request that this one repeats has no answer yet); try again with the same key.",
    ),
    "SchemaMismatch": (
        errors.SchemaMismatch("run nebis migrate"),
        "The schema does not fit this version of nebis: run nebis migrate.",
    ),
    "RecordCorrupt": (
        errors.RecordCorrupt("its checksum does not match"),
        "A stored record is corrupt: its checksum does not match. Nothing was run; restore it or resolve it by hand.",
    ),
    "ConfigError": (
        errors.ConfigError(["name a store", "say effects="]),
        "Fix the configuration:\n  - name a store\n  - say effects=",
    ),
}
"""Built as the code builds them. A class that is only a branch of the tree, or takes its message whole, has none."""

WITHOUT_A_MESSAGE = {"NebisError", "RequestError", "NotYet", "Final", "MisuseError", "StoreError"}


def classes() -> dict[str, type[NebisError]]:
    return {
        name: member
        for name, member in vars(errors).items()
        if inspect.isclass(member) and issubclass(member, NebisError)
    }


def drawn() -> Iterator[tuple[str, str | None]]:
    """Read (class, its parent) from the drawing at the top of the module."""
    assert errors.__doc__ is not None
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"^((?:│   |    )*)(├── |└── )?([A-Z]\w+)(?:\s|$)", line)
        if found is None or (found[2] is None and found[3] != "NebisError"):
            continue
        depth = len(found[1]) // 4 + (found[2] is not None)
        path[depth:] = [found[3]]
        yield found[3], path[depth - 1] if depth else None


def test_drawing_is_the_tree() -> None:
    tree = {name: None if member is NebisError else member.__bases__[0].__name__ for name, member in classes().items()}

    assert dict(drawn()) == tree


def test_every_error_can_be_imported_from_the_top() -> None:
    assert {name for name in classes() if not hasattr(nebis, name)} == set()
    assert classes().keys() <= set(nebis.__all__)


def test_every_message_is_written_down_here() -> None:
    assert MESSAGES.keys() | WITHOUT_A_MESSAGE == classes().keys()


@pytest.mark.parametrize("name", MESSAGES)
def test_message_reads_as_written(name: str) -> None:
    error, message = MESSAGES[name]

    assert type(error).__name__ == name
    assert str(error) == message


@pytest.mark.parametrize("name", sorted(MESSAGES.keys() - {"ConfigError", "Rejected"}))
def test_message_is_a_sentence_that_says_what_is_next(name: str) -> None:
    _, message = MESSAGES[name]

    assert message.endswith(".")
    assert re.search(r"[;.:] \w+", message) or " so " in message


def test_codes_tell_the_errors_apart() -> None:
    codes = [member.code for name, member in classes().items() if name not in {"EffectInDoubt", "WriteInDoubt"}]

    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    assert errors.EffectInDoubt.code == errors.WriteInDoubt.code == errors.InDoubt.code == "outcome-unknown"


def test_whoever_is_told_to_come_back_is_told_when() -> None:
    for name, (error, _) in MESSAGES.items():
        if isinstance(error, errors.NotYet | errors.InDoubt):
            assert error.retry_after_seconds > 0, name
