"""Records as rows, and rows as records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from nebis.core.identity import PerOperation, scope_name
from nebis.core.ids import id_of
from nebis.core.record import (
    Effect,
    EffectClass,
    EffectsMode,
    EffectVerdict,
    OutcomeKind,
    Record,
    RecordId,
    Resource,
    State,
    make_record,
)
from nebis.errors import RecordCorrupt
from nebis.stores.sql.asks import Row

V = TypeVar("V")

STATES = {
    State.IN_PROGRESS: "P",
    State.AVAILABLE: "A",
    State.IN_DOUBT: "D",
    State.COMPLETED: "C",
    State.EXPIRED: "E",
}
MODES = {EffectsMode.LOCAL: "L", EffectsMode.DECLARED: "D", EffectsMode.OPAQUE: "O"}
OUTCOME_KINDS = {
    OutcomeKind.SUCCEEDED: "S",
    OutcomeKind.REJECTED: "R",
    OutcomeKind.UNKNOWN: "U",
    OutcomeKind.UNSTORABLE: "N",
}
EFFECT_CLASSES = {
    EffectClass.TRANSACTIONAL: "T",
    EffectClass.STICKY: "S",
    EffectClass.SUCCESS_ONLY: "U",
    EffectClass.FENCED: "F",
    EffectClass.QUERYABLE: "Q",
    EffectClass.OPAQUE: "O",
}
EFFECT_VERDICTS = {
    EffectVerdict.HAPPENED: "H",
    EffectVerdict.REJECTED: "R",
    EffectVerdict.DID_NOT_HAPPEN: "N",
}

RECORD_COLUMNS = (
    *("identity", "record_id", "tenant", "scope", "operation", "key", "fingerprint", "fingerprint_version", "mode"),
    *("state", "fence", "nonce", "lease_until", "attempts", "recoveries", "is_dirty", "is_awaited", "created_at"),
    *("completed_at", "expires_at", "forget_at", "doubt_since", "doubt_reason", "rejection", "outcome_kind"),
    *("outcome", "resource_type", "resource_id", "command"),
)
"""In the order of the fragment `record_columns`; the columns of an effect follow them in a row."""
EFFECT_COLUMNS = (
    *("name", "effect_class", "derived_key", "digest", "is_outstanding", "recall_until", "verdict", "result"),
)
_EFFECT_BEGINS = len(RECORD_COLUMNS)
_EFFECT_ENDS = _EFFECT_BEGINS + len(EFFECT_COLUMNS)


def _inverted(letters: Mapping[V, str]) -> dict[str, V]:
    return {letter: value for value, letter in letters.items()}


_STATE_OF = _inverted(STATES)
_MODE_OF = _inverted(MODES)
_OUTCOME_KIND_OF = _inverted(OUTCOME_KINDS)
_EFFECT_CLASS_OF = _inverted(EFFECT_CLASSES)
_EFFECT_VERDICT_OF = _inverted(EFFECT_VERDICTS)


def state_of(letter: str) -> State:
    """Return the state that a letter stands for."""
    return _meaning(_STATE_OF, letter, "state")


def outcome_kind_of(letter: str) -> OutcomeKind:
    """Return the kind of outcome that a letter stands for."""
    return _OUTCOME_KIND_OF.get(letter) or _meaning(_OUTCOME_KIND_OF, letter, "outcome kind")


_ESCAPE = "="
"""Begins a stored scope that would otherwise be taken for another; no scope that an operation has needs it."""


# All claims of an operation have the same scope, and there are few operations.
@lru_cache(maxsize=1024)
def stored_scope(scope: str, operation: str) -> str:
    """Return a scope as a row has it: nothing for the usual one, which the operation's name tells already."""
    if scope == scope_name(PerOperation(), operation=operation):
        return ""
    return scope if scope and scope[0] != _ESCAPE else _ESCAPE + scope


def scope_of(stored: str, operation: str) -> str:
    """Return what `stored_scope` was given; what older code wrote out stands for itself."""
    if not stored:
        return scope_name(PerOperation(), operation=operation)
    return stored[1:] if stored[0] == _ESCAPE else stored


def records_of(rows: Iterable[Row]) -> dict[bytes, Record]:
    """Return the records of joined rows, by identity, in the order of the rows; absent records are passed over."""
    firsts: dict[bytes, Row] = {}
    effects: dict[bytes, list[Effect]] = {}
    for row in rows:
        if row[0] is not None:
            identity = bytes(row[0])
            firsts.setdefault(identity, row)
            if row[_EFFECT_BEGINS] is not None:
                effects.setdefault(identity, []).append(_effect(row))
    return {identity: _record(row, tuple(effects.get(identity, ()))) for identity, row in firsts.items()}


