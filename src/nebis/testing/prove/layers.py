"""The layers: each fails differently, and each says what it saw."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree as ET

from nebis.testing.modelcheck import CONFIGURATIONS, check_all
from nebis.testing.modelcheck.configurations import named
from nebis.testing.modelcheck.proof import deeper
from nebis.testing.prove.sizes import Size
from nebis.testing.simulate.campaign import play_all

KILLS = {
    ("tests.matrix.test_kill", "test_cell"): 1,
    ("tests.matrix.test_kill", "test_successor_that_dies_at_the_same_point_has_a_successor_too"): 2,
    ("tests.matrix.test_replies", "test_no_that_nobody_lived_to_hear_is_asked_for_again_where_that_is_safe"): 1,
    ("tests.matrix.test_stop", "test_cell"): 1,
    ("tests.matrix.test_stop", "test_owner_that_is_frozen_inside_its_transaction_is_not_taken_over"): 1,
    ("tests.matrix.test_worker", "test_cell"): 1,
}
"""How many processes one cell of the matrix kills or freezes."""
LONGEST_SECONDS = 4 * 3600.0


@dataclass(slots=True)
class Seen:
    """What a layer saw."""

    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """What broke a promise, or kept the layer from looking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """One run of the proof."""

    size: Size
    root: Path
    commit: str
    processes: int
    piece: int
    """Which piece of a night it is; each goes on where the last one ended."""


def model(campaign: Campaign) -> Seen:
    """Search every order of faults of small worlds."""
    if campaign.size.model == "none" or campaign.piece > 0:
        return Seen()
    fenced = named("fenced")
    worlds = [*CONFIGURATIONS, replace(fenced, name="fenced, one crash more", crashes=fenced.crashes + 1)]
    if campaign.size.model == "deeper":
        worlds = [deeper(world, 1) for world in CONFIGURATIONS]
    seen = Seen(counts={"model_states": 0, "model_violations": 0, "poisoned_states": 0})
    for report in check_all(worlds, processes=campaign.processes):
        seen.counts["model_states"] += report.result.states
        seen.counts["model_violations"] += report.result.violations.total() - report.result.poisoned
        seen.counts["poisoned_states"] += report.result.poisoned
        seen.failures += report.stories
    return seen


def simulation(campaign: Campaign) -> Seen:
    """Play seeds."""
    seeds = campaign.size.seeds
    seen = Seen(counts={"simulation_seeds": 0, "simulation_violations": 0})
    for tally in play_all(campaign.piece * seeds, seeds, processes=campaign.processes):
        seen.counts["simulation_seeds"] += tally.seeds
        seen.counts["simulation_violations"] += len(tally.stories)
        seen.failures += tally.stories
    return seen


def kills(campaign: Campaign) -> Seen:
    """Kill and freeze real processes at every point."""
    if not campaign.size.has_kills:
        return Seen()
    seen = Seen(counts={"kills": 0})
    for module, test in _passed(campaign, seen, "tests/matrix"):
        seen.counts["kills"] += KILLS.get((module, test.partition("[")[0]), 0)
    return seen


def cuts(campaign: Campaign) -> Seen:
    """Cut connections after each protocol message."""
    return _told(campaign, "tests.testing.prove.cuts", "--every", campaign.size.cut_every)


def soak(campaign: Campaign) -> Seen:
    """Load both stores while things go wrong."""
    size = campaign.size
    marks = ("--requests", size.soak_requests, "--faults", size.soak_faults, "--seed", campaign.piece + 1)
    return _told(campaign, "tests.testing.prove.soak", *marks)


def planted(campaign: Campaign) -> Seen:
    """Plant known bugs: a layer that does not see the one that it must see is blind."""
    part = campaign.size.planted_part
    return _told(campaign, "tests.planted", "--part", part, "--turn", int(campaign.commit[:8], 16) % part)


def torture(campaign: Campaign) -> Seen:
    """Run the torture kit against the reference service, and against servers that it must fail."""
    if not campaign.size.has_torture:
        return Seen()
    seen = Seen(counts={"torture_checks": 0})
    passed = _passed(
        campaign, seen, "tests/testing/torture/test_reference_service.py", "tests/testing/torture/test_servers.py"
    )
    seen.counts["torture_checks"] = len(passed)
    return seen


def mutation(campaign: Campaign) -> Seen:
    """Change the core in every small way, and see how often its own tests notice."""
    if not campaign.size.has_mutation or campaign.piece > 0:
        return Seen()
    return _told(campaign, "tests.planted.mutation")


LAYERS: dict[str, Callable[[Campaign], Seen]] = {
    "model check": model,
    "simulation": simulation,
    "kill matrix": kills,
    "protocol cuts": cuts,
    "soak": soak,
    "planted bugs": planted,
    "torture kit": torture,
    "mutation": mutation,
}


def _told(campaign: Campaign, module: str, *marks: object) -> Seen:
    """Run a module that says what it saw in its last line."""
    command = [sys.executable, "-m", module, *map(str, marks)]
    finished = _run(command, campaign.root)
    try:
        said = json.loads(finished.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return Seen(failures=[f"{module} broke down:\n{finished.stderr[-2000:]}"])
    failures = [str(failure) for failure in said.pop("violations")]
    return Seen(counts={name: int(number) for name, number in said.items()}, failures=failures)


def _passed(campaign: Campaign, seen: Seen, *paths: str) -> list[tuple[str, str]]:
    """Run tests, and return the module and name of each that passed."""
    with tempfile.TemporaryDirectory() as home:
        report = Path(home) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--numprocesses={campaign.processes}", f"--junitxml={report}"]
        finished = _run([*command, *paths], campaign.root)
        if not report.exists():
            seen.failures.append(f"the tests of {paths} did not run:\n{finished.stdout[-2000:]}")
            return []
        cases = ET.parse(report).iter("testcase")  # noqa: S314 - we wrote it ourselves.
        passed = []
        for case in cases:
            if case.find("failure") is not None or case.find("error") is not None:
                seen.failures.append(f"{case.get('classname')}.{case.get('name')} failed")
            elif case.find("skipped") is None:
                passed.append((case.get("classname") or "", case.get("name") or ""))
        return passed


def _run(command: list[str], root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own interpreter and our own modules.
        command, cwd=root, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
    )
