"""The test's side: children that are started, frozen, thawed and awaited; and what all of it proves."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nebis.testing.bank import Bank
from nebis.testing.history import History, judge
from tests.matrix.points import Kind
from tests.matrix.troupe import Order, Part, now

ROOT = Path(__file__).parents[2]
LONGEST_SECONDS = 60.0
"""After this a child that says nothing is not slow but stuck."""


class Troupe:
    """A warm process that forks children on demand."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="nebis-")
        self._path = str(Path(self._home.name) / "line")
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.matrix.troupe", self._path],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._popen.stdout is not None
        assert self._popen.stdout.readline() == "ready\n", "the troupe did not start"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._popen.kill()
        self._popen.communicate()
        self._home.cleanup()

    @contextmanager
    def child(self, part: Part) -> Iterator["Child"]:
        """Start a child; whatever becomes of it, it is gone afterwards."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(LONGEST_SECONDS)
            line.connect(self._path)
            line.sendall(json.dumps(asdict(part)).encode() + b"\n")
            child = Child(line)
            try:
                yield child
            finally:
                child.end()


class Child:
    """One child, as far as it can be heard."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lines = line.makefile()
        self._frozen_pid: int | None = None

    def ask(self, kind: Kind, key: str, *, calls: int = 1, passes: int = 0) -> list[dict[str, Any]]:
        """Give an order, and return all that is said until it is done, or until death or frost."""
        order = asdict(Order(kind=kind, key=key, calls=calls, passes=passes))
        self._line.sendall(json.dumps(order).encode() + b"\n")
        return self.hear()

    def hear(self) -> list[dict[str, Any]]:
        """Return all that is said from now on until the order is done, or until death or frost."""
        said: list[dict[str, Any]] = []
        for line in self._lines:
            said.append(_told(line))
            if "end" in said[-1]:
                break
            if said[-1].get("how") == "stop":
                self._frozen_pid = said[-1]["pid"]
                break
        return said

    def thaw(self) -> None:
        """Let a frozen child go on."""
        assert self._frozen_pid is not None, "it never came to the place where it was to stop"
        os.kill(self._frozen_pid, signal.SIGCONT)
        self._frozen_pid = None

    def end(self) -> None:
        """Kill it if it is still frozen; otherwise it ends when nobody asks it any more."""
        if self._frozen_pid is not None:
            os.kill(self._frozen_pid, signal.SIGKILL)
        self._lines.close()


def _told(line: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(line)
    assert "broken" not in told, told["broken"]
    return told


@dataclass
class Evidence:
    """Everything that was seen of one key, from all sides."""

    bank: Bank
    kind: Kind
    key: str
    takings: Callable[[str], list[tuple[str, str]]]
    """Rows of one's own with this reference: their kind and the call that wrote them."""
    said: list[dict[str, Any]] = field(default_factory=list)

    def hear(self, said: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Add what one child said; a call that it did not live to see answered has no answer."""
        answered = {entry["call"] for entry in said if entry.get("type") in ("ok", "fail", "refused", "info")}
        lost = [entry for entry in said if entry.get("type") == "invoke" and entry["call"] not in answered]
        self.said += [*said, *({**entry, "type": "info", "code": "killed", "at": now()} for entry in lost)]
        return said

    @property
    def answers(self) -> list[str]:
        """Return every success that a client was told, as it was told."""
        return [entry["body"] for entry in self.said if entry.get("type") == "ok"]

    def codes(self, kind: str) -> set[str]:
        """Return why clients were told something of this kind."""
        return {entry["code"] for entry in self.said if entry.get("type") == kind}

    @property
    def last_record(self) -> dict[str, Any] | None:
        """Return the record as it was last seen."""
        return next((entry for entry in reversed(self.said) if entry.get("type") == "record"), None)

    @property
    def state(self) -> str | None:
        """Return the state in which the record was last seen."""
        return None if self.last_record is None else self.last_record["state"]

    @property
    def charges(self) -> int:
        """Count what really happened."""
        return len(self.effects())

    def effects(self) -> list[dict[str, Any]]:
        """Return every effect, as the history checker reads it."""
        if self.kind is Kind.TRANSACTIONAL:
            attempts = [call for kind, call in self.takings(self.key) if kind == "charge"]
        else:
            attempts = [entry["attempt"] for entry in self.bank.ledger(self.key)]
        tenant = f"acct of {self.key}"
        return [{"type": "effect", "tenant": tenant, "key": self.key, "at": 0, "attempt": call} for call in attempts]

    def calls(self, wanted: int) -> list[dict[str, Any]]:
        """Return the calls that the bank got, once it served as many as must have been sent to it."""

        def served() -> list[dict[str, Any]]:
            return [call for call in self.bank.requests(self.key) if call["status"] is not None]

        wait_until(lambda: len(served()) >= wanted, f"{wanted} calls at the bank")
        return served()

    def violations(self) -> list[str]:
        """Judge the whole history of this key by the twelve rules."""
        history = History()
        seen_states = [entry for entry in self.said if entry.get("type") in ("record", "completed")]
        told = [entry for entry in self.said if "type" in entry and entry not in seen_states]
        # A frozen child was heard to its end only after those that came while it was frozen.
        for entry in sorted(told, key=lambda entry: int(entry["at"])):
            history.add(entry)
        for entry in _last_of_each(seen_states):
            history.add(entry)
        for entry in self.effects():
            history.add(entry)
        return [str(violation) for violation in judge(history)]


def _last_of_each(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last look at each record: every child takes one, and they are one record all the same."""
    return list({(entry["type"], entry["record"]): entry for entry in entries}.values())


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for another process, within bounds."""
    deadline = time.monotonic() + LONGEST_SECONDS / 4
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)  # Another process, of which no event can be waited for.
