"""`python -m benchmarks`: measure, judge, and write the results down."""

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from benchmarks import upkeep
from benchmarks.book import Book, Measured
from benchmarks.chart import svg
from benchmarks.child import ROOT, Child, DidNotStart
from benchmarks.floors import verdicts
from benchmarks.load import Sample, described
from benchmarks.machine import commit, machine, processor_time
from benchmarks.plan import Plan, add_arguments, plan_of
from benchmarks.rounds import Stage, chosen, in_process, over_http, stage
from benchmarks.rows import rows_of
from benchmarks.table import markdown, placed, section

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "explanation" / "speed.md"
CHART = ROOT / "docs" / "images" / "bench.svg"
_UPKEEP = {"growth": upkeep.growth, "purge": upkeep.purge, "storage": upkeep.storage}
CPU_CALLERS = 64
_IN_PROCESS = frozenset({"cycle", "replay", "single_tx"})


def run(plan: Plan, log_path: Path) -> dict[str, Any]:
    """Measure what the plan asks for and return the whole result."""
    told, book, before = machine(), Book(), processor_time()
    stores = {contender.store for contender in chosen(plan)}
    try:
        with stage(stores, log_path, served_gigabytes=plan.served_gigabytes) as opened:
            _measure(plan, opened, book, stores & {"postgres", "sqlite"})
    except KeyboardInterrupt:
        book.note("run", "ended early by whoever started it")
    if before is not None and (after := processor_time()) is not None:
        told["stolen"] = round(after.stolen_since(before), 3)
    return result_of(plan, told, book)


def _measure(plan: Plan, opened: Stage, book: Book, stores: set[str]) -> None:
    if _IN_PROCESS & set(plan.only):
        in_process(plan, opened, book)
    if "http" in plan.only:
        over_http(plan, opened, book)
    for name, measure in _UPKEEP.items():
        if name in plan.only and opened.postgres is not None:
            try:
                measure(plan, opened, book)
            except Exception as error:  # noqa: BLE001 - half an hour of other figures must not be lost.
                book.note("nebis@postgres", f"{name} failed: {described(error)}")
    for name in ("steps", "memory", "fingerprint"):
        if name in plan.only:
            _probe(name, stores, opened, book)


def result_of(plan: Plan, told: dict[str, Any], book: Book) -> dict[str, Any]:
    """Return what is written down: rows, and what a reader needs to judge them."""
    return {
        "commit": commit(),
        "machine": {**told, "sizes": plan.sizes()},
        "rows": rows_of(book),
        "figures": {name: round(value, 4) for name, value in (book.figures | _processor_time(book)).items()},
        "floors": [verdict.as_dict() for verdict in verdicts(book)],
        "notes": {name: notes for name, notes in book.notes.items() if notes},
    }


def _processor_time(book: Book) -> dict[str, float]:
    """Return what a call costs the calling process, for Nebis and for the naive table on the same drivers."""
    return {
        f"cpu_us_per_{measured.case}_{measured.system}_{measured.store}": spent
        for measured in book.samples
        if measured.callers == CPU_CALLERS
        and measured.system.startswith(("nebis", "naive"))
        and measured.case in _IN_PROCESS
        and (spent := book.latency(measured, "cpu_us")) is not None
    }


def _probe(name: str, stores: set[str], opened: Stage, book: Book) -> None:
    for store in sorted(stores) if name == "steps" else sorted(stores)[:1]:
        book.progress(f"{name}, {store}")
        try:
            with Child("probe", f"{name}@{store}", opened.places(), opened.log) as child:
                found = child.greeting
        except DidNotStart as reason:
            book.note("nebis", f"{name} on {store} failed: {reason}")
            continue
        for step, figures in found.pop("steps", {}).items():
            sample = Sample(calls=0, failures=0, per_second=0.0, **figures)
            book.samples[Measured("nebis", store, f"step_{step}", 1)][0] = sample
        book.figures.update(found)


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add_arguments(parser)
    plan = plan_of(parser.parse_args())
    RESULTS.mkdir(parents=True, exist_ok=True)
    result = run(plan, RESULTS / "quick.log")
    # A part of the picture must not replace the whole.
    is_whole = plan.name == "full" and not plan.systems and "cycle" in plan.only and "http" in plan.only
    target = RESULTS / ("latest" if is_whole else "quick")
    target.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    target.with_suffix(".md").write_text(text := markdown(result))
    (CHART if is_whole else target.with_suffix(".svg")).write_text(svg(result))
    if is_whole:
        PAGE.write_text(placed(PAGE.read_text(), section(result)))
    sys.stdout.write(f"\n{text}\nWritten to {target.relative_to(ROOT)}.json and .md\n")


if __name__ == "__main__":
    main()
