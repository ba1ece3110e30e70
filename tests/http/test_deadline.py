"""Deadlines as clients write them (C7)."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from nebis import DeadlineMalformed
from nebis.http import Wire
from nebis.http.deadline import deadline_of

WIRE = Wire(deadline_header="Request-Deadline", timeout_header="Request-Timeout")
MOMENT = datetime(2059, 11, 6, 8, 49, 37, tzinfo=UTC)


def left(*headers: tuple[str, str], wire: Wire = WIRE) -> float | None:
    found = deadline_of(headers, wire)
    return None if found is None else found.at_seconds - time.monotonic()


@pytest.mark.parametrize(
    "text",
    [
        "Thu, 06 Nov 2059 08:49:37 GMT",
        "2059-11-06T08:49:37Z",
        "2059-11-06t08:49:37z",
        "2059-11-06 08:49:37.000000001Z",
        "2059-11-06T10:49:37.0+02:00",
        "2059-11-06T06:19:37-02:30",
        str(int(MOMENT.timestamp())),
        f"{MOMENT.timestamp():.3f}",
        str(int(MOMENT.timestamp() * 1000)),
    ],
)
def test_moment_may_be_written_in_many_ways(text: str) -> None:
    expected = MOMENT.timestamp() - time.time()

    assert left(("request-deadline", text)) == pytest.approx(expected, abs=5)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("90S", 90),
        ("90000ms", 90),
        ("90000m", 90),
        ("2M", 120),
        ("1H", 3600),
        ("99999999u", 100),
        ("99999999n", 0.1),
        ("0", 0),
        ("99999999", 99_999_999),
    ],
)
def test_time_that_is_left_may_be_written_in_many_ways(text: str, seconds: float) -> None:
    assert left(("Request-Timeout", text)) == pytest.approx(seconds, abs=5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "30",
        "2059-11-06",
        "2059-11-06T08:49:37",
        "2059-02-30T08:49:37Z",
        "2059-11-06T25:49:37Z",
        "2059-11-06T08:49:37+99:00",
        "Thu, 31 Feb 2059 08:49:37 GMT",
        "Thu, 06 Nov 2059 08:49:37 CET",
        "Thu, 06 Nov 2059 08:49:37 GMT, Thu, 06 Nov 2059 08:49:37 GMT",
        "-1000000000",
        "1e10",
        "12345678901",
        "NaN",
        "\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669\u0660",
    ],
    ids=ascii,
)
def test_moment_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(DeadlineMalformed, match="Request-Deadline"):
        left(("Request-Deadline", text))


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1 s", "1.", ".5", "1e3", "999999999", "1d", "inf", "1, 2"], ids=ascii
)
def test_time_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(DeadlineMalformed, match="Request-Timeout"):
        left(("Request-Timeout", text))


def test_of_two_deadlines_the_earlier_counts() -> None:
    moment = (datetime.now(UTC) + timedelta(minutes=10)).isoformat()

    assert left(("Request-Deadline", moment), ("Request-Timeout", "60")) == pytest.approx(60, abs=5)
    assert left(("Request-Timeout", "60"), ("Request-Timeout", "30")) == pytest.approx(30, abs=5)


def test_nothing_is_read_that_was_not_named() -> None:
    assert left(("Request-Timeout", "soon"), ("Request-Deadline", "soon"), wire=Wire()) is None
    assert left() is None


def test_header_needs_a_name_that_a_header_can_have() -> None:
    assert len(Wire(deadline_header="a b", timeout_header="").faults()) == 2
