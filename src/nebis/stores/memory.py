"""The reference store: a dictionary under a lock, which lets the state machine decide everything."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar

from nebis.core.ageing import aged_by
from nebis.core.answers import Answer, Locked
from nebis.core.record import Fence, Record, RecordId, State, Told
from nebis.core.replaying import Ended
from nebis.core.transitions import transition
from nebis.core.verbs import Verb, identity_of
from nebis.flow import Ask, Flow, drive, drive_async
from nebis.ports.history import ATTEMPTS_KEPT, AttemptNote, AuditLine, LateResult, PersonVerb, Signed, word_of
from nebis.ports.store import (
    AsyncBackend,
    BlockingBackend,
    Capabilities,
    Counts,
    Scan,
    SecretState,
    Swept,
    Tally,
    Tier,
)
from nebis.stores.memory_inbox import Touch
from nebis.stores.memory_velocity import MemoryVelocity

R = TypeVar("R")
T = TypeVar("T")

CAPABILITIES = Capabilities(
    name="memory",
    # A restart forgets every key, so a retry that comes after it runs again.
    tier=Tier.GUARD_ONLY,
    survives_restart=False,
    joins_transactions=False,
    wakes_other_processes=False,
    assumptions=("one process serves every request, and no retry comes after it has ended",),
)


def _process_clock_us() -> int:
    # This process is the whole store, so its clock is the store's clock (I7).
    return time.time_ns() // 1000  # noqa: TID251


class MemoryStore(MemoryVelocity):
    """A store that lives and dies with its process; any number of backends may share one."""

    def __init__(self, *, clock: Callable[[], int] = _process_clock_us) -> None:
        super().__init__()
        self._clock = clock
        self._lock = Lock()
        self._records = {}
        self._newest_fence = 0
        self._generated_secret: bytes | None = None
        self._tallies: dict[Tally, int] = {}
        self._check_values: frozenset[bytes] = frozenset()
        self._attempts: dict[RecordId, dict[Fence, AttemptNote]] = {}
        self._late_results: dict[tuple[RecordId, Fence, str | None], tuple[int, LateResult]] = {}
        self._audits: list[AuditLine] = []
        self._worker_seen_at: int | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Say what this store can do."""
        return CAPABILITIES

    def perform(self, ask: Ask[R]) -> R:
        """Do what a flow of this store asks, with nobody else in between."""
        assert isinstance(ask, Touch)
        with self._lock:
            result: R = ask.act()
            return result

    def apply(self, verbs: Sequence[Verb], *, now: int | None = None) -> Flow[list[Answer | Locked]]:
        """Apply each verb to its own record, all or none of them."""
        assert len({identity_of(verb) for verb in verbs}) == len(verbs), "an identity appears at most once in a batch"

        def act() -> list[Answer | Locked]:
            instant = self._instant(now)
            steps = [transition(self._records.get(identity_of(verb)), verb, instant, self._fence()) for verb in verbs]
            for verb, step in zip(verbs, steps, strict=True):
                self._keep(identity_of(verb), step.record)
            return [step.answer for step in steps]

        return (yield from Touch("apply", act))

    def sweep(self, *, limit: int, now: int | None = None) -> Flow[Swept]:
        """Let at most `limit` records age that are due."""

        def act() -> Swept:
            instant = self._instant(now)
            aged = 0
            for identity, record in list(self._records.items()):
                after = aged_by(record, instant)
                if after is not record and aged < limit:
                    self._keep(identity, after)
                    aged += 1
            due = [key for key, (forget_at, _) in self._late_results.items() if forget_at <= instant]
            for key in due[:limit]:
                del self._late_results[key]
            self._forget_meters(instant, limit)
            return Swept(aged, 1, aged < limit, self._newest_fence)

        return (yield from Touch("sweep", act))

    def find(self, identity: bytes) -> Flow[Record | None]:
        """Read one record by its identity."""
        return (yield from Touch("find", lambda: self._records.get(identity)))

    def expects_replay(self, identity: bytes) -> bool:
        """Tell whether the record has ended."""
        record = self._records.get(identity)
        return record is not None and record.state is State.COMPLETED

    def ended(self, identities: Sequence[bytes], *, now: int | None = None) -> Flow[dict[bytes, Ended]]:
        """Read those of these records that are completed, by identity."""

        def act() -> dict[bytes, Ended]:
            instant = self._instant(now)
            records = [self._records[identity] for identity in identities if self.expects_replay(identity)]
            return {
                record.identity: Ended(Told.of(record), record.fingerprint_version, record.fingerprint, instant)
                for record in records
            }

        return (yield from Touch("ended", act))

    def find_by_id(self, record_id: RecordId) -> Flow[Record | None]:
        """Read one record by its public id."""

        def act() -> Record | None:
            return next((record for record in self._records.values() if record.record_id == record_id), None)

        return (yield from Touch("find_by_id", act))

    def scan(self, query: Scan, *, now: int | None = None) -> Flow[list[Record]]:
        """Read one page of records."""

        def act() -> list[Record]:
            instant = self._instant(now)
            page = sorted((record for record in self._records.values() if _is_in(query, record, instant)), key=_place)
            return page[: query.limit]

        return (yield from Touch("scan", act))

    def count(self, *, now: int | None = None) -> Flow[Counts]:
        """Count records by state."""

        def act() -> Counts:
            return _counts(list(self._records.values()), self._instant(now))

        return (yield from Touch("count", act))

    def hold(self, identity: bytes) -> Flow[Record | Locked | None]:
        """Read one record: without transactions nothing is ever under way between two asks."""
        return (yield from Touch("hold", lambda: self._records.get(identity)))

    def barrier(self, identity: bytes) -> Flow[Record | Locked | None]:
        """Read one record, for the same reason."""
        return (yield from Touch("barrier", lambda: self._records.get(identity)))

    def clock(self) -> Flow[int]:
        """Read the store's clock, in microseconds."""
        return (yield from Touch("clock", self._clock))

    def migrate(self) -> Flow[tuple[str, ...]]:
        """Do nothing: there is no schema."""
        return (yield from Touch("migrate", lambda: ()))

    def verify(self) -> Flow[None]:
        """Do nothing: there is no schema."""
        return (yield from Touch("verify", lambda: None))

    def tally(self, tallies: Mapping[Tally, int]) -> Flow[None]:
        """Add to the counters that people read."""

        def act() -> None:
            for tally, number in tallies.items():
                self._tallies[tally] = self._tallies.get(tally, 0) + number

        return (yield from Touch("tally", act))

    def tallies(self) -> Flow[dict[Tally, int]]:
        """Read all counters."""
        return (yield from Touch("tallies", lambda: dict(self._tallies)))

    def secrets(self, candidate: bytes | None) -> Flow[SecretState]:
        """Read what is known of secrets; keep the candidate if nothing is known."""

        def act() -> SecretState:
            if self._generated_secret is None:
                self._generated_secret = candidate
            return SecretState(generated=self._generated_secret, check_values=self._check_values)

        return (yield from Touch("secrets", act))

    def admit_secret(self, check_value: bytes) -> Flow[None]:
        """Remember that a secret with this check value is in use."""

        def act() -> None:
            self._check_values |= {check_value}

        return (yield from Touch("admit_secret", act))

    def made_with(self, number: int) -> Flow[int]:
        """Count the records that were made with the secret of this number."""
        return (yield from Touch("made_with", lambda: self._made_with(number)))

    def retire_secret(self, check_value: bytes, number: int) -> Flow[int]:
        """Forget that a secret was in use, unless records made with it are left."""

        def act() -> int:
            left = self._made_with(number)
            if not left:
                self._check_values -= {check_value}
            return left

        return (yield from Touch("retire_secret", act))

    def note_attempts(self, notes: Sequence[AttemptNote]) -> Flow[None]:
        """Write down who holds which record."""

        def act() -> None:
            for note in notes:
                if any(record.record_id == note.record_id for record in self._records.values()):
                    known = {note.fence: note, **self._attempts.get(note.record_id, {})}
                    self._attempts[note.record_id] = dict(sorted(known.items())[-ATTEMPTS_KEPT:])

        return (yield from Touch("note_attempts", act))

    def attempts_of(self, record_id: RecordId) -> Flow[list[AttemptNote]]:
        """Read the attempts of this life that were written down."""
        return (yield from Touch("attempts_of", lambda: list(self._attempts.get(record_id, {}).values())))

    def keep_late_result(self, late: LateResult, *, keep_us: int, now: int | None = None) -> Flow[None]:
        """Keep a result that was refused; the first copy of it stays."""

        def act() -> None:
            instant = self._instant(now)
            key = (late.record_id, late.fence, late.effect)
            self._late_results.setdefault(key, (instant + keep_us, replace(late, kept_at=instant)))

        return (yield from Touch("keep_late_result", act))

    def late_results_of(self, record_id: RecordId) -> Flow[list[LateResult]]:
        """Read the late results of a record."""

        def act() -> list[LateResult]:
            found = [late for _, late in self._late_results.values() if late.record_id == record_id]
            return sorted(found, key=lambda late: (late.fence, late.effect or ""))

        return (yield from Touch("late_results_of", act))

    def note_worker(self, *, now: int | None = None) -> Flow[None]:
        """Write down that a worker is alive now."""

        def act() -> None:
            self._worker_seen_at = self._instant(now)

        return (yield from Touch("note_worker", act))

    def worker_seen_at(self) -> Flow[int | None]:
        """Read when a worker was last alive."""
        return (yield from Touch("worker_seen_at", lambda: self._worker_seen_at))

    def decide(self, verb: PersonVerb, signed: Signed, *, now: int | None = None) -> Flow[Answer | Locked]:
        """Apply what a person asked for and write it down."""

        def act() -> Answer | Locked:
            instant = self._instant(now)
            step = transition(self._records.get(verb.identity), verb, instant, self._fence())
            self._keep(verb.identity, step.record)
            self._audits.append(AuditLine(at=instant, signed=signed, answer=word_of(step.answer)))
            return step.answer

        return (yield from Touch("decide", act))

    def audit(self, signed: Signed, answer: str, *, now: int | None = None) -> Flow[None]:
        """Write down what was asked for and not even tried."""

        def act() -> None:
            self._audits.append(AuditLine(at=self._instant(now), signed=signed, answer=answer))

        return (yield from Touch("audit", act))

    def audits_of(self, record_id: RecordId) -> Flow[list[AuditLine]]:
        """Read what people did to a record."""

        def act() -> list[AuditLine]:
            return [line for line in self._audits if line.signed.record_id == record_id]

        return (yield from Touch("audits_of", act))

    def _made_with(self, number: int) -> int:
        return sum(record.fingerprint_version >> 8 == number for record in self._records.values())

    def _instant(self, now: int | None) -> int:
        return self._clock() if now is None else now

    def _fence(self) -> Fence:
        """Return a fence that was never given before, not even to a record that is gone (I10)."""
        self._newest_fence += 1
        return Fence(self._newest_fence)

    def _keep(self, identity: bytes, record: Record | None) -> None:
        old = self._records.get(identity)
        if record is None:
            self._records.pop(identity, None)
        else:
            self._records[identity] = record
        if old is not None and (record is None or record.record_id != old.record_id):
            self._attempts.pop(old.record_id, None)


