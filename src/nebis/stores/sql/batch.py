"""One batch of verbs: fast statements where all goes well, the state machine for everything else.

The order is the proof that no two batches can wait for each other: new keys are inserted first and sorted, which may
wait; everything after that picks its rows without waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from nebis.core.answers import Answer, Grant, Locked, make_granted
from nebis.core.claiming import first_life
from nebis.core.owning import KEPT
from nebis.core.record import Fence, Record
from nebis.core.transitions import transition
from nebis.core.verbs import Claim, Complete, Release, Renew, Verb
from nebis.flow import Flow
from nebis.ports.store import DefiniteFailure
from nebis.stores.sql.asks import Columns, Member, Query, Row, Statement
from nebis.stores.sql.dialect import Statements
from nebis.stores.sql.members import CLAIMS, COMPLETIONS, claims, completions, identities_of, owners
from nebis.stores.sql.rows import effect_values, record_values, records_of

V = TypeVar("V")
Values = dict[str, object]

_FAST: Final = {Claim, Complete, Renew, Release}
_NEW: Final = Grant.NEW
"""Looked up once: every new key is answered with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a verb makes of a record that was read under a lock."""

    old: Record
    new: Record | None
    answer: Answer


class Batch:
    """The verbs that are still unanswered, and the answers so far; an identity is in one of the two."""

    def __init__(
        self,
        statements: Statements,
        verbs: Sequence[Verb],
        now: int | None,
        answers: dict[bytes, Answer | Locked] | None = None,
        *,
        is_tried: bool = False,
    ) -> None:
        """Begin with the answers that there are already, by identity; `is_tried` if the fast statements gave them."""
        self.verbs = verbs
        self._statements = statements
        self._now: Values = {"now": now}
        self._kinds = kinds = set(map(type, verbs))
        self.fast_statements = 0 if is_tried else len(kinds & _FAST)
        """How many fast statements this batch will run."""
        self._identities = identities_of(verbs, kinds)
        by_identity = dict(zip(self._identities, verbs, strict=True))
        assert len(by_identity) == len(verbs), "an identity appears at most once in a batch"
        self.answers: dict[bytes, Answer | Locked] = {} if answers is None else answers
        for identity in self.answers:
            del by_identity[identity]
        self.unanswered = dict(sorted(by_identity.items()))

    def run_fast(self) -> Flow[None]:
        """Answer every verb that finds its record as it hopes to: one statement for each kind of verb."""
        if self._kinds == CLAIMS:
            return self._claim()
        if self._kinds == COMPLETIONS:
            return self._complete()
        return self._run_each_kind()

    def _run_each_kind(self) -> Flow[None]:
        if Claim in self._kinds:
            yield from self._claim()
        if Complete in self._kinds:
            yield from self._complete()
        if Renew in self._kinds:
            renewals = self._of(Renew)
            columns = owners([renewal.ownership for renewal in renewals])
            columns["lease_us"] = [renewal.lease_us for renewal in renewals]
            yield from self._write(self._statements.renew, Columns(columns))
        if Release in self._kinds:
            columns = owners([release.ownership for release in self._of(Release)])
            yield from self._write(self._statements.release, Columns(columns))

    def in_order(self) -> list[Answer | Locked]:
        """Return all answers, in the order in which was asked."""
        return list(map(self.answers.__getitem__, self._identities))

    def _of(self, kind: type[V]) -> list[V]:
        # Sorted, as the claim wants them.
        if len(self._kinds) == 1:
            return list(self.unanswered.values())  # type: ignore[arg-type]  # Of that kind.
        return [verb for verb in self.unanswered.values() if type(verb) is kind]

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

    def _claim(self) -> Flow[None]:
        rows = yield Query(self._statements.claim, self._now, claims(self._of(Claim)))
        unanswered, answers = self.unanswered, self.answers
        for identity, fence, created_at in rows:
            claim: Any = unanswered.pop(bytes(identity))  # Only claims were asked for.
            answers[claim.identity] = make_granted(record=first_life(claim, created_at, fence), how=_NEW)

    def _complete(self) -> Flow[None]:
        members = completions(self._of(Complete))
        return self._write(self._statements.complete, members)

    def _write(self, statement: Statement, members: Sequence[Member]) -> Flow[None]:
        rows = yield Query(statement, self._now, members)
        if len(rows) == len(self.unanswered):  # The rule: a row for each, and each is another one.
            self.answers.update(dict.fromkeys(self.unanswered, KEPT))
            self.unanswered.clear()
            return
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
            if step.record is old or step.record == old:
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
