"""The machinery of `make bench`: what is measured is real, and what is written has the shape that readers rely on."""

import asyncio
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import instructions
from benchmarks.__main__ import CHART, PAGE, RESULTS, result_of, run
from benchmarks.book import Book, Measured
from benchmarks.chart import svg
from benchmarks.contender import Places
from benchmarks.contenders import CONTENDERS, contender_of
from benchmarks.floors import Verdict, verdicts
from benchmarks.load import Sample
from benchmarks.machine import ProcessorTime, processor_time
from benchmarks.plan import QUICK, Plan
from benchmarks.table import markdown, section

COLUMNS = [
    "system",
    "store",
    "case",
    "concurrency",
    "ops_per_second",
    "p50_ms",
    "p99_ms",
    "ratio_to_naive",
    "ratio_range",
    "share_of_bare",
    "bare_range",
]

TINY = Plan(
    name="tiny",
    rounds=2,
    seconds=0.1,
    callers=(2,),
    replay_callers=(2,),
    peer_callers=(2,),
    http_callers=(),
    growth_rows=(),
    purge_rows=0,
    purge_seconds=0.1,
    storage_cycles=0,
    served_gigabytes=0,
    only=("cycle", "replay"),
    systems=("naive-sqlite@sqlite", "nebis@sqlite"),
)


