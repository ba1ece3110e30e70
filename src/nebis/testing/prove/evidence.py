"""What was seen, as a file: a night adds up piece by piece, for as long as the code stays the same."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEYS = (
    "model_states",
    "model_violations",
    "poisoned_states",
    "simulation_seeds",
    "simulation_violations",
    "kills",
    "protocol_cuts",
    "failovers",
    "soak_requests",
    "violations",
    "planted_bugs_total",
    "planted_bugs_caught",
    "torture_checks",
    "mutation_score",
)
ADD_UP = frozenset(KEYS) - {"planted_bugs_total", "planted_bugs_caught", "torture_checks", "mutation_score"}
"""What grows with each piece; the others are what the last piece saw."""


def commit_of(root: Path) -> str:
    """Return the commit of the code that is proved: later ones that touch no code change nothing."""
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%H", "--", "src"],  # noqa: S607 - wherever git is.
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "0" * 40


def is_changed(root: Path) -> bool:
    """Tell whether the code is not that of any commit."""
    asked = subprocess.run(
        ["git", "status", "--porcelain", "--", "src"],  # noqa: S607 - wherever git is.
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return bool(asked.stdout.strip())


def place_of(root: Path, size: str) -> Path:
    """Return where a size keeps what it saw; only a night is committed."""
    return root / ("proof/latest.json" if size == "night" else f".nebis/proof-{size}.json")


def read(place: Path, commit: str) -> dict[str, Any]:
    """Return what was seen of this commit so far."""
    if place.exists():
        known: dict[str, Any] = json.loads(place.read_text())
        if known.get("commit") == commit:
            return known
    return {"commit": commit, **dict.fromkeys(KEYS, 0)}


def added(known: Mapping[str, Any], counts: Mapping[str, int], violations: int) -> dict[str, Any]:
    """Return what is known after one more piece."""
    total = dict(known)
    for name in KEYS:
        if name in counts:
            total[name] = total[name] + counts[name] if name in ADD_UP else counts[name]
    total["violations"] += violations
    return total


def write(place: Path, total: Mapping[str, Any]) -> None:
    """Keep it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(total, indent=2) + "\n")
