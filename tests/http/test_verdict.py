import pytest

from nebis import (
    Disposition,
    InDoubt,
    NaturalKeyReused,
    OriginalUnsettled,
    PreconditionFailed,
    Rejected,
    Retryable,
)
from nebis.http.exchange import Exchange
from nebis.http.verdict import Answered, Binding, binding


class Declined(Exception):
    pass


def _of_status(status: int, rule: Binding | None = None) -> Disposition:
    return (rule or binding(None)).disposition(Answered(Exchange(status=status)))


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        (Rejected("no"), Disposition.REJECT),
        (Retryable("busy"), Disposition.RETRY),
        (InDoubt("lost"), Disposition.DOUBT),
        (PreconditionFailed(), Disposition.WITHDRAW),
        (NaturalKeyReused("pay"), Disposition.WITHDRAW),
        (OriginalUnsettled("op-1"), Disposition.RETRY),
        (RuntimeError("bug"), Disposition.BY_MODE),
    ],
)
def test_a_handlers_own_word_counts_most(signal: Exception, expected: Disposition) -> None:
    rule = binding(None)

    assert rule.disposition(signal) is expected
    assert rule.disposition(Answered(Exchange(status=500), signal)) is expected


@pytest.mark.parametrize("status", [400, 401, 403, 408, 412, 413, 415, 422, 425, 429])
def test_what_is_about_the_request_its_caller_or_the_moment_records_nothing(status: int) -> None:
    """O4, F086."""
    assert _of_status(status) is Disposition.WITHDRAW


@pytest.mark.parametrize("status", [402, 404, 409, 410, 451])
def test_a_definite_refusal_binds(status: int) -> None:
    assert _of_status(status) is Disposition.REJECT


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_error_says_nothing(status: int) -> None:
    """F085."""
    assert _of_status(status) is Disposition.BY_MODE


def test_a_route_says_itself_what_binds() -> None:
    rule = binding([422, Declined])

    assert _of_status(422, rule) is Disposition.REJECT
    assert _of_status(402, rule) is Disposition.RETRY
    assert _of_status(400, rule) is Disposition.WITHDRAW
    assert rule.disposition(Declined()) is Disposition.REJECT
    assert rule.disposition(Answered(Exchange(status=418), Declined())) is Disposition.REJECT


def test_an_answer_that_something_else_made_is_not_the_endpoints_word() -> None:
    """F1 of frameworks: a commit that failed after the endpoint, rendered as a clean 409."""
    answered = Answered(Exchange(status=409), is_own=False)

    assert binding(None).disposition(answered) is Disposition.BY_MODE
