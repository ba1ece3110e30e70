"""A server process of the tests: on a free port of the loopback interface, with a directory of its own."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.engines.ports import free_port

_STOP_SECONDS = 60
_START_TRIES = 5

# Whoever runs the tests may be killed with SIGKILL; then this one ends the server and removes its files.
_JANITOR = 'cat >/dev/null; cd "$0" && for pid in pids/*; do kill -9 "${pid#pids/}" 2>/dev/null; done; rm -rf "$0"'


class Daemon(ABC):
    """One server: started at once, restarted on the same port and files, removed by `close` or by its janitor."""

    name: str
    """What the server is called in messages."""
    start_seconds: float = 60
    """How long it may take to start, on a machine that has much else to do."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix=f"nebis-{self.name.lower()}-"))
        (self._home / "pids").mkdir()
        self._janitor = subprocess.Popen(
            ["sh", "-c", _JANITOR, str(self._home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._log = self._home / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    def _environment(self) -> Mapping[str, str]:
        return {}

    def _is_ready(self) -> bool:
        """Tell whether the server answers; by default, whether it accepts connections."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        if self.is_running:
            return
        is_first_start = self._process is None
        deadline = time.monotonic() + self.start_seconds
        for _ in range(_START_TRIES):
            self._process = self._spawn(self._command())
            if self._is_ready_before(deadline):
                return
            if is_first_start:  # Later the port must stay: clients hold it, and wait for the server to come back.
                self.port = free_port()
        raise RuntimeError(f"{self.name} did not start. Its log ends with:\n{self.log[-2000:]}")

    def stop(self) -> None:
        """Ask the server to end, and wait for that."""
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        """Kill the server with SIGKILL."""
        self._end(signal.SIGKILL)

    def restart(self, *, crash: bool = False) -> None:
        """End the server and start it on the same port and files."""
        if crash:
            self.crash()
        else:
            self.stop()
        self.start()

    def close(self) -> None:
        """End the server for good and remove its files."""
        self.crash()
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()
        self._janitor.wait(timeout=_STOP_SECONDS)

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._home,
                env={**os.environ, **self._environment()},
                start_new_session=True,
            )
        (self._home / "pids" / str(process.pid)).touch()
        return process

    def _is_ready_before(self, deadline: float) -> bool:
        while time.monotonic() < deadline and self.is_running:
            if self._is_ready():
                return True
            time.sleep(0.01)  # Readiness shows only in answers; there is no event to wait for.
        self.crash()
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or not self.is_running:
            return
        self._reap(self._process, how)

    def _reap(self, process: subprocess.Popen[bytes], how: signal.Signals) -> None:
        process.send_signal(how)
        process.wait(timeout=_STOP_SECONDS)
        # The number may soon be somebody else's.
        (self._home / "pids" / str(process.pid)).unlink()
