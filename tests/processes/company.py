"""Real processes, each with a line to talk on."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class Process:
    """One process that plays a part of `tests/processes/child.py`."""

    def __init__(self, part: str, *arguments: object) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.child", part, *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._popen.kill()
        self._popen.communicate()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def hear(self) -> dict[str, Any]:
        """Wait for the next thing that the process says."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        assert line, f"the process ended with {self._popen.wait()} without a word"
        told: dict[str, Any] = json.loads(line)
        return told

    def go_on(self) -> None:
        """Say the word that the process waits for."""
        assert self._popen.stdin is not None
        self._popen.stdin.write("go on\n")
        self._popen.stdin.flush()

    def stop(self) -> None:
        """Freeze the process where it stands."""
        self._popen.send_signal(signal.SIGSTOP)

    def go_on_again(self) -> None:
        """Thaw the process."""
        self._popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process without a chance to clean up."""
        self._popen.kill()
        self._popen.wait()


def runs(witness: Path) -> Counter[str]:
    """Count how often each command really ran."""
    return Counter(witness.read_text().splitlines())
