"""The command as people run it: in a process of its own."""

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from subprocess import PIPE

_ENTRY = "from nebis.cli import main; main()"
LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    stdout: str
    stderr: str


def start_nebis(*arguments: str, store: str | None = None, **environment: str) -> subprocess.Popen[str]:
    """Start the command with its store in the environment and with none of the caller's own settings."""
    command = [sys.executable, "-c", _ENTRY, *arguments]
    return subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=_environment(store, environment))


def nebis(*arguments: str, store: str | None = None, **environment: str) -> Outcome:
    """Run the command to its end; whatever happens, it must not show a traceback."""
    if all(name.startswith("NEBIS_") for name in environment):
        outcome = _forked(arguments, _environment(store, environment))
    else:  # What else is in the environment may matter to an interpreter that starts, or to what it imports.
        process = start_nebis(*arguments, store=store, **environment)
        stdout, stderr = process.communicate(timeout=LONGEST_SECONDS)
        outcome = Outcome(process.returncode, stdout, stderr)
    assert "Traceback" not in outcome.stdout + outcome.stderr
    return outcome


def _environment(store: str | None, environment: dict[str, str]) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("NEBIS_", "PG", "NO_COLOR"))}
    named = {} if store is None else {"NEBIS_STORE": store}
    return {**ours, **named, **environment}


def _forked(arguments: tuple[str, ...], environment: dict[str, str]) -> Outcome:
    line, _ = _nursery(os.getpid())
    request = {"arguments": arguments, "environment": environment, "directory": os.getcwd()}  # noqa: PTH109 - a word for the child.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        socket.send_fds(line, [json.dumps(request).encode()], [stdout.fileno(), stderr.fileno()])
        status = int(line.recv(64))
        said = []
        for stream in (stdout, stderr):
            stream.seek(0)
            said.append(stream.read().decode())
    return Outcome(status, *said)


@functools.cache
def _nursery(_: int) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Return the line to a process that ends when this one, the only other that holds it, does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.cli.nursery", str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    ours.settimeout(LONGEST_SECONDS)
    return ours, process
