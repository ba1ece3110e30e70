"""What a run found, for programs: JSON for scripts, JUnit for CI."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

from nebis.testing.torture.check import Result, Verdict
from nebis.testing.torture.runner import Run


def as_json(run: Run) -> dict[str, Any]:
    """Return the run as JSON values."""
    return {
        "target": run.target,
        "operation": run.operation,
        "started_at": run.started_at,
        "seconds": round(run.seconds, 3),
        "passed": run.has_passed,
        "counts": {verdict.value: len(run.having(verdict)) for verdict in Verdict},
        "checks": [_as_json(result) for result in run.results],
    }


def _as_json(result: Result) -> dict[str, Any]:
    check = result.check
    return {
        "id": check.id,
        "group": check.group.value,
        "title": check.title,
        "proves": check.proves,
        "faults": list(check.faults),
        "severity": check.severity.value,
        "verdict": result.verdict.value,
        "detail": result.detail,
        "reproduce": result.reproduce,
        "seconds": round(result.seconds, 3),
    }


def as_junit(run: Run) -> str:
    """Return the run as JUnit XML, one suite for each group."""
    spent = f"{run.seconds:.3f}"
    root = ET.Element("testsuites", {"name": "nebis torture", "time": spent, **_counts(run.results)})
    for group in dict.fromkeys(result.check.group for result in run.results):
        results = tuple(result for result in run.results if result.check.group is group)
        told = {
            "name": group.value,
            "hostname": run.target,
            "timestamp": run.started_at,
            "time": f"{sum(result.seconds for result in results):.3f}",
        }
        suite = ET.SubElement(root, "testsuite", {**told, **_counts(results)})
        for result in results:
            _add_case(suite, result)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _counts(results: tuple[Result, ...]) -> dict[str, str]:
    ended = [result.verdict for result in results]
    return {
        "tests": str(len(ended)),
        "failures": str(ended.count(Verdict.FAILED)),
        "skipped": str(ended.count(Verdict.SKIPPED)),
        "errors": "0",
    }


def _add_case(suite: ET.Element, result: Result) -> None:
    check = result.check
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"torture.{check.group.value}",
        name=f"{check.name}: {check.title}",
        time=f"{result.seconds:.3f}",
    )
    if result.verdict is Verdict.FAILED:
        failure = ET.SubElement(case, "failure", type=check.severity.value, message=_clean(result.detail))
        failure.text = _clean(f"{result.detail}\n{check.proves}\n{' '.join(check.faults)}\n{result.reproduce}")
    elif result.verdict is Verdict.SKIPPED:
        ET.SubElement(case, "skipped", message=_clean(result.detail))


def _clean(text: str) -> str:
    """Leave out what XML cannot hold; a server may have put it into a header."""
    return "".join(letter for letter in text if letter.isprintable() or letter == "\n")
