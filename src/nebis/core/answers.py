"""What a record answers to a verb. Answers are values: only façades raise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from nebis.core.quick import maker
from nebis.core.record import Effect, Record, Told


class Grant(StrEnum):
    """How an attempt came to own its record."""

    NEW = "new"
    AVAILABLE = "available"
    TAKEN_OVER = "taken_over"
    RESUMED = "resumed"
    OWN = "own"
    """This very claim was granted before and its answer was lost."""
    RUN_AGAIN = "run_again"
    """The answer had expired; the key begins a new life."""


class Refusal(StrEnum):
    """Why a verb changed nothing."""

    ABSENT = "absent"
    OTHER_LIFE = "other_life"
    FENCED = "fenced"
    COMPLETED = "completed"
    AVAILABLE = "available"
    IN_PROGRESS = "in_progress"
    IN_DOUBT = "in_doubt"
    EXPIRED = "expired"
    DIRTY = "dirty"
    CLEAN = "clean"
    NOT_DECLARED = "not_declared"
    EFFECT_OPEN = "effect_open"
    EFFECT_NOT_OPEN = "effect_not_open"
    NAME_USED = "name_used"
    CODE_CHANGED = "code_changed"
    RECALL_OVER = "recall_over"
    NOT_DEFINITE = "not_definite"
    NOT_RESUMABLE = "not_resumable"
    UNDOING = "undoing"
    NOT_UNDOING = "not_undoing"
    LEASE_LIVE = "lease_live"
    MOVED_ON = "moved_on"
    NO_PROOF = "no_proof"
    NOT_DUE = "not_due"


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The right to run, with everything that earlier attempts left."""

    record: Record
    how: Grant


make_granted: Final = maker(Granted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The stored outcome of the same command."""

    record: Record | Told


make_replay: Final = maker(Replay)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Another attempt holds the record."""

    record: Record
    lease_left_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """The key stands for another command; nothing was changed (I5)."""

    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubtful:
    """An effect may have happened; nobody may run it again."""

    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The answer is no longer kept and the policy refuses to run again."""

    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """The record was made with a fingerprint version that this code does not know: fail closed."""

    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """A worker's recoveries are used up; the record waits for its client, or for a person."""

    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The write was accepted, now or the first time that it was sent."""

    is_repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Intended:
    """The effect may be called, under the derived key that was stored first."""

    effect: Effect
    is_repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was changed, and this is why and what was found."""

    reason: Refusal
    found: Record | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """Somebody's open transaction holds the row, so nothing could be decided; ask again."""


ClaimAnswer: TypeAlias = Granted | Replay | Running | Reused | Doubtful | Gone | Unreadable
TakeOverAnswer: TypeAlias = Granted | Doubtful | GivenUp | Refused
OwnerAnswer: TypeAlias = Kept | Intended | Refused
Answer: TypeAlias = ClaimAnswer | TakeOverAnswer | OwnerAnswer