def _place(record: Record) -> tuple[int, bytes]:
    return (record.lease_until, record.identity)


def _is_in(query: Scan, record: Record, now: int) -> bool:
    resource = record.resource
    return (
        (not query.states or record.state in query.states)
        and (query.tenant is None or record.tenant == query.tenant)
        and (query.operation is None or record.operation == query.operation)
        and (query.resource_type is None or (resource is not None and resource.type == query.resource_type))
        and (query.resource_id is None or (resource is not None and resource.id == query.resource_id))
        and (not query.lapsed_only or (record.state is State.IN_PROGRESS and record.has_lapsed(now)))
        and (query.created_before is None or record.created_at < query.created_before)
        and (query.after is None or _place(record) > query.after)
    )


def _counts(records: Sequence[Record], now: int) -> Counts:
    in_progress = [record for record in records if record.state is State.IN_PROGRESS]
    doubted_at = [record.doubt_since for record in records if record.doubt_since is not None]
    return Counts(
        by_state={state: sum(record.state is state for record in records) for state in State},
        lapsed=sum(record.has_lapsed(now) for record in in_progress),
        oldest_in_progress_us=now - min(record.created_at for record in in_progress) if in_progress else None,
        oldest_in_doubt_us=now - min(doubted_at) if doubted_at else None,
    )


