"""Three processes, started together, restarted one by one when they die, and ended together."""

import ctypes
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from examples.payments.demo.make import Make

HEALTHY_SECONDS = 110
STOP_SECONDS = 4
LOOK_SECONDS = 0.05
RESTART_SECONDS = 1.0
"""A process that dies at once is not started again at once."""
GATEWAY = Path(__file__).parents[1] / "gateway.py"


class Unhealthy(Exception):
    """A process that does not come up."""


class Child:
    """One process that is to be there."""

    def __init__(self, name: str, command: list[str], door: int | None = None) -> None:
        self.name = name
        self._command = command
        self._doors = () if door is None else (door,)
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self.starts = 0

    def start_if_gone(self) -> str | None:
        """Start it unless it runs; return how it ended, if it had."""
        ended = self._process.poll() if self._process is not None else None
        if self._process is not None and ended is None:
            return None
        if time.monotonic() - self._began < RESTART_SECONDS and self.starts > 1:
            return None
        self._began, self.starts = time.monotonic(), self.starts + 1
        # A session of its own: Ctrl-C reaches the supervisor alone, which ends the others in order.
        self._process = subprocess.Popen(  # noqa: S603 - commands of our own.
            self._command,
            stdin=subprocess.DEVNULL,
            pass_fds=self._doors,
            start_new_session=True,
            preexec_fn=_die_with_parent() if sys.platform == "linux" else None,  # noqa: PLW1509 - no threads here.
        )
        return None if ended is None else _how(ended)

    @property
    def pid(self) -> int:
        """Return its process id."""
        assert self._process is not None
        return self._process.pid

    def send(self, number: int) -> None:
        """Send a signal, if there is somebody to get it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def has_ended_by(self, deadline: float) -> bool:
        """Wait for its end."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True


class Supervisor:
    """Keeps the payments API, the worker and the card gateway running."""

    def __init__(self, *, door: socket.socket, port: int, folder: Path, store: str) -> None:
        python = [sys.executable, "-u", "-m"]
        gateway = [sys.executable, str(GATEWAY), "--port", str(port + 1), "--file", str(folder / "gateway.db")]
        self._children = (
            Child("gateway", gateway),
            Child("api", [*python, "examples.payments.demo.serve", str(door.fileno())], door.fileno()),
            Child("worker", [*python, "examples.payments.worker"]),
        )
        self._port = port
        self._store = store
        self._make = Make()
        self._is_ending = False

    def run(self) -> None:
        """Start everything, and look after it until a signal says that it is enough."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)
        try:
            self._look_after(until=self._is_healthy, deadline=time.monotonic() + HEALTHY_SECONDS)
            if not self._is_ending:
                print(welcome(self._port, self._store), flush=True)
            for child in self._children:
                print(f"  {child.name:8} pid {child.pid}", flush=True)
            self._look_after(until=lambda: False, deadline=float("inf"))
        finally:
            self._stop()

    def _look_after(self, until: Callable[[], bool], deadline: float) -> None:
        looks = 0
        while not self._is_ending:
            for child in self._children:
                how = child.start_if_gone()
                if how is not None:
                    print(f"  {child.name} {how}; started again, pid {child.pid}", flush=True)
            looks += 1
            if looks % 5 == 0:
                if self._make.has_ended():
                    return self._end()
                if until():
                    return None
            if time.monotonic() > deadline or (deadline != float("inf") and self._gives_up()):
                raise Unhealthy("The demo does not come up; what its processes said is above.")
            time.sleep(LOOK_SECONDS)
        return None

    def _gives_up(self) -> bool:
        return any(child.starts > 3 for child in self._children)

    def _is_healthy(self) -> bool:
        try:
            for port in (self._port, self._port + 1):
                with _opener.open(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
                    answer.read()
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _end(self, *_: object) -> None:
        self._is_ending = True

    def _stop(self) -> None:
        """End everybody, first politely; whoever is still there then is killed, which nothing here minds."""
        deadline = time.monotonic() + STOP_SECONDS
        for child in reversed(self._children):
            child.send(signal.SIGTERM)
        for child in self._children:
            if not child.has_ended_by(deadline):
                child.send(signal.SIGKILL)
                child.has_ended_by(time.monotonic() + 1)


def welcome(port: int, store: str) -> str:
    """Say where everything is and what to try."""
    address = f"http://127.0.0.1:{port}"
    return f"""
Nebis demo. Ctrl-C ends it.

  Retry Lab      {address}/
  Payments API   {address}/v1/payments
  Card gateway   http://127.0.0.1:{port + 1}/charges
  Store          {_without_password(store)}

Send this twice; the card is charged once and both answers are the same:

  curl -i {address}/v1/payments -H 'Authorization: Bearer demo-alice' \\
    -H 'Idempotency-Key: 7c9e6679-7425-40de-944b-e07fc1f90ae7' -H 'Content-Type: application/json' \\
    -d '{{"invoice_id": "inv_1", "amount_cents": 4200, "currency": "USD", "card": "4242424242424242"}}'

Then open the Retry Lab and break it, or kill -9 any of these while it works:
"""


def _without_password(store: str) -> str:
    parts = urlsplit(store)
    if parts.scheme == "sqlite" or "@" not in parts.netloc:
        return store
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def _die_with_parent() -> Callable[[], None]:
    """Return what makes a process die with its supervisor, even if that is killed."""
    library, parent, die_with_parent = ctypes.CDLL(None), os.getpid(), 1

    def promise() -> None:
        library.prctl(die_with_parent, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return promise


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
