"""The history port: who tried, what came too late, and what people did. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from nebis.core.answers import Answer, GivenUp, Grant, Granted, Intended, Kept, Locked, Refused, Replay
from nebis.core.record import Fence, RecordId, State
from nebis.core.verbs import Resolve, TakeOver
from nebis.flow import Flow

ATTEMPTS_KEPT = 50
"""Of one record, the newest; a client may come back as often as it likes, and nobody reads more."""

PersonVerb: TypeAlias = Resolve | TakeOver
"""What a person may ask of a record without being its owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptNote:
    """Which process held a record, and since when."""

    record_id: RecordId
    fence: Fence
    started_at: int
    lease_us: int
    """What each renewal added, from which the last one can be told."""
    host: str
    pid: int
    how: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class LateResult:
    """A result whose owner no longer held the record when it came; evidence for people, never an outcome."""

    record_id: RecordId
    fence: Fence
    """Of the owner that brought it."""
    effect: str | None
    """Whose result it is; None for that of the whole operation."""
    body: bytes = field(repr=False)
    kept_at: int = 0
    """Set by the store's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """What a person asked for, in their name and with their reason."""

    who: str
    what: str
    reason: str
    record_id: RecordId | None = None
    """None for what concerns no single record."""
    fence_seen: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """What was asked for, and what became of it."""

    at: int
    signed: Signed
    answer: str


class History(Protocol):
    """What a store keeps for people, beside its records."""

    def note_attempts(self, notes: Sequence[AttemptNote]) -> Flow[None]:
        """Write down who holds which record; the newest of each record are kept, for as long as the record is."""
        ...

    def attempts_of(self, record_id: RecordId) -> Flow[list[AttemptNote]]:
        """Read the attempts of this life that were written down, by fence."""
        ...

    def keep_late_result(self, late: LateResult, *, keep_us: int, now: int | None = None) -> Flow[None]:
        """Keep a result that was refused, for that long, whatever became of its record; safe to send twice."""
        ...

    def late_results_of(self, record_id: RecordId) -> Flow[list[LateResult]]:
        """Read the late results of a record, by fence."""
        ...

    def note_worker(self, *, now: int | None = None) -> Flow[None]:
        """Write down that a worker is alive now; only the latest sign of all workers is kept."""
        ...

    def worker_seen_at(self) -> Flow[int | None]:
        """Read when a worker was last alive, on the store's clock; None if there never was one."""
        ...

    def decide(self, verb: PersonVerb, signed: Signed, *, now: int | None = None) -> Flow[Answer | Locked]:
        """Apply what a person asked for and write it down, in one commit, refusals included (SEC30).

        `Locked`: somebody's transaction holds the record, nothing was decided and nothing written down; ask again.
        """
        ...

    def audit(self, signed: Signed, answer: str, *, now: int | None = None) -> Flow[None]:
        """Write down what was asked for and not even tried, or what concerns no record. Lines are never changed."""
        ...

    def audits_of(self, record_id: RecordId) -> Flow[list[AuditLine]]:
        """Read what people did to a record, oldest first; it outlives the record."""
        ...


def word_of(answer: Answer) -> str:
    """Return the word under which an answer is written down."""
    match answer:
        case Refused():
            return answer.reason.value
        case Kept() | Intended():
            return "done"
        case Granted():
            return "granted"
        case GivenUp():
            return "given_up"
        case Replay():
            return State.COMPLETED.value
        case _:
            return answer.record.state.value