@dataclass(frozen=True, slots=True)
class MemorySessions:
    """Blocking access to a memory store; there is nothing to connect to and nothing to close."""

    store: MemoryStore

    def run(self, flow: Flow[T]) -> T:
        """Perform a flow; each ask is indivisible, and between two of them others get their turn."""
        return drive(flow, self.store.perform)

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class AsyncMemorySessions:
    """Asyncio access to a memory store. No ask waits for anything, so no cancellation can fall into one."""

    store: MemoryStore

    async def run(self, flow: Flow[T]) -> T:
        """Perform a flow."""
        return await drive_async(flow, self._perform)

    run_unshielded = run

    async def close(self) -> None:
        """Do nothing."""

    async def _perform(self, ask: Ask[Any]) -> Any:
        return self.store.perform(ask)


def open_blocking(store: MemoryStore | None = None) -> BlockingBackend:
    """Give blocking access to a new store, or to one that others use too."""
    shared = store or MemoryStore()
    return BlockingBackend(store=shared, sessions=MemorySessions(shared), beat=lambda: MemorySessions(shared))


def open_async(store: MemoryStore | None = None) -> AsyncBackend:
    """Give asyncio access to a new store, or to one that others use too."""
    shared = store or MemoryStore()
    return AsyncBackend(store=shared, sessions=AsyncMemorySessions(shared), beat=lambda: MemorySessions(shared))
