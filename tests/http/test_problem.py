import inspect
import json

import pytest

from nebis import errors
from nebis.errors import (
    ConfigError,
    EffectInDoubt,
    InDoubt,
    InFlight,
    KeyMalformed,
    KeyReused,
    MisuseError,
    NebisError,
    NotConfirmed,
    OutcomeUnknown,
    RecordCorrupt,
    Rejected,
    StoreUnavailable,
)
from nebis.http.problem import ANSWERS, accepted, problem, row_of, whole_seconds
from nebis.http.wire import Wire

WIRE = Wire(status_path="/operations/", problem_base="https://api.example/problems/")
SECRET = "10.0.0.7:5432"


def test_every_error_that_a_caller_can_meet_has_a_line_in_the_table() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, NebisError)]
    leaves = [kind for kind in kinds if not kind.__subclasses__()]
    told = {kind for kind in leaves if any(ancestor in ANSWERS for ancestor in kind.__mro__)}

    assert set(leaves) - told == {MisuseError, ConfigError}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (KeyMalformed("it is empty"), 400, "key-malformed"),
        (InFlight("pay", operation_id="op-1", retry_after_seconds=0.2), 409, "in-flight"),
        (InDoubt("lost"), 409, "outcome-unknown"),
        (EffectInDoubt("lost"), 409, "outcome-unknown"),
        (KeyReused("pay"), 422, "key-reused"),
        (OutcomeUnknown("pay", "op-1"), 500, "outcome-unknown-final"),
        (RecordCorrupt("checksum"), 500, "record-corrupt"),
        (StoreUnavailable(SECRET), 503, "store-unavailable"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_problem_is_what_rfc_9457_says(error: NebisError, status: int, code: str) -> None:
    rendered = problem(error, WIRE)

    assert rendered is not None
    told = json.loads(rendered.body)
    assert rendered.status == told["status"] == status
    assert told["type"] == f"https://api.example/problems/{code}"
    assert told["title"]
    assert told["detail"]
    assert dict(rendered.headers)["content-type"] == "application/problem+json"
    assert dict(rendered.headers)["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "error", [StoreUnavailable(SECRET), NotConfirmed(SECRET), RecordCorrupt(SECRET), InDoubt(SECRET)]
)
def test_what_the_store_says_is_not_told_to_callers(error: NebisError) -> None:
    rendered = problem(error, WIRE)

    assert rendered is not None
    assert SECRET.encode() not in rendered.body


def test_a_running_operation_tells_when_and_where_to_look() -> None:
    error = InFlight("pay", operation_id="op-1", retry_after_seconds=1.2)

    for rendered in (problem(error, WIRE), accepted(error, WIRE)):
        assert rendered is not None
        headers = dict(rendered.headers)
        assert headers["retry-after"] == "2"
        assert headers["location"] == "/operations/op-1"
        assert json.loads(rendered.body)["operation_id"] == "op-1"


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 1), (0.05, 1), (1.0, 1), (1.01, 2), (60, 60)])
def test_retry_after_is_whole_seconds_and_never_at_once(seconds: float, expected: int) -> None:
    assert whole_seconds(seconds) == expected


@pytest.mark.parametrize("status", [400, 409, 422])
def test_the_status_of_a_reused_key_can_be_chosen(status: int) -> None:
    rendered = problem(KeyReused("pay"), Wire(key_reused_status=status))

    assert rendered is not None
    assert rendered.status == json.loads(rendered.body)["status"] == status


def test_a_rejection_has_the_status_of_its_route() -> None:
    rendered = problem(Rejected("card-declined", detail="do not honour"), WIRE, status=402)

    assert rendered is not None
    assert rendered.status == 402
    assert json.loads(rendered.body)["reason"] == "card-declined"


def test_a_mistake_of_the_application_is_not_told_but_raised() -> None:
    assert problem(MisuseError("called twice"), WIRE) is None
    assert row_of(ConfigError(["no effects"])) is None


@pytest.mark.parametrize(
    "wire",
    [
        Wire(key_header="no name"),
        Wire(replayed_header=""),
        Wire(expires_header="a:b"),
        Wire(key_reused_status=418),
        Wire(status_path="/operations"),
        Wire(problem_base="a\r\nb"),
    ],
)
def test_a_wire_that_cannot_work_says_why(wire: Wire) -> None:
    assert len(wire.faults()) == 1
    assert not Wire().faults()
