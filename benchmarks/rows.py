"""The rows of a result: one per system, store, case and number of callers."""

from typing import Any

from benchmarks.book import Book, Measured, Ratio
from benchmarks.contender import BARE
from benchmarks.contenders import CONTENDERS

NAIVE = "naive-psycopg"
NAIVE_THREADS = "naive-psycopg2-threads"
NAIVE_ONE_CORE = "naive-psycopg2-threads-one-core"
NAIVE_SQLITE = "naive-sqlite"
_NAIVE_OF = {
    "nebis-threads": NAIVE_THREADS,
    "nebis-threads-one-core": NAIVE_ONE_CORE,
}
"""What is not compared with the usual naive way on Postgres."""
_HTTP = ("http_new", "http_replay")


def baseline_of(measured: Measured) -> Measured | None:
    """Return what a series is compared with: the naive table on the same store, for the same callers."""
    system, store, case, callers = measured
    if case not in {"cycle", "replay", "single_tx"}:
        return None
    compared = "replay" if case == "replay" else "cycle"
    if store == "sqlite" and compared == "cycle":
        return Measured(NAIVE_SQLITE, "sqlite", compared, callers)
    naive = _NAIVE_OF.get(system, NAIVE) if store == "postgres" else NAIVE
    return Measured(naive, "postgres", compared, callers)


def share_of_bare(book: Book, measured: Measured) -> Ratio | None:
    """Compare a series over HTTP with the two measurements of the bare application in each round."""
    first, again = _bare(book, measured.callers)
    ours = book.samples.get(measured, {})
    return Ratio.of(
        [
            2 * ours[turn].per_second / (first[turn].per_second + again[turn].per_second)
            for turn in sorted(ours.keys() & first.keys() & again.keys())
        ]
    )


def bare_range(book: Book, callers: int) -> Ratio | None:
    """Compare the bare application with itself, in each round: what a share cannot tell apart."""
    first, again = _bare(book, callers)
    return Ratio.of([again[turn].per_second / first[turn].per_second for turn in sorted(first.keys() & again.keys())])


def _bare(book: Book, callers: int) -> tuple[dict[int, Any], dict[int, Any]]:
    return (
        book.samples.get(Measured(BARE, "none", "http_new", callers), {}),
        book.samples.get(Measured(BARE, "none", "http_again", callers), {}),
    )


def rows_of(book: Book) -> list[dict[str, Any]]:
    """Return every series as a row, and an empty one for each contender that did not start."""
    rows = [_row(book, measured) for measured in book.samples if measured.case != "http_again"]
    present = {(measured.system, measured.store) for measured in book.samples}
    rows += [
        _empty(Measured(contender.system, contender.store, "cycle", 0))
        for contender in CONTENDERS
        if (contender.system, contender.store) not in present and contender.name in book.notes
    ]
    return rows


def _row(book: Book, measured: Measured) -> dict[str, Any]:
    baseline = baseline_of(measured)
    ratio = book.ratio(measured, baseline) if baseline is not None else None
    is_http = measured.case in _HTTP
    share = share_of_bare(book, measured) if is_http else None
    bare = bare_range(book, measured.callers) if is_http else None
    return {
        **_empty(measured),
        "ops_per_second": None if measured.case.startswith("step_") else _rounded(book.per_second(measured), 1),
        "p50_ms": _rounded(book.latency(measured, "p50_ms"), 4),
        "p99_ms": _rounded(book.latency(measured, "p99_ms"), 4),
        "ratio_to_naive": ratio and _rounded(ratio.median, 3),
        "ratio_range": ratio and [_rounded(ratio.low, 3), _rounded(ratio.high, 3)],
        "share_of_bare": share and _rounded(share.median, 3),
        "bare_range": bare and [_rounded(bare.low, 3), _rounded(bare.high, 3)],
    }


def _empty(measured: Measured) -> dict[str, Any]:
    return {
        "system": measured.system,
        "store": measured.store,
        "case": measured.case,
        "concurrency": measured.callers or None,
        "ops_per_second": None,
        "p50_ms": None,
        "p99_ms": None,
        "ratio_to_naive": None,
        "ratio_range": None,
        "share_of_bare": None,
        "bare_range": None,
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
