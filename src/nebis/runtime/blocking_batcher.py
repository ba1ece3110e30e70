"""Group commit between threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from nebis.core.answers import Answer, Locked
from nebis.core.verbs import Verb
from nebis.ports.store import IndefiniteFailure
from nebis.runtime.gathering import Gathering, Member, blames_a_member, own_copy

Send: TypeAlias = Callable[[Sequence[Verb]], Sequence[Answer | Locked]]


class Waiter:
    """A thread that waits for the answer to its verb."""

    __slots__ = ("_answer", "_error", "_is_pending")

    def __init__(self) -> None:
        self._answer: Answer | Locked | None = None
        self._error: Exception | None = None
        # A bare lock: an Event is built of the same, and costs ten times as much.
        self._is_pending = threading.Lock()
        self._is_pending.acquire()

    def answer(self, answer: Answer | Locked) -> None:
        """Wake the thread with its answer."""
        self._answer = answer
        self._is_pending.release()

    def fail(self, error: Exception) -> None:
        """Wake the thread with what it is to raise."""
        self._error = error
        self._is_pending.release()

    def wait(self) -> Answer | Locked:
        """Return the answer when it is there, or raise."""
        with self._is_pending:
            if self._error is not None:
                raise self._error
            assert self._answer is not None  # Whoever wakes brings one of the two.
            return self._answer


class BlockingBatcher:
    """Sends what the threads of one process ask for in shared batches; each gets an answer of its own.

    A caller that finds nobody waiting carries its verb itself, so that being alone costs nothing. What gathers
    meanwhile is carried by a thread of ours: handing the work from caller to caller would wake everybody twice.
    """

    def __init__(self, send: Send, gathering: Gathering[Waiter] | None = None) -> None:
        self._send = send
        # There is one carrier: a second one would only fight it for the interpreter's lock.
        self._gathering: Gathering[Waiter] = Gathering(is_shared_out=False) if gathering is None else gathering
        self._lock = threading.Lock()
        self._has_work = threading.Condition(self._lock)
        self._carrier: threading.Thread | None = None
        self._is_closed = False

    def apply(self, verb: Verb) -> Answer | Locked:
        """Send a verb with the next batch, and wait for its answer."""
        waiter = Waiter()
        with self._lock:
            is_first = self._gathering.is_quiet
            self._gathering.add(verb, waiter)
            batch = self._gathering.take() if is_first else []
            if not batch:
                self._call_carrier()
        if batch:
            self._deliver(batch)
        return waiter.wait()

    def close(self) -> None:
        """Answer everything that was asked for, and end the thread."""
        with self._lock:
            self._is_closed = True
            self._has_work.notify()
            carrier = self._carrier
        if carrier is not None:
            carrier.join()

    def _call_carrier(self) -> None:
        if self._carrier is None:
            self._carrier = threading.Thread(target=self._carry, name="nebis-batcher", daemon=True)
            self._carrier.start()
        self._has_work.notify()

    def _carry(self) -> None:
        while True:
            with self._lock:
                while not (batch := self._gathering.take()):
                    if self._is_closed and not self._gathering.waiting:
                        return
                    self._has_work.wait()
            self._deliver(batch)

    def _deliver(self, batch: list[Member[Waiter]]) -> None:
        answers: Sequence[Answer | Locked] | None = None
        error: Exception = IndefiniteFailure("the process is ending")
        try:
            answers = self._sent([member.verb for member in batch])
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is the answer of those who wait.
            error = raised
        finally:
            with self._lock:
                is_split = answers is None and len(batch) > 1 and blames_a_member(error)
                if is_split:
                    self._gathering.put_apart(batch)
                self._gathering.leave(batch)
                if self._gathering.waiting:
                    self._call_carrier()
            if answers is not None:
                for member, answer in zip(batch, answers, strict=True):
                    member.waiter.answer(answer)
            elif not is_split:
                for member in batch:
                    member.waiter.fail(own_copy(error))

    def _sent(self, verbs: Sequence[Verb]) -> Sequence[Answer | Locked]:
        try:
            return self._send(verbs)
        except IndefiniteFailure:
            # Sent again whole, with the same nonces, before anybody is told anything: mostly it is a connection that
            # broke, and the store recognises what it has already.
            return self._send(verbs)
