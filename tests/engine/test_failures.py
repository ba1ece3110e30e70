"""What becomes of a key when its handler, its result or its record fails."""

from decimal import Decimal

import pytest

from nebis import (
    Declared,
    Disposition,
    InDoubt,
    Local,
    Opaque,
    RecordCorrupt,
    Rejected,
    ResultUnstorable,
    Retryable,
)
from nebis.core.record import EffectsMode, State
from nebis.ports.observer import DoubtRaised, Released, Withdrawn
from tests.engine.faces import Face, View
from tests.engine.handlers import TEN, Charge, Runs, new_key, paying, raising


def test_rejection_is_stored_and_replayed(face: Face) -> None:
    runs, key = Runs(), new_key()
    operation = face.operation(raising(Rejected("declined", detail="insufficient funds"), runs))

    for _ in range(3):
        with pytest.raises(Rejected) as told:
            operation(key=key, command=TEN)
        assert (told.value.reason, told.value.detail) == ("declined", "insufficient funds")

    assert runs.number == 1


@pytest.mark.parametrize("effects", [Local, Declared, Opaque])
def test_retryable_gives_the_key_back(face: Face, effects: EffectsMode) -> None:
    runs, key = Runs(), new_key()
    operation = face.operation(raising(Retryable("busy"), runs), effects=effects)

    with pytest.raises(Retryable, match="busy"):
        operation(key=key, command=TEN)

    assert operation(key=key, command=TEN) == 2
    assert operation(key=key, command=TEN) == 2
    assert Released in {type(event) for event in face.told}


@pytest.mark.parametrize("effects", [Local, Declared])
def test_exception_of_a_clean_attempt_reaches_its_caller_and_gives_the_key_back(
    face: Face, effects: EffectsMode
) -> None:
    runs, key, bug = Runs(), new_key(), ZeroDivisionError("a bug")
    operation = face.operation(raising(bug, runs), effects=effects)

    with pytest.raises(ZeroDivisionError) as told:
        operation(key=key, command=TEN)

    assert told.value is bug
    assert operation(key=key, command=TEN) == 2


def test_exception_of_an_opaque_operation_is_in_doubt_for_ever(face: Face) -> None:
    """F004: nobody knows what happened, so it never runs again."""
    runs, key = Runs(), new_key()
    operation = face.operation(raising(ZeroDivisionError("a bug"), runs), effects=Opaque)
    reasons = set()

    for _ in range(3):
        with pytest.raises(InDoubt) as told:
            operation(key=key, command=TEN)
        reasons.add(told.value.reason)
        assert told.value.operation_id is not None

    assert runs.number == 1
    assert len(reasons) == 1
    assert face.record(str(told.value.operation_id)).state is State.IN_DOUBT
    assert DoubtRaised in {type(event) for event in face.told}


@pytest.mark.parametrize("effects", [Local, Declared, Opaque])
def test_handler_that_says_in_doubt_is_believed(face: Face, effects: EffectsMode) -> None:
    runs, key = Runs(), new_key()
    operation = face.operation(raising(InDoubt("gateway-timeout"), runs), effects=effects)

    for _ in range(2):
        with pytest.raises(InDoubt) as told:
            operation(key=key, command=TEN)
        assert told.value.reason == "gateway-timeout"

    assert runs.number == 1


def test_withdrawn_request_may_be_corrected_under_the_same_key(face: Face) -> None:
    runs, key = Runs(), new_key()

    def hook(error: Exception) -> Disposition:
        return Disposition.WITHDRAW if isinstance(error, ValueError) else Disposition.BY_MODE

    operation = face.operation(raising(ValueError("amount is negative"), runs), classify=hook)

    with pytest.raises(ValueError, match="negative"):
        operation(key=key, command=Charge(Decimal(-1)))

    assert operation(key=key, command=TEN) == 2
    assert Withdrawn in {type(event) for event in face.told}


def test_hook_may_turn_an_error_of_the_application_into_a_rejection(face: Face) -> None:
    """SEC24: of a foreign exception only the type is kept."""
    runs, key = Runs(), new_key()

    class CardDeclined(Exception):
        detail: object = {"card": "4111 1111 1111 1111"}

    operation = face.operation(raising(CardDeclined("4111"), runs), classify=lambda _: Disposition.REJECT)

    for _ in range(2):
        with pytest.raises(Rejected) as told:
            operation(key=key, command=TEN)
        assert told.value.reason == "CardDeclined"
        assert "4111" not in repr(told.value)

    assert runs.number == 1


def test_result_that_cannot_be_stored_is_final_for_first_and_later_callers(face: Face) -> None:
    """O6: the work was done, so it never runs again."""
    runs, key = Runs(), new_key()

    def wrong(attempt: View, command: Charge) -> int:
        runs.count()
        return "not an int"  # type: ignore[return-value]  # The point.

    operation = face.operation(wrong)
    texts = set()

    for _ in range(3):
        with pytest.raises(ResultUnstorable) as told:
            operation(key=key, command=TEN)
        texts.add(str(told.value))

    assert runs.number == 1
    assert len(texts) == 1


def test_result_above_its_limit_is_final_too(face: Face) -> None:
    """F047: decided before anything is stored."""
    runs, key = Runs(), new_key()

    def large(attempt: View, command: Charge) -> str:
        runs.count()
        return "x" * 2000

    operation = face.operation(large, result_limit_bytes=1000)

    for _ in range(2):
        with pytest.raises(ResultUnstorable, match="1000 are allowed"):
            operation(key=key, command=TEN)

    assert runs.number == 1


def test_damaged_outcome_is_reported_and_never_run_again(face: Face) -> None:
    """F011: one flipped bit in the stored bytes."""
    runs, key = Runs(), new_key()
    operation = face.operation(paying(runs))
    execution = operation.execute(key=key, command=TEN)
    face.damage(face.record(execution.operation_id))

    for _ in range(2):
        with pytest.raises(RecordCorrupt):
            operation(key=key, command=TEN)

    assert runs.number == 1
