"""The store: the production state machine over a table of all records that ever came up, each asked only once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from nebis.core.answers import Answer, Doubtful, GivenUp, Gone, Granted, Refused, Replay, Reused, Running, Unreadable
from nebis.core.record import Fence, Record, State
from nebis.core.step import Edge, Step
from nebis.core.verbs import Verb
from nebis.testing.modelcheck.letters import (
    KIND_LETTERS,
    Letters,
    body_of,
    bytes_of,
    nonce_of,
    record_id_of,
)
from nebis.testing.modelcheck.plan import Plan
from nebis.testing.modelcheck.world import NOBODY, Body, Message

Transition: TypeAlias = Callable[[Record | None, Verb, int, Fence], Step[Answer]]


class Instant(IntEnum):
    """The moments at which a verb can arrive. A search may pick any: safety must not rest on clocks (I7)."""

    LIVE = 10
    LAPSED = 200
    RECALL_OVER = 600
    DUE = 1_000
    FORGOTTEN = 2_000


LEASE_END = 100
RECALL_END = 500


class Face(NamedTuple):
    """What the rest of the model reads of a record."""

    state: State | None
    life: int = NOBODY
    name: int = NOBODY
    fence: int = 0
    view: str = ""
    open_step: str = ""
    key: int = NOBODY
    """The derived key of the open effect."""
    outcome: Body | None = None
    kind: str = ""
    tenant: int = NOBODY
    command: int = NOBODY
    has_lapsed: bool = False
    has_voided: bool = False
    """The bank burnt the key of an effect, so the next one needs another."""
    names: tuple[int, ...] = ()
    """Everybody mentioned in the record, in a fixed order."""


class Reply(NamedTuple):
    """What came back from the store: the row as it now is, and the core's own answer."""

    record: int
    answer: Answer
    edge: Edge
    shown: int
    """The record inside the answer."""


Renaming: TypeAlias = tuple[int, ...]
"""The new name or fence at the place of the old one."""


class Table:
    """All records of one search by number, and a memory of every question ever asked of the state machine."""

    def __init__(self, plan: Plan, transition: Transition) -> None:
        self._plan = plan
        self._letters = Letters(plan)
        self._transition = transition
        self._records: list[Record | None] = [None]
        self._numbers: dict[Record, int] = {}
        self._replies: dict[tuple[int, Message, int, int], Reply] = {}
        self._renamed: dict[tuple[int, Renaming, Renaming], int] = {}
        self.faces: list[Face] = [Face(None)]
        self.edges: set[Edge] = set()

    def apply(self, record: int, message: Message, now: int, fence: int) -> Reply:
        """Ask the state machine what a message makes of a record."""
        question = (record, message, now, fence)
        reply = self._replies.get(question)
        if reply is None:
            reply = self._replies[question] = self._ask(*question)
        return reply

    def _ask(self, record: int, message: Message, now: int, fence: int) -> Reply:
        step = self._transition(self._records[record], self._letters.verb(message), now, Fence(fence))
        self.edges.add(step.edge)
        return Reply(self._number(step.record, now), step.answer, step.edge, self._number(_record_in(step.answer), now))

    def time_passes(self, record: int, now: int) -> int:
        """Return a record as it looks at a later instant at which nobody asked anything."""
        return self._number(self._records[record], now)

    def renamed(self, number: int, names: Renaming, fences: Renaming) -> int:
        """Return the same record with other names and fences in all places."""
        wanted = (number, names, fences)
        result = self._renamed.get(wanted)
        if result is None:
            record = self._records[number]
            result = 0 if record is None else self._number(_renamed(record, names, fences), Instant.LIVE)
            self._renamed[wanted] = result
        return result

    def _number(self, record: Record | None, now: int) -> int:
        if record is None:
            return 0
        record = _without_times(record, now)
        number = self._numbers.get(record)
        if number is None:
            number = self._numbers[record] = len(self._records)
            self._records.append(record)
            self.faces.append(self._face(record))
        return number

    def _face(self, record: Record) -> Face:
        opened = record.open_effect
        open_step = next(
            (step for step in self._plan.classes if opened and self._plan.effect_name(step) == opened.name), ""
        )
        outcome = None if record.outcome is None else body_of(record.outcome)
        names = [record.record_id.int, record.nonce[0]]
        names += [ord(effect.derived_key) for effect in record.effects if effect.derived_key]
        if outcome is not None:
            names += [outcome.life, outcome.author]
        return Face(
            state=record.state,
            life=record.record_id.int,
            name=record.nonce[0],
            fence=record.fence,
            view=self._plan.view_of(record),
            open_step=open_step,
            key=ord(opened.derived_key) if opened and opened.derived_key else NOBODY,
            outcome=outcome,
            kind="" if record.outcome_kind is None else KIND_LETTERS[record.outcome_kind],
            tenant=int(record.tenant),
            command=record.fingerprint[0],
            has_lapsed=record.lease_until == 0,
            has_voided=any(effect.is_voided for effect in record.effects),
            names=tuple(names),
        )


def _record_in(answer: Answer) -> Record | None:
    if isinstance(answer, Granted | Replay | Running | Reused | Doubtful | Gone | Unreadable | GivenUp):
        return answer.record if isinstance(answer.record, Record) else None
    return answer.found if isinstance(answer, Refused) else None


def _without_times(record: Record, now: int) -> Record:
    """Replace each time by whether it is past: only that can matter, and without it no search would end."""
    is_running = record.state is State.IN_PROGRESS
    effects = tuple(
        effect
        if effect.recall_until is None
        else replace(effect, recall_until=RECALL_END if now < effect.recall_until else 0)
        for effect in record.effects
    )
    return replace(
        record,
        lease_until=0 if is_running and record.lease_until <= now else LEASE_END,
        attempts=1,
        created_at=0,
        completed_at=None if record.completed_at is None else 0,
        expires_at=Instant.DUE,
        forget_at=Instant.FORGOTTEN,
        doubt_since=None if record.doubt_since is None else 0,
        doubt_reason=None if record.doubt_reason is None else "doubt",
        effects=effects,
    )


def _renamed(record: Record, names: Renaming, fences: Renaming) -> Record:
    outcome = record.outcome
    if outcome is not None:
        body = body_of(outcome)
        outcome = bytes_of(Body(body.kind, names[body.life], names[body.author]))
    effects = tuple(
        replace(effect, derived_key=chr(names[ord(effect.derived_key)])) if effect.derived_key else effect
        for effect in record.effects
    )
    return replace(
        record,
        record_id=record_id_of(names[record.record_id.int]),
        nonce=nonce_of(names[record.nonce[0]]),
        fence=Fence(fences[record.fence]),
        outcome=outcome,
        effects=effects,
    )
