"""Group commit between threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from nebis.core.answers import Answer, Locked
from nebis.core.verbs import Verb
from nebis.ports.store import IndefiniteFailure
from nebis.runtime.gathering import Gathering, Member, blames_a_member, own_copy

Send: TypeAlias = Callable[[Sequence[Verb]], Sequence[Answer | Locked]]


class Waiter:
    """A thread that waits for the answer to its verb."""

    __slots__ = ("answer", "error", "is_gone", "is_pending", "others")

    def __init__(self) -> None:
        self.answer: Answer | Locked | None = None
        self.error: Exception | None = None
        self.others: Iterator[Waiter] = _NOBODY
        """Those of its batch who are still to be woken: one iterator for all, so that each is woken once."""
        self.is_gone = False
        """Set by a thread that was interrupted: it wakes nobody when its turn comes."""
        # A bare lock: an Event is built of the same, and costs ten times as much.
        self.is_pending = threading.Lock()
        self.is_pending.acquire()


_NOBODY: Iterator[Waiter] = iter(())


def wake_next(waiters: Iterator[Waiter]) -> None:
    """Wake one thread, which wakes the next before it does anything else.

    All at once they would only stand in line for the interpreter, and be woken every few milliseconds to look whether
    it is free: three times as many switches between threads, measured with 64 of them.
    """
    for waiter in waiters:
        waiter.is_pending.release()
        if not waiter.is_gone:
            return


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
        self._unanswered = 0
        self._carrier: threading.Thread | None = None
        self._carrier_sleeps = False
        self._alarm = threading.Lock()
        self._alarm.acquire()
        """What the carrier sleeps on; released at most once for each time that it said so."""
        self._is_closed = False

    def apply(self, verb: Verb) -> Answer | Locked:
        """Send a verb with the next batch, and wait for its answer."""
        waiter = Waiter()
        gathering = self._gathering
        try:
            with self._lock:
                gathering.add(verb, waiter)
                self._unanswered += 1
                batch = gathering.take() if self._unanswered == 1 else None
                if batch is None and (self._carrier_sleeps or self._carrier is None):
                    self._call_carrier()
            if batch:
                self._deliver(batch)
            waiter.is_pending.acquire()
            wake_next(waiter.others)
        except BaseException:
            # Interrupted. Said before the look at the others, while whoever wakes this one looks after it was woken:
            # one of the two sees the other, and nobody is left asleep.
            waiter.is_gone = True
            wake_next(waiter.others)
            raise
        if waiter.error is not None:
            raise waiter.error
        assert waiter.answer is not None  # Whoever wakes brings one of the two.
        return waiter.answer

    def close(self) -> None:
        """Answer everything that was asked for, and end the thread."""
        with self._lock:
            self._is_closed = True
            carrier = self._carrier
            if carrier is not None:
                self._call_carrier()
        if carrier is not None:
            carrier.join()

    def _call_carrier(self) -> None:
        if self._carrier_sleeps:
            self._carrier_sleeps = False
            self._alarm.release()
        elif self._carrier is None:
            self._carrier = threading.Thread(target=self._carry, name="nebis-batcher", daemon=True)
            self._carrier.start()

    def _carry(self) -> None:
        while True:
            with self._lock:
                batch = self._gathering.take()
                if not batch:
                    if self._is_closed and not self._gathering.waiting:
                        return
                    self._carrier_sleeps = True
            if batch:
                self._deliver(batch)
            else:
                self._alarm.acquire()

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
                else:
                    self._unanswered -= len(batch)
                self._gathering.leave(batch)
                if self._gathering.waiting:
                    self._call_carrier()
            if not is_split:
                _tell(batch, answers, error)

    def _sent(self, verbs: Sequence[Verb]) -> Sequence[Answer | Locked]:
        try:
            return self._send(verbs)
        except IndefiniteFailure:
            # Sent again whole, with the same nonces, before anybody is told anything: mostly it is a connection that
            # broke, and the store recognises what it has already.
            return self._send(verbs)


def _tell(batch: list[Member[Waiter]], answers: Sequence[Answer | Locked] | None, error: Exception) -> None:
    """Give everybody an answer, or the error where there is none, and wake the first of them."""
    waiters = [member.waiter for member in batch]
    others = iter(waiters)
    if answers is None:
        for waiter in waiters:
            waiter.error, waiter.others = own_copy(error), others
    else:
        for waiter, answer in zip(waiters, answers, strict=True):
            waiter.answer, waiter.others = answer, others
    wake_next(others)
