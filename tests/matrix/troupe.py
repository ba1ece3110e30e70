"""A process that is asked to fork children, each of which plays one part, says what happens, and may die on the way.

Forking one that has everything imported already is what makes hundreds of real deaths affordable.
"""

import ctypes
import hashlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import nebis.stores.sql.postgres.psycopg_access  # noqa: F401 - imported once here, not in every child.
from nebis import InDoubt, InFlight, Nebis, NotYet, Operation, Rejected
from nebis.core.record import Record, State
from nebis.ports.observer import AttemptStarted, Completed, Event
from nebis.ports.store import Scan
from nebis.worker import Worker
from tests.matrix.mortal import Doom, make_mortal
from tests.matrix.operations import MODES, Receipt, Till, declare
from tests.matrix.points import Kind
from tests.matrix.sabotage import SABOTAGES

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a child is: a process of the service, with or without a place to die."""

    url: str
    bank_port: int
    place: str | None = None
    how: str = "kill"
    lease_seconds: float
    timeout_seconds: float = 30.0
    """How long it waits for the bank."""
    persists: bool = False
    """Whether its handlers ask again, in the same attempt, after a call without an answer."""
    sabotage: str | None = None
    """A bug to plant in it."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What it is asked for: one operation under one key, a few times."""

    kind: Kind
    key: str
    calls: int = 1
    passes: int = 0
    """How often its worker looks after everything that is due, before the calls."""


def now() -> int:
    """Return the time as both stores count it on one machine, in microseconds."""
    return time.time_ns() // 1000


class Actor:
    """One child: a process that serves the operations of every kind."""

    def __init__(self, part: Part, line: socket.socket) -> None:
        self._part = part
        self._orders = line.makefile()
        self._line = line.makefile("w")
        self._key = ""
        self._watched: frozenset[str] | None = None
        """The records that are told about while a worker looks after all that there are."""

    def play(self) -> None:
        """Serve orders until they end, or until the place where it dies."""
        part = self._part
        if part.sabotage is not None:
            SABOTAGES[part.sabotage]()
        doom = Doom(self._say, part.place, part.how)
        with Nebis(part.url, observers=[self._observe], housekeeping=False, migrate=False) as nebis:
            lease = timedelta(seconds=part.lease_seconds)
            tills = {kind: self._till(kind, doom) for kind in Kind}
            served = {kind: declare(nebis, kind, tills[kind], lease, persists=part.persists) for kind in Kind}
            make_mortal(nebis, doom)
            worker = Worker(nebis)
            for line in self._orders:
                order = Order(**json.loads(line))
                self._key = order.key
                for _ in range(order.passes):
                    self._work(nebis, worker, tills[order.kind])
                for number in range(order.calls):
                    self._call(served[order.kind], tills[order.kind], number)
                    doom.pass_by("after answer")
                self._tell_record(nebis)
                self._say(end=order.key)

    def _till(self, kind: Kind, doom: Doom) -> Till:
        return Till(
            doom=doom,
            bank_port=self._part.bank_port,
            mode=MODES.get(kind, MODES[Kind.OPAQUE]),
            marker="?" if self._part.url.startswith("sqlite") else "%s",
            timeout_seconds=self._part.timeout_seconds,
        )

    def _work(self, nebis: Nebis, worker: Worker, till: Till) -> None:
        """Make one pass, and say how the record stood before and after it, and when that was on the store's clock."""
        backend = nebis.opened()[0].backend
        till.call = f"{os.getpid()}-{self._key}-worker-{now()}"
        before = self._records(nebis)
        self._watched = frozenset(str(record.record_id) for record in before)
        began = backend.sessions.run(backend.store.clock())
        worker.run_once()
        ended = backend.sessions.run(backend.store.clock())
        self._watched = None
        lease_until = min((record.lease_until for record in before), default=0)
        self._say(passed=[record.state for record in before], began=began, ended=ended, lease_until=lease_until)
        self._tell_record(nebis)

    def _records(self, nebis: Nebis) -> list[Record]:
        backend = nebis.opened()[0].backend
        return backend.sessions.run(backend.store.scan(Scan(tenant=self._tenant)))

    def _call(self, take: Operation[str, Receipt], till: Till, number: int) -> None:
        till.call = f"{os.getpid()}-{self._key}-{number}-{now()}"
        self._told("invoke", till.call, command=self._key, nonce=self._key)
        try:
            receipt = take(key=self._key, tenant=self._tenant, command=self._key)
        except Exception as error:  # noqa: BLE001 - whatever a client is told is what the history is about.
            self._told_error(till.call, error)
        else:
            self._told_receipt(till.call, receipt)

    @property
    def _tenant(self) -> str:
        return f"acct of {self._key}"

    def _told_receipt(self, call: str, receipt: Receipt) -> None:
        body = json.dumps(asdict(receipt), sort_keys=True)
        self._told(
            "ok",
            call,
            digest=hashlib.sha256(body.encode()).hexdigest(),
            body=body,
            body_tenant=receipt.tenant,
            body_nonce=receipt.reference,
        )

    def _told_error(self, call: str, error: Exception) -> None:
        if isinstance(error, Rejected):
            self._told("fail", call, code=error.code)
        elif isinstance(error, InFlight):
            self._told("refused", call, code=error.code)
        else:
            code = error.code if isinstance(error, InDoubt | NotYet) else type(error).__name__
            self._told("info", call, code=code)

    def _tell_record(self, nebis: Nebis) -> None:
        """Say how the record stands, as the store tells it."""
        for record in self._records(nebis):
            self._told("record", state=record.state, reason=record.doubt_reason, record=str(record.record_id))
            if record.state is State.COMPLETED:
                self._told("completed", at=record.completed_at, record=str(record.record_id))

    def _observe(self, event: Event) -> None:
        if self._watched is not None and event.operation_id not in self._watched:
            return
        if isinstance(event, AttemptStarted):
            self._told("granted", record=event.operation_id, fence=event.fence)
        elif isinstance(event, Completed):
            self._say(stored=event.kind)

    def _told(self, kind: str, call: str | None = None, **marks: Any) -> None:
        entry = {"type": kind, "tenant": self._tenant, "key": self._key, "at": now(), **marks}
        self._say(**(entry if call is None else {**entry, "call": call}))

    def _say(self, **told: Any) -> None:
        self._line.write(json.dumps(told) + "\n")
        self._line.flush()


def serve(path: str) -> None:
    """Fork a child for each part that comes in, until standard input is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The dead are nobody's business here: their end of the line closes.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            if any(key.fileobj is sys.stdin for key, _ in selector.select()):
                return
            line, _ = listener.accept()
            part = Part(**json.loads(_first_line(line)))
            if os.fork() == 0:
                os._exit(_act(part, line))
            line.close()


def _first_line(line: socket.socket) -> bytes:
    """Read one line and not a byte more: what follows it is the child's to read."""
    read = bytearray()
    while not read.endswith(b"\n"):
        read += line.recv(1)
    return bytes(read)


def _act(part: Part, line: socket.socket) -> int:
    # Frozen children could outlive everybody otherwise.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        Actor(part, line).play()
    except BaseException as error:  # noqa: BLE001 - the only way to learn of a child's own mistake.
        line.sendall(json.dumps({"broken": repr(error)}).encode() + b"\n")
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
