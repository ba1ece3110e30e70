"""The whole demo, as `make demo` runs it: a supervisor and its processes, in a folder and on ports of their own."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from tests.engines.ports import free_port
from tests.tidy.repository import ROOT

UP_SECONDS = 60
ALICE = "demo-alice"
_COMMAND = (sys.executable, "-m", "examples.payments.demo")
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a server answered."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_replay(self) -> bool:
        return self.headers.get("idempotency-replayed") == "true"


class Demo:
    """A running demo; whoever leaves the block ends it and everything that it started."""

    def __init__(
        self, folder: Path, *, store: str | None = None, command: Sequence[str] = _COMMAND, cwd: Path | None = None
    ) -> None:
        self.port = two_free_ports()
        self.folder = folder
        self._log = folder / "demo.log"
        # The store of whoever runs the tests has no business in there.
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("NEBIS")}
        self.environment |= {"PORT": str(self.port), "PYTHONPATH": str(ROOT)}
        if store is not None:
            self.environment["NEBIS_STORE"] = store
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=cwd or folder,
                env=self.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
                # As a terminal starts it: whoever runs the tests in the background may have interrupts ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - one call, no locks.
            )

    def __enter__(self) -> Self:
        wait_until(
            lambda: "worker   pid" in self.said() or self.process.poll() is not None,
            seconds=UP_SECONDS,
            what=self.said,
        )
        assert self.process.poll() is None, self.said()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(10)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)

    def said(self) -> str:
        """Return what it has printed."""
        return self._log.read_text()

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        token: str | None = ALICE,
        gateway: bool = False,
        timeout: float = 30,
    ) -> Reply:
        """Send one request; raise `OSError` if the connection does not last until the answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port + gateway}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        if key is not None:
            request.add_header("Idempotency-Key", key)
        try:
            with _answer_to(request, timeout) as answer:
                return Reply(status=answer.status, body=answer.read(), headers=_lower(answer.headers))
        except http.client.HTTPException as broken:
            # Whoever was killed between the head of an answer and its body has not answered.
            raise ConnectionError(f"the answer broke off ({type(broken).__name__})") from broken

    def post(self, path: str, body: object, key: str | None = None, **options: Any) -> Reply:
        return self.call("POST", path, body, key=key or str(uuid4()), **options)

    def get(self, path: str, **options: Any) -> Any:
        return self.call("GET", path, **options).json

    def pay(self, invoice: str, key: str | None = None, *, cents: int = 4200, **options: Any) -> Reply:
        return self.post("/v1/payments", payment(invoice, cents=cents), key, **options)

    def behave(self, **behaviour: int) -> None:
        """Tell the gateway how to misbehave."""
        assert self.call("POST", "/behaviour", behaviour, gateway=True).status == 200

    def charges(self, invoice: str | None = None) -> list[dict[str, Any]]:
        """Return what moved money, by the gateway's own books."""
        found = self.get("/charges", gateway=True)["charges"]
        return [charge for charge in found if invoice in (None, charge["invoice_id"])]

    def pid(self, name: str) -> int:
        """Return the process id of the API, the worker or the gateway, as the supervisor said it last."""
        named = [line.split() for line in self.said().splitlines() if line.strip().startswith(f"{name} ")]
        return int([words[-1] for words in named if words[-1].isdigit()][-1])

    def kill(self, name: str) -> None:
        """End a process as the kernel would: without a word."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.pid(name) != pid, seconds=10, what=self.said)


def _answer_to(request: urllib.request.Request, timeout: float) -> Any:
    """Return the answer, whatever its status."""
    try:
        return _opener.open(request, timeout=timeout)
    except urllib.error.HTTPError as refusal:
        return refusal


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def payment(invoice: str, *, cents: int = 4200, card: str = "4242424242424242") -> dict[str, object]:
    return {"invoice_id": invoice, "amount_cents": cents, "currency": "USD", "card": card}


def two_free_ports() -> int:
    """Return the first of two ports in a row that nobody has."""
    for _ in range(100):
        port = free_port()
        with socket.socket() as second:
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise RuntimeError("No two free ports in a row on 127.0.0.1.")


def wait_until(is_so: Callable[[], bool], *, seconds: float, what: Callable[[], object] = lambda: "") -> None:
    """Look until something outside this process is so; fail with what is there instead."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {seconds} s: {what()}"
        time.sleep(0.05)
