"""A downstream that keeps its own books, so that no store can talk anybody into anything."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from nebis import Rejected


class Crash(BaseException):
    """The end of a process, right here; nothing may catch it."""


@dataclass
class Bank:
    """Does each thing once per key, and remembers every call."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    """(what, key), in order, however they ended."""
    books: dict[str, str] = field(default_factory=dict)
    """What was done, by key."""
    before: dict[str, Callable[[], object]] = field(default_factory=dict)
    """What happens when a call comes in and nothing is done yet."""
    after: dict[str, Callable[[], object]] = field(default_factory=dict)
    """What happens when it is done and nobody knows it yet."""
    unreachable: int = 0
    """How often the bank cannot be asked."""
    voided: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def do(self, what: str, key: str) -> str:
        """Do something, unless this key did it before."""
        with self._lock:
            self.calls.append((what, key))
        self.before.get(what, lambda: None)()
        if key in self.voided:
            raise Rejected("voided")
        with self._lock:
            self.books.setdefault(key, what)
        self.after.get(what, lambda: None)()
        return f"{what} done"

    @property
    def done(self) -> Counter[str]:
        """How often each thing was really done."""
        return Counter(self.books.values())

    def keys(self, what: str) -> list[str]:
        """Under which keys something was asked for."""
        return [key for name, key in self.calls if name == what]

    def find(self, key: str) -> str | None:
        """Say what became of a key."""
        if self.unreachable:
            self.unreachable -= 1
            raise ConnectionError
        return f"{self.books[key]} done" if key in self.books else None

    def void(self, key: str) -> None:
        """Make sure that nothing ever happens under a key."""
        self.voided.add(key)


def once(error: BaseException) -> Callable[[], object]:
    """Raise the first time only."""
    left = [error]

    def happen() -> None:
        if left:
            raise left.pop()

    return happen
