"""Nothing that a client sent, and nothing that it was answered, reaches logs, exceptions or reprs (SEC24, SEC26)."""

import logging
import traceback
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from decimal import Decimal

import pytest

from nebis import (
    BodyRefused,
    Disposition,
    InDoubt,
    InFlight,
    KeyMalformed,
    KeyReused,
    NebisError,
    Opaque,
    RecordCorrupt,
    ResultUnstorable,
    Retryable,
)
from tests.engine.faces import Face, View

KEY, TENANT, BODY, ANSWER = "canary-of-the-key", "canary-of-the-tenant", "canary-of-the-body", "canary-of-the-answer"
CANARY = "canary-of-the-"


@dataclass(frozen=True)
class Order:
    note: str
    amount: Decimal = Decimal(1)


ORDER = Order(BODY)


def told(operation: Callable[..., object], error: type[BaseException], **changes: object) -> BaseException:
    with pytest.raises(error) as raised:
        operation(**{"key": KEY, "tenant": TENANT, "command": ORDER, **changes})
    return raised.value


def text_of(error: BaseException) -> str:
    """Return all that a log would show of an exception, its causes included; the lines of our own tests left out."""
    shown = []
    seen: BaseException | None = error
    while seen is not None:
        shown += [*traceback.format_exception_only(seen), repr(seen), str(seen.args)]
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "\n".join(shown)


def test_no_error_and_no_log_line_shows_what_a_client_sent(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    errors: list[BaseException] = []

    def answer(attempt: View, command: Order) -> str:
        shown.extend([repr(attempt), repr(attempt.record)])
        with pytest.raises(InFlight) as raised:
            # In a context of its own it is a twin; in that of the handler it would be a recursion (F067).
            Context().run(nested, key=KEY, tenant=TENANT, command=ORDER)
        errors.append(raised.value)
        return ANSWER

    shown: list[str] = []
    nested = pay = face.operation(answer)
    execution = pay.execute(key=KEY, tenant=TENANT, command=ORDER)
    shown += [repr(execution), repr(pay), repr(face.record(execution.operation_id)), *map(repr, face.told)]
    errors.append(told(pay, KeyReused, command=Order(BODY, Decimal(2))))
    errors.append(told(pay, KeyMalformed, key=f"{KEY}, {KEY}"))
    errors.append(told(pay, BodyRefused, command=Order(f"{BODY}\ud800")))
    face.damage(face.record(execution.operation_id))
    errors.append(told(pay, RecordCorrupt))

    assert execution.result == ANSWER
    assert len(errors) == 5
    for text in [*shown, *map(text_of, errors), caplog.text]:
        assert CANARY not in text


def test_no_failure_of_a_handler_is_logged_with_what_it_holds(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def unstorable(attempt: View, command: Order) -> str:
        return object()  # type: ignore[return-value]  # The point.

    def broken(attempt: View, command: Order) -> str:
        raise LookupError(f"{command.note} of {attempt.record.key}")

    def busy(attempt: View, command: Order) -> str:
        raise Retryable("busy")

    errors = [
        told(face.operation(unstorable), ResultUnstorable),
        told(face.operation(busy), Retryable),
        told(face.operation(broken, classify=lambda _: Disposition.REJECT), NebisError),
    ]
    doubt = told(face.operation(broken, effects=Opaque), InDoubt)
    # The cause is the handler's own exception, which its caller may want to see; the message is ours.
    assert isinstance(doubt.__cause__, LookupError)
    errors.append(told(face.operation(broken, classify=lambda _: Disposition.DOUBT), InDoubt))

    assert CANARY not in str(doubt)
    assert CANARY not in str(errors[-1])
    for error in errors[:-1]:
        assert CANARY not in text_of(error)
    assert CANARY not in caplog.text


def test_weak_keys_are_warned_of_once_and_not_shown(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    def answer(attempt: View, command: Order) -> int:
        return 1

    operation = face.operation(answer)
    for number in range(3):
        operation(key=f"{number:08}", tenant=TENANT, command=ORDER)

    warnings = [record for record in caplog.records if "weak idempotency keys" in record.getMessage()]
    assert len(warnings) == len({record.getMessage() for record in warnings}) >= 1
    assert "00000001" not in caplog.text
