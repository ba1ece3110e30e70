"""The durable memory of one logical request, as a value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NewType
from uuid import UUID

from nebis.core.quick import maker, quick

RecordId = NewType("RecordId", UUID)
Fence = NewType("Fence", int)
Nonce = NewType("Nonce", bytes)
Micros = NewType("Micros", int)
"""An instant of the store's clock, or a span of it, in microseconds."""


class State(StrEnum):
    """Where a record stands. A key without a record has no state."""

    IN_PROGRESS = "in_progress"
    AVAILABLE = "available"
    IN_DOUBT = "in_doubt"
    COMPLETED = "completed"
    EXPIRED = "expired"


class EffectsMode(StrEnum):
    """What an operation says about everything that it does outside its record."""

    LOCAL = "local"
    """All writes go through the attempt's transaction; an exception means that nothing happened."""
    DECLARED = "declared"
    """Everything outside goes through the attempt; clean until the first intent."""
    OPAQUE = "opaque"
    """Nothing is known; dirty from the claim, so that an exception or a crash is in doubt."""


class EffectClass(StrEnum):
    """How a single effect can be recovered when nobody knows whether it happened."""

    TRANSACTIONAL = "transactional"
    STICKY = "sticky"
    SUCCESS_ONLY = "success_only"
    FENCED = "fenced"
    QUERYABLE = "queryable"
    OPAQUE = "opaque"

    @property
    def may_be_called_again(self) -> bool:
        """Tell whether a second call under the same identity cannot make a second effect."""
        return self in _CALLED_AGAIN


_CALLED_AGAIN = frozenset({EffectClass.TRANSACTIONAL, EffectClass.STICKY, EffectClass.SUCCESS_ONLY, EffectClass.FENCED})


class OutcomeKind(StrEnum):
    """What the one outcome of a record says."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    UNSTORABLE = "unstorable"


class EffectVerdict(StrEnum):
    """What is known of a finished effect."""

    HAPPENED = "happened"
    REJECTED = "rejected"
    DID_NOT_HAPPEN = "did_not_happen"
    """The owner's only call of it failed before it could reach the downstream; a successor starts it anew."""


UNDO_PREFIX = "undo:"
"""Effects with this prefix undo others; nothing else may run after `turn_back`."""

_LATER_CALL: Final = "call"
_VOIDED: Final = "voided"
_MARK: Final = re.compile(rf" \((?P<kind>{_LATER_CALL}|{_VOIDED}) [0-9]+\)$")


def purpose_of(name: str) -> str:
    """Return the name that a handler asks for an effect by, of the one that it is stored under."""
    return _MARK.sub("", name)


def name_of_call(purpose: str, number: int) -> str:
    """Return the name under which an attempt stores its next call, after earlier ones that never left.

    Each has a name of its own, so that a late copy of the word about one of them cannot be taken for another.
    """
    return purpose if number == 1 else f"{purpose} ({_LATER_CALL} {number})"