def record_values(record: Record) -> dict[str, object]:
    """Return what a record writes into its row, by column."""
    opened = record.open_effect
    return {
        "identity": record.identity,
        "record_id": record.record_id,
        "tenant": record.tenant,
        "scope": stored_scope(record.scope, record.operation),
        "operation": record.operation,
        "key": record.key,
        "fingerprint": record.fingerprint,
        "fingerprint_version": record.fingerprint_version,
        "mode": MODES[record.mode],
        "state": STATES[record.state],
        "fence": record.fence,
        "nonce": record.nonce,
        "lease_until": record.lease_until,
        "attempts": record.attempts,
        "recoveries": record.recoveries,
        "is_dirty": record.is_dirty,
        "is_awaited": record.is_awaited,
        "created_at": record.created_at,
        "completed_at": record.completed_at,
        "expires_at": record.expires_at,
        "forget_at": record.forget_at,
        "doubt_since": record.doubt_since,
        "doubt_reason": record.doubt_reason,
        "rejection": record.rejection,
        "outcome_kind": None if record.outcome_kind is None else OUTCOME_KINDS[record.outcome_kind],
        "outcome": record.outcome,
        "resource_type": None if record.resource is None else record.resource.type,
        "resource_id": None if record.resource is None else record.resource.id,
        "command": record.command,
        "open_effect": None if opened is None else opened.name,
    }


def effect_values(record_id: RecordId, ordinal: int, effect: Effect) -> dict[str, object]:
    """Return what an effect writes into its row, by column."""
    return {
        "record_id": record_id,
        "ordinal": ordinal,
        "name": effect.name,
        "effect_class": EFFECT_CLASSES[effect.effect_class],
        "derived_key": effect.derived_key,
        "digest": effect.digest,
        "is_outstanding": effect.is_outstanding,
        "recall_until": effect.recall_until,
        "verdict": None if effect.verdict is None else EFFECT_VERDICTS[effect.verdict],
        "result": effect.result,
    }


def _record(row: Row, effects: tuple[Effect, ...]) -> Record:
    """Return one record. By position and without a dictionary: every replay comes through here."""
    # fmt: off
    (
        identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode,
        state, fence, nonce, lease_until, attempts, recoveries, is_dirty, is_awaited, created_at,
        completed_at, expires_at, forget_at, doubt_since, doubt_reason, rejection, outcome_kind,
        outcome, resource_type, resource_id, command,
    ) = row[:_EFFECT_BEGINS]
    # fmt: on
    if type(record_id) is bytes:
        record_id = id_of(record_id)
    if outcome_kind is not None:
        outcome_kind = outcome_kind_of(outcome_kind)
    scope = scope_of(scope, operation)
    mode = _MODE_OF.get(mode) or _meaning(_MODE_OF, mode, "mode")
    state = _STATE_OF.get(state) or state_of(state)
    resource = None if resource_type is None else Resource(type=resource_type, id=resource_id)
    # fmt: off
    return make_record(
        identity, record_id, tenant, scope, operation, key, fingerprint, fingerprint_version, mode,
        state, fence, nonce, lease_until, attempts, recoveries, bool(is_dirty), bool(is_awaited), created_at,
        completed_at, expires_at, forget_at, doubt_since, doubt_reason, rejection, outcome_kind,
        outcome, resource, command, effects,
    )
    # fmt: on


def _effect(joined: Row) -> Effect:
    row: dict[str, Any] = dict(zip(EFFECT_COLUMNS, joined[_EFFECT_BEGINS:_EFFECT_ENDS], strict=True))
    row["effect_class"] = _meaning(_EFFECT_CLASS_OF, row["effect_class"], "effect class")
    row["is_outstanding"] = bool(row["is_outstanding"])
    if row["verdict"] is not None:
        row["verdict"] = _meaning(_EFFECT_VERDICT_OF, row["verdict"], "effect verdict")
    return Effect(**row)


def _meaning(meanings: Mapping[str, V], letter: str, what: str) -> V:
    """Return what a letter stands for; one that nobody knows is never taken for "nothing is there"."""
    if letter not in meanings:
        raise RecordCorrupt(f"the {what} {letter!r} is unknown to this version")
    return meanings[letter]
