"""What the processes of these tests do. Each is told its part by arguments, and the rest line by line.

It says what it does on its standard output and goes on when a line comes in. Every run of a handler leaves one line in
a file that is only ever appended to: a witness that no store can talk into anything.
"""

import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from nebis import Attempt, InDoubt, InFlight, Local, Nebis, NotYet, Opaque, Policy
from nebis.ports.observer import Completed, Event

OPERATION = "pay"
TENANT = "acct_1"


class Witness:
    """A file of lines, one for each run, written with a single atomic append."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def ran(self, key: str) -> None:
        """Leave a line."""
        os.write(self._file, f"{key}\n".encode())


def say(**told: object) -> None:
    """Tell the test what happened."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def wait_for_word() -> str:
    """Wait until the test says how to go on."""
    return sys.stdin.readline().strip()


def race(url: str, witness_path: str, keys_path: str, answers_path: str) -> None:
    """Ask for every key of a list, in its order, and write down every answer."""
    witness = Witness(Path(witness_path))
    answers: dict[str, str] = {}
    with Nebis(url) as nebis:

        @nebis.operation(OPERATION, effects=Local)
        def pay(attempt: Attempt, command: str) -> str:
            witness.ran(command)
            return f"{command} by {os.getpid()} as {attempt.fence}"

        waiting = deque(json.loads(Path(keys_path).read_text()))
        say(ready=True)
        wait_for_word()
        while waiting:
            key = waiting.popleft()
            try:
                answers[key] = pay(key=key, tenant=TENANT, command=key)
            except NotYet:
                waiting.append(key)
    Path(answers_path).write_text(json.dumps(answers, sort_keys=True))
    say(done=True)


def attempt(url: str, witness_path: str, key: str, effects: str, lease_seconds: str) -> None:
    """Run one key; stop inside the handler and again between the commit and the answer, until a word comes."""
    witness = Witness(Path(witness_path))

    def observe(event: Event) -> None:
        if isinstance(event, Completed):
            say(completed=True)
            wait_for_word()

    with Nebis(url, observers=[observe]) as nebis:
        lease = timedelta(seconds=float(lease_seconds))
        mode = Opaque if effects == "opaque" else Local

        @nebis.operation(OPERATION, effects=mode, lease=lease, renewal=lease / 3, effect_timeout=lease / 2)
        def pay(attempt: Attempt, command: str) -> str:
            witness.ran(command)
            say(running=attempt.number)
            wait_for_word()
            return f"by {os.getpid()}"

        try:
            execution = pay.execute(key=key, tenant=TENANT, command=key)
            say(answer=execution.result, is_replay=execution.is_replay)
        except (InFlight, InDoubt) as error:
            say(error=type(error).__name__)


def fork(url: str, witness_path: str, children: str) -> None:
    """Use a store, fork while it is open and while an attempt runs, and use it in every process."""
    witness = Witness(Path(witness_path))
    inside, may_end = threading.Event(), threading.Event()
    nebis = Nebis(url)

    @nebis.operation(OPERATION, effects=Local)
    def pay(command: str) -> str:
        witness.ran(command)
        if command == "slow":
            inside.set()
            may_end.wait(Policy(effects=Local).confirm.total_seconds())
        return f"{command} by {os.getpid()}"

    before = pay(key="key-before-the-fork", tenant=TENANT, command="before")
    slow = threading.Thread(target=lambda: pay(key="key-across-the-fork", tenant=TENANT, command="slow"))
    slow.start()
    inside.wait()
    pids = []
    for number in range(int(children)):
        pid = os.fork()
        if pid == 0:
            os._exit(_child(nebis, number, before))
        pids.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    may_end.set()
    slow.join()
    after = [pay(key=f"key-of-child-{number}", tenant=TENANT, command="child") for number in range(int(children))]
    across = pay(key="key-across-the-fork", tenant=TENANT, command="slow")
    nebis.close()
    say(statuses=statuses, before=before, after=after, across=across, pid=os.getpid())


def _child(nebis: Nebis, number: int, before: str) -> int:
    pay = nebis.operations[OPERATION]
    for again in range(20):
        if pay(key="key-before-the-fork", tenant=TENANT, command="before") != before:
            return 2
        if pay(key=f"key-of-child-{number}", tenant=TENANT, command="child") != f"child by {os.getpid()}":
            return 3
        if again == 10:
            nebis.close()
    nebis.close()
    return 0


if __name__ == "__main__":
    PARTS: dict[str, Callable[..., None]] = {"race": race, "attempt": attempt, "fork": fork}
    PARTS[sys.argv[1]](*sys.argv[2:])
