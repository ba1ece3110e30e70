"""A process that forks others on request: each opens a shop, sells, and is killed or stopped on its way.

Importing everything takes longer than selling; a fork has it all. `python -m tests.transactions.nursery` reads an order
as a line of JSON and forks; the line `wait` makes it wait for all its children and tell how they ended.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from nebis.stores.sql.postgres.transactions_asyncpg import AsyncpgTransactions
from nebis.stores.sql.postgres.transactions_psycopg import AsyncPsycopgTransactions, BlockingPsycopgTransactions
from nebis.stores.sql.sqlite.transactions import SqliteTransaction
from tests.transactions.scenes import WORK, Scene, Step, announce, finish, pay
from tests.transactions.shops import QUICK, open_shop

STATEMENTS: tuple[tuple[type, str], ...] = (
    (BlockingPsycopgTransactions, "perform"),
    (AsyncPsycopgTransactions, "perform"),
    (AsyncpgTransactions, "perform"),
    (SqliteTransaction, "begin"),
    (SqliteTransaction, "_perform"),
    (SqliteTransaction, "is_same"),
    (SqliteTransaction, "commit"),
)


class Executioner:
    """Counts the moments between the statements of a transaction, and kills the process in one of them."""

    def __init__(self, at: int | None) -> None:
        self._at = at
        self.moments = 0

    def pass_moment(self) -> None:
        if self.moments == self._at:
            signal.raise_signal(signal.SIGKILL)
        self.moments += 1

    def watch(self, owner: type, name: str) -> None:
        """Make a moment of the time before each call."""
        act: Callable[..., Any] = getattr(owner, name)

        def watched(*arguments: Any) -> Any:
            self.pass_moment()
            return act(*arguments)

        setattr(owner, name, watched)

    def around(self, steps: tuple[Step, ...]) -> list[Step]:
        """Make a moment of the time before each step, too."""
        return [each for step in steps for each in (lambda _: self.pass_moment(), step)]


def stop(_: Scene) -> None:
    """Stop as a machine does that is suspended."""
    signal.raise_signal(signal.SIGSTOP)  # To this very thread: a signal to the process may let it go on for a while.


STOPS: dict[str, tuple[tuple[Step, ...], tuple[Step, ...]]] = {
    "nowhere": ((), WORK),
    "before the transaction": ((stop,), WORK),
    "inside the transaction": ((), (pay, stop, announce, finish)),
}


def live(order: dict[str, Any]) -> None:
    """Do what a child was made for, and tell how it ended."""
    executioner = Executioner(order.get("kill_at"))
    for owner, name in STATEMENTS:
        executioner.watch(owner, name)
    shop = open_shop(order["driver"], order["url"], order["mode"], store=order.get("store"), **QUICK)
    shop.prelude, steps = STOPS[order.get("stops", "nowhere")]
    try:
        execution = shop.sell(order["key"], *executioner.around(steps))
        told = f"{execution.result} by another" if execution.is_replay else execution.result
    except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to know.
        told = type(error).__name__
    executioner.pass_moment()  # After the last statement, the COMMIT.
    say(key=order["key"], told=told, moments=executioner.moments)


def say(**told: Any) -> None:
    os.write(sys.stdout.fileno(), json.dumps(told).encode() + b"\n")


def main() -> None:
    children: dict[int, str] = {}
    for line in sys.stdin:
        if line.strip() == "wait":
            ended = {key: os.waitpid(pid, 0)[1] for pid, key in children.items()}
            children.clear()
            say(ended=ended)
            continue
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                live(order)
            finally:
                os._exit(0)
        children[pid] = order["key"]
        if "stops" in order:
            os.waitpid(pid, os.WUNTRACED)
        say(pid=pid)


class Nursery:
    """The test's end of it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.transactions.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._heard: list[dict[str, Any]] = []

    def order(self, **order: Any) -> int:
        """Have a child made; return its process id, for one that stops only once it has."""
        self._write(json.dumps(order))
        return int(self._hear("pid")["pid"])

    def wait(self) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
        """Wait until all children have ended; return how, and what those that lived had to tell."""
        self._write("wait")
        ended = self._hear("ended")["ended"]
        told = {line["key"]: line for line in self._heard}
        self._heard.clear()
        return ended, told

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # Also the children that are stopped.
        self._process.communicate()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self, name: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        while True:
            line: dict[str, Any] = json.loads(self._process.stdout.readline())
            if name in line:
                return line
            self._heard.append(line)


if __name__ == "__main__":
    main()
