"""Group commit between threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from nebis.core.answers import Answer, Locked
from nebis.core.verbs import Verb
from nebis.errors import Overloaded
from nebis.ports.store import IndefiniteFailure
from nebis.runtime.gathering import LANES, Gathering, Member, blames_a_member, own_copy

Send: TypeAlias = Callable[[Sequence[Verb]], Sequence[Answer | Locked]]

PATIENCE_SECONDS = 0.005
"""How long a few wait for a batch that is under way to end; several times what one takes unless it is held up."""


class Waiter:
    """A thread that waits for the answer to its verb."""

    __slots__ = ("answer", "error", "is_gone", "is_pending")

    def __init__(self) -> None:
        self.answer: Answer | Locked | None = None
        self.error: Exception | None = None
        self.is_gone = False
        """Set by a thread that was interrupted: it wakes nobody when its turn comes."""
        # A bare lock: an Event is built of the same, and costs ten times as much.
        self.is_pending = threading.Lock()
        self.is_pending.acquire()


def wake_next(answered: deque[Waiter]) -> bool:
    """Wake one thread, which wakes the next before it does anything else; tell whether there was one.

    All at once they would only stand in line for the interpreter, and be woken every few milliseconds to look whether
    it is free: three times as many switches between threads, measured with 64 of them.
    """
    while True:
        try:
            waiter = answered.popleft()
        except IndexError:
            return False
        waiter.is_pending.release()
        if not waiter.is_gone:
            return True


class BlockingBatcher:
    """Sends what the threads of one process ask for in shared batches; each gets an answer of its own.

    A caller that finds nobody waiting carries its verb itself, so that being alone costs nothing. What gathers
    meanwhile is carried by threads of ours: handing the work from caller to caller would wake everybody twice.

    A batch is sent once about as many wait as are still to come: those who are under way on another lane, and those
    who were answered and are being woken. So the callers fall into two groups, and while the store works for the one,
    the interpreter works for the other. Nobody waits for company that is not on its way.
    """

    def __init__(self, send: Send, gathering: Gathering[Waiter] | None = None, *, carriers: int = LANES) -> None:
        """Start no thread yet. `carriers` is how many batches the store can work on at the same time."""
        self._send = send
        self._gathering: Gathering[Waiter] = Gathering(is_shared_out=False) if gathering is None else gathering
        self._lock = threading.Lock()
        self._unanswered = 0
        self._under_way = 0
        """How many of the unanswered are with the store; the others wait."""
        self._answered: deque[Waiter] = deque()
        """Those who are still to be woken, one by the other."""
        self._is_waking = False
        """Whether somebody is awake who wakes the next of them."""
        self._most_carriers = carriers
        self._carriers: set[threading.Thread] = set()
        self._asleep: list[threading.Lock] = []
        """What idle carriers sleep on; released by whoever takes it out of here."""
        self._is_watched = False
        """Whether a carrier will look after those who wait without being called once more."""
        self._is_closed = False

    def apply(self, verb: Verb) -> Answer | Locked:
        """Send a verb with the next batch, and wait for its answer."""
        waiter = Waiter()
        try:
            with self._lock:
                # Counted first: one too many costs a look at an empty queue, and one too few would leave it waiting.
                self._unanswered += 1
                try:
                    self._gathering.add(verb, waiter)
                except Overloaded:
                    self._unanswered -= 1
                    raise
                is_alone = self._unanswered == 1 and not self._answered
                batch = self._next_batch() if is_alone else None
                if not batch and (self._is_worth_a_lane() or not (self._is_watched or self._is_waking)):
                    self._call_carrier()
            if batch:
                self._deliver(batch)
            waiter.is_pending.acquire()
            if self._is_waking:
                self._wake()
        except BaseException:
            # Interrupted. Said before the look at the others, while whoever wakes this one looks after it was woken:
            # one of the two sees the other, and nobody is left asleep.
            waiter.is_gone = True
            self._wake()
            raise
        if waiter.error is not None:
            raise waiter.error
        assert waiter.answer is not None  # Whoever wakes brings one of the two.
        return waiter.answer

    def close(self) -> None:
        """Answer everything that was asked for, and end the threads."""
        with self._lock:
            self._is_closed = True
            carriers = list(self._carriers)
            while self._asleep:
                self._asleep.pop().release()
        for carrier in carriers:
            carrier.join()

    def _is_worth_a_lane(self) -> bool:
        """Tell whether about as many wait as are still to come; the last few need not be waited for.

        A single carrier waits for all of them. Its store works in this process, and would share the processors with
        whoever is being woken: a sixth fewer cycles on SQLite.
        """
        waiting, answered = self._unanswered - self._under_way, len(self._answered)
        if answered and self._most_carriers == 1:
            return False
        return waiting > 0 and 4 * waiting >= 3 * (self._under_way + answered)

    def _next_batch(self) -> list[Member[Waiter]]:
        batch = self._gathering.take()
        self._under_way += len(batch)
        return batch

    def _wake(self) -> None:
        """Wake the next who was answered; the last of them sees to what came meanwhile."""
        while not wake_next(self._answered):
            with self._lock:
                if self._answered:
                    continue  # They were answered just now.
                self._is_waking = False
                if self._gathering.waiting:
                    self._call_carrier()
                return

    def _call_carrier(self) -> None:
        self._is_watched = True  # By this one, or else by those who are at work: there are no others.
        if self._asleep:
            self._asleep.pop().release()
        elif len(self._carriers) < self._most_carriers:
            carrier = threading.Thread(target=self._carry, name="nebis-batcher", daemon=True)
            self._carriers.add(carrier)
            carrier.start()

    def _carry(self) -> None:
        alarm = threading.Lock()
        alarm.acquire()
        is_impatient = False
        while True:
            with self._lock:
                batch = self._next_batch() if is_impatient or self._is_worth_a_lane() else []
                waiting = self._gathering.waiting
                self._is_watched = not batch and waiting > 0
                if not batch:
                    self._unanswered = self._under_way + waiting  # It is, unless somebody was interrupted as it asked.
                    if self._is_closed and not self._is_watched:
                        self._carriers.discard(threading.current_thread())
                        return
                    seconds = PATIENCE_SECONDS if self._is_watched else -1
                    self._asleep.append(alarm)
            if batch:
                self._deliver(batch)
                is_impatient = False
            else:
                is_impatient = self._sleep(alarm, seconds)

    def _sleep(self, alarm: threading.Lock, seconds: float) -> bool:
        """Sleep until called; tell whether nobody did for so long."""
        if alarm.acquire(timeout=seconds):
            return False
        with self._lock:
            if alarm in self._asleep:
                self._asleep.remove(alarm)
                return True
        alarm.acquire()  # Called in the same moment.
        return False

    def _deliver(self, batch: list[Member[Waiter]]) -> None:
        answers: Sequence[Answer | Locked] | None = None
        error: Exception = IndefiniteFailure("the process is ending")
        try:
            answers = self._sent([verb for verb, _, _ in batch])
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is the answer of those who wait.
            error = raised
        finally:
            is_split = answers is None and len(batch) > 1 and blames_a_member(error)
            if not is_split:
                _tell(batch, answers, error)
            with self._lock:
                self._under_way -= len(batch)
                self._gathering.leave(batch)
                if is_split:
                    self._gathering.put_apart(batch)
                    self._call_carrier()
                    is_waking = True
                else:
                    self._unanswered -= len(batch)
                    self._answered.extend([waiter for _, _, waiter in batch])
                    is_waking, self._is_waking = self._is_waking, True
            if not is_waking:
                self._wake()

    def _sent(self, verbs: Sequence[Verb]) -> Sequence[Answer | Locked]:
        try:
            return self._send(verbs)
        except IndefiniteFailure:
            # Sent again whole, with the same nonces, before anybody is told anything: mostly it is a connection that
            # broke, and the store recognises what it has already.
            return self._send(verbs)


def _tell(batch: list[Member[Waiter]], answers: Sequence[Answer | Locked] | None, error: Exception) -> None:
    """Give everybody an answer, or the error where there is none."""
    if answers is None:
        for _, _, waiter in batch:
            waiter.error = own_copy(error)
    else:
        for (_, _, waiter), answer in zip(batch, answers, strict=True):
            waiter.answer = answer
