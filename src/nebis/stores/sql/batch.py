"""One batch of verbs: fast statements where all goes well, the state machine for everything else.

The order is the proof that no two batches can wait for each other: new keys are inserted first and sorted, which may
wait; everything after that picks its rows without waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nebis.core.answers import Answer, Grant, Granted, Locked
from nebis.core.claiming import first_life
from nebis.core.owning import KEPT, UNKNOWN_FORGET_FACTOR
from nebis.core.record import Fence, OutcomeKind, Ownership, Record
from nebis.core.transitions import transition
from nebis.core.verbs import Claim, Complete, Release, Renew, Verb, identity_of
from nebis.flow import Flow
from nebis.ports.store import DefiniteFailure
from nebis.stores.sql.asks import Query, Row, Statement
from nebis.stores.sql.dialect import Statements
from nebis.stores.sql.rows import MODES, OUTCOME_KINDS, effect_values, record_values, records_of

Values = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a verb makes of a record that was read under a lock."""

    old: Record
    new: Record | None
    answer: Answer


class Batch:
    """The verbs that are still unanswered, and the answers so far; an identity is in one of the two."""

    def __init__(self, statements: Statements, verbs: Sequence[Verb], now: int | None) -> None:
        by_identity = {identity_of(verb): verb for verb in verbs}
        assert len(by_identity) == len(verbs), "an identity appears at most once in a batch"
        self._statements = statements
        self._now: Values = {"now": now}
        self.unanswered = dict(sorted(by_identity.items()))
        self.answers: dict[bytes, Answer | Locked] = {}

    @property
    def fast_statements(self) -> int:
        """Count the fast statements that this batch will run."""
        return len({type(verb) for verb in self.unanswered.values()} & {Claim, Complete, Renew, Release})

    def run_fast(self) -> Flow[None]:
        """Answer every verb that finds its record as it hopes to: one statement for each kind of verb."""
        yield from self._claim([verb for verb in self.unanswered.values() if isinstance(verb, Claim)])
        verbs = list(self.unanswered.values())
        yield from self._write(
            self._statements.complete, [completing(verb) for verb in verbs if isinstance(verb, Complete)]
        )
        yield from self._write(
            self._statements.renew,
            [{**_owner(verb.ownership), "lease_us": verb.lease_us} for verb in verbs if isinstance(verb, Renew)],
        )
        yield from self._write(
            self._statements.release, [_owner(verb.ownership) for verb in verbs if isinstance(verb, Release)]
        )

    def read_replays(self) -> Flow[None]:
        """Answer every verb whose record is as it was expected, by one look at it; leave all others unanswered."""
        rows = yield from self._read()
        clock = _clock(rows)
        for identity, old in records_of(rows).items():
            step = transition(old, self.unanswered[identity], clock[identity], Fence(old.fence + 1))
            if step.record == old:
                self._answer(identity, step.answer)

    def read(self) -> Flow[list[Change]]:
        """Answer every verb that changes nothing, without a lock; return what the others would change."""
        rows = yield from self._read()
        return self._decide(rows, {bytes(row[-3]): Fence(row[-1]) for row in rows})

    def _read(self) -> Flow[list[Row]]:
        members = [{"identity": identity, "position": place} for place, identity in enumerate(self.unanswered, start=1)]
        return (yield from Query(self._statements.read, self._now, members))

    def lock_and_decide(self, lock: Statement) -> Flow[list[Change]]:
        """Decide again with the rows locked; who is locked by others, or vanished, has to ask again."""
        locked = yield from Query(lock, self._now, [{"identity": identity} for identity in self.unanswered])
        fences = {bytes(identity): Fence(fence) for identity, fence in locked}
        for identity in self.unanswered.keys() - fences.keys():
            # A vanished row is not inserted here: an insert may wait, and this transaction already holds others.
            self._answer(identity, Locked())
        if not self.unanswered:
            return []
        rows = yield from Query(
            self._statements.read, self._now, [{"identity": identity} for identity in self.unanswered]
        )
        return self._decide(rows, fences)

    def save(self, changes: Sequence[Change]) -> Flow[None]:
        """Write what was decided, all or nothing, and only over what the decision was about."""
        gone = [_guard(change.old) for change in changes if change.new is None]
        kept = [{**record_values(change.new), **_guard(change.old)} for change in changes if change.new is not None]
        # Effects go before the life that they belong to ends, and come after the record that they belong to.
        yield from self._each(
            self._statements.drop_effect, [row for change in changes for row in _lost_effects(change)]
        )
        yield from self._each(self._statements.save, kept, must_match=True)
        yield from self._each(self._statements.drop_record, gone, must_match=True)
        yield from self._each(self._statements.save_effect, [row for change in changes for row in _new_effects(change)])
        if self._statements.wake is not None:
            yield from self._each(
                self._statements.wake, [{"identity": change.old.identity} for change in changes if _ends_a_wait(change)]
            )
        for change in changes:
            self._answer(change.old.identity, change.answer)

    def _answer(self, identity: bytes, answer: Answer | Locked) -> None:
        del self.unanswered[identity]
        self.answers[identity] = answer

    def _claim(self, claims: Sequence[Claim]) -> Flow[None]:
        if not claims:
            return
        by_identity = {claim.identity: claim for claim in claims}
        rows = yield from Query(self._statements.claim, self._now, [_claiming(claim) for claim in claims])
        for identity, fence, created_at in rows:
            record = first_life(by_identity[bytes(identity)], created_at, Fence(fence))
            self._answer(record.identity, Granted(record=record, how=Grant.NEW))

    def _write(self, statement: Statement, members: Sequence[Values]) -> Flow[None]:
        if not members:
            return
        rows = yield from Query(statement, self._now, members)
        for row in rows:
            self._answer(bytes(row[0]), KEPT)

    def _each(self, statement: Statement, members: Sequence[Values], *, must_match: bool = False) -> Flow[None]:
        if not members:
            return
        rows = yield from Query(statement, {}, members)
        if must_match and len(rows) != len(members):
            # Under the lock nobody else can have moved it; a store that lets this happen is not believed.
            raise DefiniteFailure(f"{statement.name} found {len(rows)} of {len(members)} locked records")

    def _decide(self, rows: Sequence[Row], fences: Mapping[bytes, Fence]) -> list[Change]:
        records = records_of(rows)
        clock = _clock(rows)
        changes = []
        for identity, verb in list(self.unanswered.items()):
            old = records.get(identity)
            step = transition(old, verb, clock[identity], fences[identity])
            if step.record == old:
                self._answer(identity, step.answer)
            elif old is None:
                # It was there when the claim was inserted and is gone now; the next try will insert it.
                self._answer(identity, Locked())
            else:
                changes.append(Change(old=old, new=step.record, answer=step.answer))
        return changes


