"""How a layer runs what lives with the tests: modules that say what they saw, and tests that pass or do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

from nebis.testing.prove.evidence import Seen

LONGEST_SECONDS = 4 * 3600.0
PYTEST_RAN = (0, 1)
"""Of pytest's exit codes, 1 says that tests ran and failed; all above, that none could."""


def told(root: Path, module: str, *marks: object) -> Seen:
    """Run a module that says what it saw in its last line."""
    finished = run([sys.executable, "-m", module, *map(str, marks)], root)
    try:
        said = json.loads(finished.stdout.splitlines()[-1])
        failures = [str(failure) for failure in said.pop("violations")]
    except (IndexError, ValueError):
        return Seen(breakdowns=[f"{module} broke down:\n{finished.stderr[-2000:]}"])
    return Seen(counts={name: int(number) for name, number in said.items()}, failures=failures)


def passed(
    root: Path, seen: Seen, *paths: str, processes: int, settings: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Run tests, put to what was seen which of them failed, and return the module and name of each that passed."""
    with tempfile.TemporaryDirectory() as home:
        report = Path(home) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--numprocesses={processes}", f"--junitxml={report}"]
        finished = run([*command, *paths], root, settings or {})
        if finished.returncode not in PYTEST_RAN:
            seen.breakdowns.append(f"the tests of {', '.join(paths)} did not run:\n{finished.stdout[-2000:]}")
            return []
        names = []
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 - we wrote it ourselves.
            broken = next((part for part in case if part.tag in ("failure", "error")), None)
            if broken is not None:
                told_of = f"{case.get('classname')}.{case.get('name')}"
                seen.failures.append(f"{told_of} failed:\n{(broken.text or '')[-2000:]}")
            elif case.find("skipped") is None:
                names.append((case.get("classname") or "", case.get("name") or ""))
        return names


def run(command: list[str], root: Path, settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; one that takes too long ends with nothing said."""
    environment = {**os.environ, **(settings or {})}
    try:
        return subprocess.run(  # noqa: S603 - our own interpreter and our own modules.
            command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 1, stdout="", stderr=str(error))
