"""The parent's side of a process that is talked to in lines of JSON."""

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from benchmarks.contender import Places

ROOT = Path(__file__).parents[1]
_STOP_SECONDS = 30


class DidNotStart(Exception):
    """Why a contender does not take part."""


class Child:
    """A process that was started for the benchmarks; it is ended by its own pid."""

    def __init__(self, module: str, name: str | None, places: Places | None, log: IO[bytes]) -> None:
        words = [sys.executable, "-m", f"benchmarks.{module}"]
        if name is not None and places is not None:
            words += [name, "--postgres", places.postgres_url, "--redis", places.redis_url]
            words += ["--directory", str(places.directory)]
        self._process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        self.greeting: dict[str, Any] = {}
        """What the process said first."""

    def __enter__(self) -> Self:
        """Wait until the process is ready; raise `DidNotStart` if it never is."""
        self.greeting = self.hear()
        if "failed" in self.greeting:
            self.close()
            raise DidNotStart(self.greeting["failed"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, **order: Any) -> dict[str, Any]:
        """Send one order and wait for what becomes of it; `failed` says why it could not be done."""
        self.tell(**order)
        return self.hear()

    def tell(self, **order: Any) -> None:
        """Send one order."""
        assert self._process.stdin is not None
        # A process that is gone is noticed by whoever reads its answer.
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for the next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"failed": "its process ended"}
        return answer

    def close(self) -> None:
        """End the process: politely, and after a while not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