def _clock(rows: Sequence[Row]) -> dict[bytes, int]:
    """Return what time it was for each member when it was read."""
    return {bytes(row[-3]): int(row[-2]) for row in rows}


def _claiming(claim: Claim) -> Values:
    version, fingerprint = claim.fingerprints[0]
    return {
        "identity": claim.identity,
        "record_id": claim.record_id,
        "tenant": claim.tenant,
        "scope": claim.scope,
        "operation": claim.operation,
        "key": claim.key,
        "fingerprint": fingerprint,
        "fingerprint_version": version,
        "mode": MODES[claim.mode],
        "nonce": claim.nonce,
        "lease_us": claim.lease_us,
        "outcome_us": claim.retention.outcome_us,
        "metadata_us": claim.retention.metadata_us,
        "command": claim.command,
    }


def completing(verb: Complete) -> Values:
    """Return what the statement that completes wants to know."""
    factor = UNKNOWN_FORGET_FACTOR if verb.outcome.kind is OutcomeKind.UNKNOWN else 1
    return {
        **_owner(verb.ownership),
        "outcome_kind": OUTCOME_KINDS[verb.outcome.kind],
        "outcome": verb.outcome.body,
        "outcome_us": verb.retention.outcome_us,
        "forget_us": factor * verb.retention.metadata_us,
        "resource_type": None if verb.resource is None else verb.resource.type,
        "resource_id": None if verb.resource is None else verb.resource.id,
    }


def _owner(ownership: Ownership) -> Values:
    return {
        "identity": ownership.identity,
        "record_id": ownership.record_id,
        "fence": ownership.fence,
        "nonce": ownership.nonce,
    }


def _guard(old: Record) -> Values:
    return {"identity": old.identity, "old_record_id": old.record_id, "old_fence": old.fence}


def _lost_effects(change: Change) -> list[Values]:
    same_life = change.new is not None and change.new.record_id == change.old.record_id
    kept = {effect.name for effect in change.new.effects} if change.new is not None and same_life else set()
    return [
        {"record_id": change.old.record_id, "name": effect.name}
        for effect in change.old.effects
        if effect.name not in kept
    ]


def _new_effects(change: Change) -> list[Values]:
    if change.new is None:
        return []
    known = set(enumerate(change.old.effects)) if change.new.record_id == change.old.record_id else set()
    return [
        effect_values(change.new.record_id, ordinal, effect)
        for ordinal, effect in enumerate(change.new.effects)
        if (ordinal, effect) not in known
    ]


def _ends_a_wait(change: Change) -> bool:
    return change.old.is_awaited and (change.new is None or not change.new.is_awaited)