def _sample(per_second: float) -> dict[str, Any]:
    return Sample(calls=1, failures=0, per_second=per_second, p50_ms=1.0, p99_ms=2.0).as_dict()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of one tiny run of two systems on SQLite, in processes of their own."""
    return run(TINY, tmp_path_factory.mktemp("bench") / "run.log")


def test_a_tiny_run_measures_both_systems_in_both_cases(tiny: dict[str, Any]) -> None:
    measured = {(row["system"], row["case"]): row for row in tiny["rows"]}

    assert tiny["notes"] == {}
    assert set(measured) == {(system, case) for system in ("nebis", "naive-sqlite") for case in ("cycle", "replay")}
    assert all(row["ops_per_second"] > 0 and 0 < row["p50_ms"] <= row["p99_ms"] for row in measured.values())
    assert measured["naive-sqlite", "cycle"]["ratio_to_naive"] == 1.0
    low, high = measured["nebis", "cycle"]["ratio_range"]
    assert low <= measured["nebis", "cycle"]["ratio_to_naive"] <= high


def test_a_row_has_exactly_the_published_columns(tiny: dict[str, Any]) -> None:
    assert {"commit", "machine", "rows"} <= tiny.keys()
    assert tiny["machine"]["sizes"]["rounds"] == TINY.rounds
    assert all(list(row) == COLUMNS for row in tiny["rows"])


def test_a_run_says_how_much_of_the_processors_others_had(tiny: dict[str, Any], tmp_path: Path) -> None:
    counters = tmp_path / "stat"
    counters.write_text("cpu  100 10 40 700 20 5 5 120 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    result = {**tiny, "machine": {**tiny["machine"], "stolen": 0.25}}

    later = processor_time(counters)

    assert later == ProcessorTime(total=1000, stolen=120)
    assert later.stolen_since(ProcessorTime(total=600, stolen=20)) == 0.25
    assert processor_time(tmp_path / "none") is None
    assert 0 <= tiny["machine"].get("stolen", 0) <= 1  # Not every system says so.
    assert "25% of their time taken by other guests" in markdown(result)


def test_table_page_and_chart_show_the_published_result() -> None:
    result = json.loads((RESULTS / "latest.json").read_text())

    assert all(list(row) == COLUMNS for row in result["rows"])
    assert (RESULTS / "latest.md").read_text() == markdown(result)
    assert section(result) in PAGE.read_text()
    assert CHART.read_text() == svg(result)


def test_table_and_chart_show_every_system(tiny: dict[str, Any]) -> None:
    book = Book()
    book.add(Measured("nebis", "postgres", "cycle", 64), "nebis@postgres", 0, _sample(9000))
    book.add(Measured("naive-psycopg", "postgres", "cycle", 64), "naive-psycopg@postgres", 0, _sample(1000))
    book.add(Measured("peer", "redis", "cycle", 64), "peer@redis", 0, _sample(500))
    book.note("peer@redis", "ran 8 times for 8 twins")
    book.note("dbos@postgres", "did not start: no such module")
    result = result_of(QUICK, tiny["machine"], book)

    table, chart = markdown(result), svg(result)

    assert "| nebis | postgres | 64 | 9,000 | 1 | 2 | 9 (9-9) |" in table
    assert "| peer (**ran 8 times for 8 twins**) | redis | 64 | 500 |" in table
    assert "| dbos | postgres | - | did not start: no such module |" in table
    assert "500 (ran 8 times for 8 twins)" in chart
    assert [text.text for text in ET.fromstring(chart).iter() if text.text == "nebis, postgres"]


def test_a_system_that_did_not_start_has_a_row_without_figures() -> None:
    book = Book()
    book.note("dbos@postgres", "did not start: no such module")

    [row] = result_of(QUICK, {}, book)["rows"]

    assert row["system"] == "dbos"
    assert all(row[name] is None for name in COLUMNS[3:])


def test_a_ratio_is_taken_round_by_round() -> None:
    book, ours, naive = Book(), Measured("nebis", "s", "cycle", 1), Measured("naive", "s", "cycle", 1)
    for turn, (fast, slow) in enumerate([(100, 10), (40, 20), (90, 30)]):
        book.add(ours, "nebis", turn, _sample(fast))
        book.add(naive, "naive", turn, _sample(slow))
    book.add(ours, "nebis", 3, _sample(1000))

    ratio = book.ratio(ours, naive)

    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == (3.0, 2.0, 10.0)


def test_calls_that_fail_are_noted_and_do_not_count() -> None:
    book, measured = Book(), Measured("peer", "redis", "replay", 1)
    failed = Sample(calls=0, failures=7, per_second=0.0, p50_ms=0.0, p99_ms=0.0, first_failure="Refused: 422")

    goes_on = book.add(measured, "peer@redis", 0, failed.as_dict())

    assert not goes_on
    assert book.per_second(measured) is None
    assert book.notes["peer@redis"] == ["replay: every call failed (Refused: 422)"]


@pytest.mark.parametrize(
    ("measured", "is_upper_bound", "noise", "reached"),
    [
        (8.0, False, None, True),
        (7.9, False, None, False),
        (7.9, False, 7.8, True),
        (8.0, True, None, True),
        (8.1, True, None, False),
        (None, False, None, None),
    ],
)
def test_a_floor_is_reached_by_the_median_or_inside_the_noise_of_the_bare_application(
    measured: float | None, is_upper_bound: bool, noise: float | None, reached: bool | None
) -> None:
    verdict = Verdict(what="", measured=measured, floor=8, goal=8, is_upper_bound=is_upper_bound, tolerance_from=noise)

    assert verdict.reaches(8) is reached


def test_every_floor_is_listed_even_if_nothing_was_measured() -> None:
    assert all(verdict.measured is None for verdict in verdicts(Book()))
    assert len(verdicts(Book())) == 23


def test_contenders_have_names_of_their_own() -> None:
    assert all(contender_of(contender.name) is contender for contender in CONTENDERS)


@pytest.mark.parametrize("http", [False, True])
@pytest.mark.parametrize(("case", "runs"), [("cycle", 3), ("replay", 1)])
def test_what_is_counted_by_instructions_is_what_is_said(tmp_path: Path, case: str, runs: int, *, http: bool) -> None:
    places = Places(postgres_url="", redis_url="", directory=tmp_path)

    executions = asyncio.run(instructions.run(contender_of("nebis@sqlite"), places, case=case, rounds=2, http=http))

    assert executions == runs * instructions.CALLERS
