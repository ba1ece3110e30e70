"""The bank as a process of its own, started and stopped by a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from nebis.testing.bank.client import Bank

STOP_SECONDS = 10.0


class BankProcess:
    """A bank process; it also ends by itself should the test that started it be killed."""

    def __init__(self, file: Path) -> None:
        self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module.
            [sys.executable, "-m", "nebis.testing.bank", "--port", "0", "--file", str(file), "--while-open"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError(f"The bank did not start (exit code {self._popen.wait(STOP_SECONDS)}); see its stderr.")
        self.bank = Bank(int(json.loads(line)["port"]))

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._popen.pid

    def kill(self) -> None:
        """End it as a power cut would; its books stay."""
        self._popen.kill()
        self._wait()

    def leave(self) -> int:
        """Let go of it, as a starter that died would, and return how it ended."""
        return self._wait()

    def _wait(self) -> int:
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            pipe.close()
        return self._popen.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        """Return the running process."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.kill()
