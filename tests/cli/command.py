"""The command as people run it: in a process of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from subprocess import PIPE

_ENTRY = "from nebis.cli import main; main()"


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    stdout: str
    stderr: str


def start_nebis(*arguments: str, store: str | None = None, **environment: str) -> subprocess.Popen[str]:
    """Start the command with its store in the environment and with none of the caller's own settings."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("NEBIS_", "PG", "NO_COLOR"))}
    named = {} if store is None else {"NEBIS_STORE": store}
    command = [sys.executable, "-c", _ENTRY, *arguments]
    return subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env={**ours, **named, **environment})


def nebis(*arguments: str, store: str | None = None, **environment: str) -> Outcome:
    """Run the command to its end; whatever happens, it must not show a traceback."""
    process = start_nebis(*arguments, store=store, **environment)
    stdout, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stdout + stderr
    return Outcome(process.returncode, stdout, stderr)
