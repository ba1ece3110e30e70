"""One thread per process that keeps its claims alive, on a connection of its own.

It must not run on the loop or the pool that it guards: a handler that blocks either would end its own lease
(F051, F095).
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from nebis.core.answers import Grant, Locked, Refusal, Refused
from nebis.core.quick import maker
from nebis.core.record import Ownership, Record
from nebis.core.verbs import Complete, Renew, Suspend, Verb, identity_of
from nebis.flows.late import late_result_of
from nebis.ports.history import AttemptNote
from nebis.ports.store import BlockingSessions, Store, StoreFailure

log = logging.getLogger("nebis.heartbeat")

TAKEN = frozenset({Refusal.FENCED, Refusal.OTHER_LIFE, Refusal.ABSENT})
"""Refusals that mean that another attempt, or nobody, owns the record. In doubt is not one: its owner may complete."""

RETRY_SECONDS = 1.0
"""After a failed renewal, and between two tries of a write that its caller no longer waits for."""

NOTE_AFTER_SECONDS = 1.0
"""An attempt that lives for so long is written down for people; most end sooner and cost nothing (decision 0005)."""


class Owner(Protocol):
    """Whoever has a handler that must stop once its claim is lost."""

    def stop_handler(self) -> None:
        """Have it stopped; called from the heartbeat's thread."""
        ...


@dataclass(slots=True, eq=False)
class Watch:
    """One claim that is kept alive, and the news that it was lost."""

    record: Record
    """As it was granted."""
    lease_us: int
    renewal_seconds: float
    due: float
    note_due: float
    owner: Owner | None = None
    """Who is stopped once the claim is lost; nobody any more once it is forgotten."""
    is_noted: bool = False
    """Whether it is written down for people."""
    lost_reason: Refusal | None = None
    suspension: Suspend | None = None
    """The write by which its owner lets the lease lapse, set before it is sent."""

    @property
    def ownership(self) -> Ownership:
        """Return what its writes are guarded by; made when it is asked for, as most attempts end before that."""
        return self.record.ownership

    @property
    def is_lost(self) -> bool:
        """Tell whether another attempt took over: stop, whatever is written now is refused."""
        return self.lost_reason is not None

    def sends(self, verb: Verb) -> Verb:
        """Return a write that its owner is about to send, having noted one that a renewal must not undo."""
        if isinstance(verb, Suspend):
            self.suspension = verb
        return verb

    def lose(self, reason: Refusal) -> None:
        """Spread the news that another attempt took over."""
        self.lost_reason = reason
        owner = self.owner  # Looked at once, as whoever forgets this watch takes it out.
        if owner is not None:
            owner.stop_handler()


_make_watch: Final = maker(Watch)


