"""A store under test beside the state machine: every step is made on both, and every difference is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from nebis.core.answers import Answer, Locked, Refused, Replay
from nebis.core.record import Fence, Record, State, Told
from nebis.core.replaying import Ended
from nebis.core.step import Step
from nebis.core.transitions import transition
from nebis.core.verbs import Expire, Forget, Purge, Verb, identity_of
from nebis.ports.store import Counts, Scan
from nebis.testing.conformance.harness import Connection

_EVERYTHING = 10_000


class Hit(NamedTuple):
    """One edge of the state machine, or one refusal of one verb."""

    verb: str
    result: str


def hit_of(verb: Verb, step: Step[Answer]) -> Hit:
    """Name what a step was."""
    result = step.answer.reason if isinstance(step.answer, Refused) else step.edge
    return Hit(type(verb).__name__, result.value)


class Twin:
    """The store under test and a dictionary that follows it, decided by `transition` alone."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.records: dict[bytes, Record] = {}
        self.hits: Counter[Hit] = Counter()
        self._newest_fences: dict[bytes, int] = {}

    def ask(self, verb: Verb, *, now: int) -> Answer:
        """Apply one verb on both sides and return the answer that they agree on."""
        (answer,) = self.apply([verb], now=now)
        return answer

    def apply(self, verbs: Sequence[Verb], *, now: int) -> list[Answer]:
        """Apply a batch on the store, each member on the model, and compare answers and records."""
        answers = self.connection.apply(*verbs, now=now)
        assert len(answers) == len(verbs), f"{len(verbs)} verbs got {len(answers)} answers."
        return [self._compare(verb, answer, now) for verb, answer in zip(verbs, answers, strict=True)]

    def sweep(self, *, limit: int, now: int) -> int:
        """Age records on both sides; the store chooses which of those that are due, not what they become."""
        due: dict[bytes, Record | None] = {}
        for identity, record in self.records.items():
            left = self._aged(record, now)
            if left != record:
                due[identity] = left

        swept = self.connection.run(self.connection.store.sweep(limit=limit, now=now))

        aged = swept.aged
        assert aged == min(limit, len(due)), f"a sweep aged {aged} records; {len(due)} are due, the limit is {limit}."
        assert swept.ends_round == (aged < limit), "a sweep that was stopped by its limit goes on, any other is over."
        newest = max(self._newest_fences.values(), default=0)
        assert swept.newest_fence >= newest, f"a sweep calls {swept.newest_fence} the newest fence after {newest}."
        changed = 0
        for identity, before in list(self.records.items()):
            found = self.connection.find(identity)
            if found != before:
                assert identity in due, _story("a sweep changed a record that is not due", before, found)
                assert found == due[identity], _story("a sweep made something else of it", due[identity], found)
                self._keep(identity, found)
                changed += 1
        assert changed == aged, f"a sweep says that it aged {aged} records and changed {changed}."
        return aged

    def _aged(self, record: Record, now: int) -> Record | None:
        """Let a record age as far as it may: what is over goes at once, without being a tombstone first."""
        left: Record | None = record
        for verb in (Expire, Purge, Forget):
            left = transition(left, verb(identity=record.identity), now, Fence(0)).record
        return left

    def compare_readings(self, now: int) -> None:
        """Read everything back in every way and compare."""
        store, run = self.connection.store, self.connection.run
        for record in self.records.values():
            assert run(store.find_by_id(record.record_id)) == record
        assert run(store.scan(Scan(limit=_EVERYTHING), now=now)) == in_scan_order(self.records.values())
        assert run(store.count(now=now)) == tally(list(self.records.values()), now)
        nobody = bytes(32)
        assert run(store.ended([nobody, *self.records], now=now)) == {
            identity: Ended(Told.of(record), record.fingerprint_version, record.fingerprint, now)
            for identity, record in self.records.items()
            if record.state is State.COMPLETED
        }

    def _compare(self, verb: Verb, answer: Answer | Locked, now: int) -> Answer:
        name, identity = type(verb).__name__, identity_of(verb)
        before, found = self.records.get(identity), self.connection.find(identity)
        newest = self._newest_fences.get(identity, 0)
        has_moved = found is not None and (before is None or found.fence != before.fence)
        if found is not None and has_moved:
            assert found.fence > newest, f"{name} gave fence {found.fence} after {newest}: fences only grow (I10)."
            newest = self._newest_fences[identity] = found.fence
        # The store chooses its fences; where it gave none, the model takes one that no honest record can carry.
        step = transition(before, verb, now, Fence(newest if has_moved else newest + 1))
        assert found == step.record, _story(f"{name} left another record", step.record, found, before=before)
        expected = _as_told(step.answer) if answer == _as_told(answer) else step.answer
        assert answer == expected, _story(f"{name} answered differently", expected, answer, before=before)
        assert not isinstance(answer, Locked)
        self._keep(identity, step.record)
        self.hits[hit_of(verb, step)] += 1
        return answer

    def _keep(self, identity: bytes, record: Record | None) -> None:
        if record is None:
            self.records.pop(identity, None)
        else:
            self.records[identity] = record


def _as_told(answer: Answer | Locked) -> Answer | Locked:
    """Return an answer with no more of a completed record than whoever asks again is told."""
    if isinstance(answer, Replay) and isinstance(answer.record, Record):
        return Replay(record=Told.of(answer.record))
    return answer


def in_scan_order(records: Any) -> list[Record]:
    """Sort as every scan does: by the end of the lease, then by identity."""
    return sorted(records, key=lambda record: (record.lease_until, record.identity))


def tally(records: Sequence[Record], now: int) -> Counts:
    """Count as every store must: ages in microseconds, and every state named even where there is none."""
    by_state = Counter(record.state for record in records)
    running = [record for record in records if record.state is State.IN_PROGRESS]
    doubts = [record.doubt_since for record in records if record.state is State.IN_DOUBT and record.doubt_since]
    return Counts(
        by_state={state: by_state[state] for state in State},
        lapsed=len([record for record in running if record.lease_until <= now]),
        oldest_in_progress_us=max((now - record.created_at for record in running), default=None),
        oldest_in_doubt_us=max((now - since for since in doubts), default=None),
    )


def _story(what: str, expected: object, got: object, *, before: Record | None = None) -> str:
    lines = [f"{what} than the state machine:" if before else f"{what}:"]
    lines += [
        f"  before   {_shown(before)}",
        f"  expected {type(expected).__name__}",
        f"  got      {type(got).__name__}",
    ]
    return "\n".join([*lines, *_differences("", expected, got)])


def _shown(record: Record | None) -> str:
    return "no record" if record is None else f"{record.state} fence={record.fence} dirty={record.is_dirty}"


def _differences(path: str, expected: object, got: object) -> Iterator[str]:
    if type(expected) is type(got) and is_dataclass(expected):
        for field in fields(expected):
            where = f"{path}.{field.name}"
            yield from _differences(where, getattr(expected, field.name), getattr(got, field.name))
    elif expected != got:
        yield f"  {path.lstrip('.') or 'answer'}: expected {expected!r}, got {got!r}"