def name_of_voided(purpose: str, number: int) -> str:
    """Return the name under which an effect is kept whose key was burnt downstream, so that its key is not reused."""
    return f"{purpose} ({_VOIDED} {number})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long an outcome is kept, and for how much longer its metadata."""

    outcome_us: int
    metadata_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What the operation made or changed, in the application's own words."""

    type: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A definite result as it is replayed; bytes are an envelope and never shown."""

    kind: OutcomeKind
    body: bytes = field(repr=False)


make_outcome: Final = maker(Outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Something done outside the record: its intent and, once known, its result."""

    name: str
    effect_class: EffectClass
    derived_key: str = field(repr=False)
    digest: bytes
    """Of the call's arguments: a resume with other arguments is a change of code, not the same effect."""
    is_outstanding: bool
    """An earlier call may still land, so a rejection that the downstream forgets proves nothing."""
    recall_until: int | None
    """When the downstream's memory of the derived key ends; after it a second call could be a second effect."""
    verdict: EffectVerdict | None = None
    result: bytes | None = field(default=None, repr=False)

    @property
    def purpose(self) -> str:
        """Return the name that the handler asks for it by."""
        return purpose_of(self.name)

    @property
    def is_open(self) -> bool:
        """Tell whether the effect was intended and nothing is known of it yet."""
        return self.verdict is None

    @property
    def is_voided(self) -> bool:
        """Tell whether its key is burnt downstream: nothing can ever happen under that one again."""
        mark = _MARK.search(self.name)
        return mark is not None and mark["kind"] == _VOIDED

    def may_be_called_again(self, now: int) -> bool:
        """Tell whether this open effect can be asked for again without being made twice."""
        remembered = self.recall_until is None or now < self.recall_until
        return self.effect_class.may_be_called_again and remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The proof that an attempt shows with each of its writes (I2)."""

    identity: bytes
    record_id: RecordId
    fence: Fence
    nonce: Nonce


make_ownership: Final = maker(Ownership)


@quick
@dataclass(frozen=True, slots=True)
class Record:
    """The durable memory of one life of a key. All times are the store's, in microseconds.

    Its fields may be given in their order, for the two places that every request comes through; elsewhere name them.
    """

    identity: bytes
    record_id: RecordId
    tenant: str = field(repr=False)
    scope: str
    operation: str
    key: str = field(repr=False)
    fingerprint: bytes = field(repr=False)
    fingerprint_version: int
    mode: EffectsMode
    state: State
    fence: Fence
    nonce: Nonce = field(repr=False)
    lease_until: int
    attempts: int
    recoveries: int
    """How often a worker took over; bounded, while a client may come back as often as it likes."""
    is_dirty: bool
    is_awaited: bool
    """Somebody waits for the end of this attempt and wants to be woken."""
    created_at: int
    completed_at: int | None
    expires_at: int
    forget_at: int
    doubt_since: int | None
    doubt_reason: str | None
    rejection: bytes | None = field(repr=False)
    """Set by `turn_back`: the answer that will be given once everything is undone."""
    outcome_kind: OutcomeKind | None
    """Outlives the outcome: a tombstone still says how it ended."""
    outcome: bytes | None = field(repr=False)
    resource: Resource | None
    command: bytes | None = field(repr=False)
    effects: tuple[Effect, ...]

    @property
    def ownership(self) -> Ownership:
        """Return the proof of whoever holds this record."""
        return make_ownership(identity=self.identity, record_id=self.record_id, fence=self.fence, nonce=self.nonce)

    @property
    def open_effect(self) -> Effect | None:
        """Return the one effect of which nobody knows whether it happened."""
        return next((effect for effect in self.effects if effect.is_open), None)

    @property
    def open_effect_name(self) -> str | None:
        """Return the name of that effect, by which evidence says what it is about."""
        opened = self.open_effect
        return None if opened is None else opened.name

    @property
    def is_undoing(self) -> bool:
        """Tell whether the operation was rejected half-way and is being undone."""
        return self.rejection is not None

    def effect(self, name: str) -> Effect | None:
        """Return the effect of that name, if it was ever intended."""
        return next((effect for effect in self.effects if effect.name == name), None)

    def voided(self, purpose: str) -> int:
        """Count the keys of an effect that are burnt downstream; the next one must be another."""
        return sum(effect.is_voided and effect.purpose == purpose for effect in self.effects)

    def has_lapsed(self, now: int) -> bool:
        """Tell whether the lease is over. Only liveness rests on this, never safety (I7)."""
        return now >= self.lease_until

    def may_resume(self, now: int) -> bool:
        """Tell whether a successor may run the handler again without making an effect twice."""
        if not self.is_dirty:
            return True
        if self.mode is EffectsMode.OPAQUE:
            return False
        opened = self.open_effect
        return opened is None or opened.may_be_called_again(now)


make_record: Final = maker(Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that whoever asks again is told of a completed record; a store need not read the rest of it."""

    record_id: RecordId
    operation: str
    outcome_kind: OutcomeKind
    outcome: bytes = field(repr=False)
    expires_at: int

    @classmethod
    def of(cls, record: Record) -> Told:
        """Return what is told of this record, which has an outcome."""
        assert record.outcome_kind is not None  # I3
        assert record.outcome is not None  # I3
        return cls(
            record_id=record.record_id,
            operation=record.operation,
            outcome_kind=record.outcome_kind,
            outcome=record.outcome,
            expires_at=record.expires_at,
        )


make_told: Final = maker(Told)
