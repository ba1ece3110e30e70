"""What is measured: a system on a store, opened inside a process of its own."""

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.work import Work

AsyncCall: TypeAlias = Callable[[str], Awaitable[object]]
BlockingCall: TypeAlias = Callable[[str], object]
App: TypeAlias = Callable[[MutableMapping[str, Any], Callable[[], Any], Callable[[Any], Any]], Awaitable[None]]

BARE = "bare"
"""The endpoint without any protection, of which every HTTP figure is a share."""
FRESH_KEYS = frozenset({"cycle", "single_tx"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a contender may keep its data; nobody else uses these."""

    postgres_url: str
    redis_url: str
    directory: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One system on one store. `open` gives a function of a key, `app` an ASGI application, for as long as it is open.

    The function runs the work under a new key, and answers with the stored answer under one that it knows.
    """

    system: str
    store: str
    open: Callable[[Places, Work], AbstractAsyncContextManager[AsyncCall | BlockingCall]] | None = None
    app: Callable[[Places, Work], AbstractAsyncContextManager[App]] | None = None
    cases: tuple[str, ...] = ("cycle", "replay")
    uses_threads: bool = False
    is_held_to_one_core: bool = False
    """Whether its process may use no other processor, as `taskset` holds it."""
    is_peer: bool = False

    @property
    def name(self) -> str:
        """Return what the contender is called on a command line."""
        suffix = ":single" if "single_tx" in self.cases else ""
        return f"{self.system}@{self.store}{suffix}"
