"""How a child dies where it was told to: before or after any ask of the engine, any commit of the store, any call."""

import dataclasses
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from nebis import Nebis
from nebis.core.answers import Answer, Locked
from nebis.core.verbs import Verb
from nebis.flow import Ask, Flow
from nebis.ports.asks import (
    Apply,
    CallEffect,
    RunHandler,
    Tell,
    TransactionBegin,
    TransactionCommit,
    TransactionHold,
    TransactionIsSame,
    TransactionSettle,
)
from nebis.ports.observer import Completed, EffectKnown
from nebis.ports.store import Store
from nebis.runtime.blocking import BlockingTurn
from nebis.stores.sql.asks import Begin, Commit, Query, Write

Say = Callable[..., None]

_WRITES = frozenset({"claim", "complete", "save"})
"""Statements that change a record. Outside a transaction they are a commit of their own."""


_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Doom:
    """Counts how often each place was passed, and ends or freezes the process at one of them."""

    def __init__(self, say: Say, place: str | None, how: str) -> None:
        name, _, number = (place or "").partition("#")
        self._place = (name, int(number or 1)) if place else None
        self._how = how
        self._passed: Counter[str] = Counter()
        self._say = say
        self.renewing = threading.Lock()
        """Held during a renewal: whoever freezes inside one on SQLite keeps the whole file locked, for everybody."""

    def pass_by(self, name: str) -> None:
        """Go past a place, or not."""
        self._passed[name] += 1
        if self._place == (name, self._passed[name]):
            # Whoever dies waits for nobody; a renewal may be waiting for what this thread holds.
            with self.renewing if self._how == "stop" else nullcontext():
                self._say(doomed=name, how=self._how, pid=os.getpid())
                os.kill(os.getpid(), _SIGNALS[self._how])


class MortalStore:
    """A store whose commits are places to die at."""

    def __init__(self, store: Store, doom: Doom) -> None:
        self._store = store
        self._doom = doom

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def apply(self, verbs: Sequence[Verb], *, now: int | None = None) -> Flow[list[Answer | Locked]]:
        return self._relay(self._store.apply(verbs, now=now), type(verbs[0]).__name__.lower())

    def _relay(self, flow: Flow[Any], verb: str) -> Flow[Any]:
        try:
            ask = next(flow)
            is_inside = has_written = False
            while True:
                is_inside = is_inside or isinstance(ask, Begin)
                has_written = has_written or _is_write(ask)
                # A commit without a write is that of a try that found the row locked, by a renewal for example.
                is_commit = has_written and (isinstance(ask, Commit) or not is_inside)
                if is_commit:
                    self._doom.pass_by(f"before commit of {verb}")
                try:
                    answer = yield ask
                except BaseException as error:  # noqa: BLE001 - the flow decides, as with every driver.
                    ask = flow.throw(error)
                    continue
                if is_commit:
                    self._doom.pass_by(f"after commit of {verb}")
                ask = flow.send(answer)
        except StopIteration as stop:
            return stop.value


def _is_write(ask: Ask[Any]) -> bool:
    return isinstance(ask, Write) or (isinstance(ask, Query) and ask.statement.name in _WRITES)


_NAMES: dict[type[Ask[Any]], str] = {
    CallEffect: "call",
    RunHandler: "handler",
    TransactionBegin: "begin",
    TransactionHold: "hold",
    TransactionIsSame: "same",
    TransactionSettle: "settle",
    TransactionCommit: "commit",
}
_EVENTS: dict[type[object], str] = {Completed: "tell completed", EffectKnown: "tell effect known"}


def _name(ask: Ask[Any]) -> str | None:
    if isinstance(ask, Apply):
        return type(ask.verb).__name__.lower()
    if isinstance(ask, Tell):
        return _EVENTS.get(type(ask.event))
    return _NAMES.get(type(ask))


def make_mortal(nebis: Nebis, doom: Doom) -> None:
    """Put a place to die before and after everything that this process asks of its world and its store."""
    world, _ = nebis.opened()
    mortal: Any = MortalStore(world.backend.store, doom)
    world.backend = dataclasses.replace(world.backend, store=mortal)
    performs, renew = BlockingTurn.performs, world.heartbeat._renew

    def renewed(*arguments: Any) -> None:
        with doom.renewing:
            renew(*arguments)

    def performed(turn: BlockingTurn, ask: Ask[Any]) -> Any:
        name, perform = _name(ask), performs[type(ask)]
        if name is None:
            return perform(turn, ask)
        doom.pass_by(f"before {name}")
        answer = perform(turn, ask)
        if not isinstance(answer, Locked):  # A renewal held the row: nothing was done, and it is asked for again.
            doom.pass_by(f"after {name}")
        return answer

    BlockingTurn.performs = dict.fromkeys(performs, performed)
    # By name: a method cannot be assigned to under mypy.
    setattr(world.heartbeat, "_renew", renewed)  # noqa: B010
