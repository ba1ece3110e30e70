"""A real store that can be watched, and made to fail, from a test."""

import threading
from collections.abc import Callable, Sequence

from nebis.core.answers import Answer, Granted, Locked
from nebis.core.record import Record
from nebis.core.verbs import Renew, Verb, identity_of
from nebis.flow import Flow
from nebis.flows.request import Request
from nebis.ports.store import AsyncBackend, BlockingBackend, BlockingSessions
from nebis.runtime.entropy import draw
from nebis.runtime.heartbeat import Watch
from nebis.stores import memory
from nebis.stores.memory import MemoryStore

PATIENCE_SECONDS = 60
"""How long a test waits for an event before it calls it lost; never how long it takes."""


class Stopped(threading.Event):
    """An owner that was told to stop."""

    def stop_handler(self) -> None:
        self.set()


def lost(watch: Watch) -> Stopped:
    """Return what is set once a claim that has no owner yet is lost, also if it is lost already."""
    assert watch.owner is None
    watch.owner = stopped = Stopped()
    if watch.is_lost:
        stopped.set()
    return stopped


class ObservedStore(MemoryStore):
    """The reference store, which tells of every batch that is applied."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        if clock is None:
            super().__init__()
        else:
            super().__init__(clock=clock)
        self.batches: list[tuple[Verb, ...]] = []
        self.locked: set[bytes] = set()
        self.faults: list[Exception] = []
        self.fault_of: Callable[[Sequence[Verb]], Exception | None] = lambda _: None
        self._changed = threading.Condition()

    def apply(self, verbs: Sequence[Verb], *, now: int | None = None) -> Flow[list[Answer | Locked]]:
        """Apply, unless a fault is due; members that somebody is said to hold are answered `Locked`."""
        try:
            fault = self.faults.pop(0) if self.faults else self.fault_of(verbs)
            if fault is not None:
                raise fault
            free = [verb for verb in verbs if identity_of(verb) not in self.locked]
            answers = dict(zip(map(identity_of, free), (yield from super().apply(free, now=now)), strict=True))
            return [answers.get(identity_of(verb), Locked()) for verb in verbs]
        finally:
            with self._changed:
                self.batches.append(tuple(verbs))
                self._changed.notify_all()

    def wait_for(self, seen: Callable[[Sequence[Verb]], bool], times: int = 1) -> None:
        """Wait until, from now on, that many batches were applied of which this is true."""
        with self._changed:
            begin = len(self.batches)
            assert self._changed.wait_for(
                lambda: sum(seen(batch) for batch in self.batches[begin:]) >= times, PATIENCE_SECONDS
            )

    def stored(self, identity: bytes) -> Record:
        record = self._records[identity]
        assert record is not None
        return record

    def claimed(self, request: Request) -> Record:
        """Claim as another process would."""
        drawn = draw()
        [answer] = memory.MemorySessions(self).run(self.apply([request.claim(drawn.record_id, drawn.nonce)]))
        assert isinstance(answer, Granted)
        return answer.record

    def applied(self, verb: Verb) -> Answer | Locked:
        """Apply one verb as another process would."""
        [answer] = memory.MemorySessions(self).run(self.apply([verb]))
        return answer

    def sessions(self) -> BlockingSessions:
        return memory.MemorySessions(self)

    def blocking(self) -> BlockingBackend:
        return memory.open_blocking(self)

    def asynchronous(self) -> AsyncBackend:
        return memory.open_async(self)


def renews(*identities: bytes) -> Callable[[Sequence[Verb]], bool]:
    """Tell whether a batch renews all of these records."""
    wanted = set(identities)
    return lambda batch: wanted <= {identity_of(verb) for verb in batch if isinstance(verb, Renew)}


class MovedClock:
    """The store's clock, moved by hand."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now