class Heartbeat:
    """Renews every live claim of the process in one batch, and goes on with writes that nobody waits for."""

    def __init__(self, store: Store, connect: Callable[[], BlockingSessions], applied: Callable[[Verb], None]) -> None:
        self._store = store
        self._connect = connect
        self._applied = applied
        self._condition = threading.Condition()
        # Changed without the lock, as each change is a single step of the interpreter; read as a copy.
        self._watches: set[Watch] = set()
        self._unconfirmed: dict[bytes, Verb] = {}
        self._retry_at = 0.0
        self._wakes_at = 0.0
        """When the thread looks again by itself; zero while it is at work, after which it looks anyway. Set before the
        thread looks, and read by others after they added something to look at: one of the two sees the other."""
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, record: Record, lease_us: int, renewal_seconds: float, owner: Owner | None = None) -> Watch:
        """Renew this claim from now on, until `forget`, and have its owner stopped once it is lost."""
        now = time.monotonic()
        # A successor is rare and always of interest: its predecessor is gone.
        due, note_due = now + renewal_seconds, now + NOTE_AFTER_SECONDS if record.attempts == 1 else now
        watch = _make_watch(record, lease_us, renewal_seconds, due, note_due, owner)
        self._watches.add(watch)
        if self._thread is None or note_due < self._wakes_at or due < self._wakes_at:
            with self._condition:
                self._start()
                self._condition.notify()
        return watch

    def forget(self, watch: Watch) -> None:
        """Renew this claim no longer."""
        self._watches.discard(watch)
        # It holds this watch: the circle would wait for the garbage collector.
        watch.owner = None

    def let_go(self) -> list[Watch]:
        """Renew nothing any longer, and return what was kept alive: its process is about to end."""
        watches = list(self._watches)
        self._watches.difference_update(watches)
        return [watch for watch in watches if not watch.is_lost]

    def keep_trying(self, verb: Verb) -> None:
        """Go on sending a write whose caller has been told "not confirmed"; until it lands the lease decides."""
        with self._condition:
            self._unconfirmed[identity_of(verb)] = verb
            self._retry_at = time.monotonic()
            self._start()
            self._condition.notify()

    def close(self) -> None:
        """Stop the thread and close its connection. Claims that are still alive lapse and are recovered."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        """Start the thread with the first thing that it has to do: an idle process needs no connection for it."""
        if self._thread is None and not self._is_closed:
            self._thread = threading.Thread(target=self._run, name="nebis-heartbeat", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        sessions: BlockingSessions | None = None
        while True:
            with self._condition:
                while not self._is_closed and (seconds := self._seconds_to_next()) != 0.0:
                    self._condition.wait(seconds)
                self._wakes_at = 0.0
                if self._is_closed:
                    break
                watches, unnoted = self._due_watches(), self._due_notes()
                writes = list(self._unconfirmed.values()) if self._retry_at <= time.monotonic() else []
            try:
                sessions = sessions or self._connect()
                self._renew(sessions, watches)
                self._send(sessions, [*writes, *self._undone(watches)])
                self._write_down(sessions, unnoted)
            except StoreFailure as failure:
                # Not lost, only unknown: the handler goes on, and the guard of its last write decides (F016).
                log.warning("a renewal was not confirmed (%s); trying again", failure.detail)
                self._put_off(watches)
                self._put_off_notes(unnoted)
            except Exception:  # The thread must outlive any fault, or every lease of the process lapses.
                log.exception("the heartbeat failed; trying again")
                self._put_off(watches)
                self._put_off_notes(unnoted)
        if sessions is not None:
            sessions.close()

    def _seconds_to_next(self) -> float | None:
        """Return how long the thread may sleep, None for until it is woken, and announce when it will wake up."""
        self._wakes_at = math.inf
        next_due = min((_next_due(watch) for watch in self._living()), default=math.inf)
        if self._unconfirmed:
            next_due = min(next_due, self._retry_at)
        self._wakes_at = next_due
        return None if next_due == math.inf else max(0.0, next_due - time.monotonic())

    def _living(self) -> list[Watch]:
        return [watch for watch in list(self._watches) if not watch.is_lost]

    def _due_watches(self) -> list[Watch]:
        """Return what to renew now, an identity at most once: an attempt and its successor may live in one process."""
        now = time.monotonic()
        due = {watch.record.identity: watch for watch in self._living() if watch.due <= now}
        return list(due.values())

    def _due_notes(self) -> list[Watch]:
        now = time.monotonic()
        return [watch for watch in self._living() if not watch.is_noted and watch.note_due <= now]

    def _write_down(self, sessions: BlockingSessions, unnoted: list[Watch]) -> None:
        """Write attempts down for people. Nothing depends on it, so it comes last and may fail."""
        if not unnoted:
            return
        notes = [_noted(watch.record, watch.lease_us) for watch in unnoted]
        try:
            sessions.run(self._store.note_attempts(notes))
        except StoreFailure as failure:
            log.info("attempts were not written down (%s); trying again", failure.detail)
            self._put_off_notes(unnoted)
        else:
            for watch in unnoted:
                watch.is_noted = True

    def _renew(self, sessions: BlockingSessions, watches: list[Watch]) -> None:
        """Renew all in one statement; a record that somebody holds locked is left out and harms nobody."""
        if not watches:
            return
        verbs = [Renew(ownership=watch.ownership, lease_us=watch.lease_us) for watch in watches]
        answers = sessions.run(self._store.apply(verbs))
        now = time.monotonic()
        for watch, answer in zip(watches, answers, strict=True):
            retry_seconds = min(RETRY_SECONDS, watch.renewal_seconds)
            watch.due = now + (retry_seconds if isinstance(answer, Locked) else watch.renewal_seconds)
            if isinstance(answer, Refused) and answer.reason in TAKEN:
                watch.lose(answer.reason)

    def _undone(self, watches: list[Watch]) -> list[Verb]:
        """Return the suspensions that a renewal may have overtaken; what it prolonged, nobody would use.

        They are sent again: where there was nothing to undo that changes nothing, and a successor's fence refuses it.
        """
        verbs: list[Verb] = [watch.suspension for watch in watches if watch.suspension is not None]
        if verbs:
            with self._condition:
                for verb in verbs:
                    self._unconfirmed.setdefault(identity_of(verb), verb)  # Never in the place of a successor's write.
        return verbs

    def _send(self, sessions: BlockingSessions, writes: list[Verb]) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        for verb in writes:
            try:
                [answer] = sessions.run(self._store.apply([verb]))
            except StoreFailure as failure:
                # One write that always fails must not stop those behind it (F060).
                log.warning("a write was not confirmed (%s); trying again", failure.detail)
                continue
            if isinstance(answer, Locked):
                continue
            if isinstance(answer, Refused) and isinstance(verb, Complete):
                # Its caller was told "not confirmed", and somebody else went on meanwhile: kept for people.
                late = late_result_of(verb)
                sessions.run(self._store.keep_late_result(late, keep_us=verb.retention.outcome_us))
            with self._condition:
                # A later write to the same record may have taken its place meanwhile.
                if self._unconfirmed.get(identity_of(verb)) is verb:
                    del self._unconfirmed[identity_of(verb)]
            self._applied(verb)

    def _put_off(self, watches: list[Watch]) -> None:
        self._undone(watches)  # A renewal that was not confirmed may have landed.
        now = time.monotonic()
        self._retry_at = now + RETRY_SECONDS
        for watch in watches:
            watch.due = now + min(RETRY_SECONDS, watch.renewal_seconds)

    def _put_off_notes(self, unnoted: list[Watch]) -> None:
        for watch in unnoted:
            watch.note_due = time.monotonic() + RETRY_SECONDS


def _next_due(watch: Watch) -> float:
    return watch.due if watch.is_noted or watch.due < watch.note_due else watch.note_due


def _noted(record: Record, lease_us: int) -> AttemptNote:
    """Return what people are told of an attempt that was just granted; its lease began when it was."""
    if record.attempts == 1:
        how = Grant.NEW
    else:
        how = Grant.RESUMED if record.effects or record.is_undoing else Grant.TAKEN_OVER
    return AttemptNote(
        record_id=record.record_id,
        fence=record.fence,
        started_at=record.lease_until - lease_us,
        lease_us=lease_us,
        host=socket.gethostname(),
        pid=os.getpid(),
        how=how,
    )
