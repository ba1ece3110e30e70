"""The values that a search goes through: attempts, messages, the bank's ledger, and a situation made of them."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NOBODY = -1
"""The name of no attempt and of no life."""


class At(IntEnum):
    """Where an attempt's program stands."""

    CLAIMING = 0
    TAKING_OVER = 1
    OWNING = 2
    CALLING = 3
    HEARD = 4
    BARRIER = 5
    LEAVING = 6


class Attempt(NamedTuple):
    """One living try at running the operation. A crash removes it; everything else it knows stands here."""

    at: At
    name: int
    """Its nonce, and the record id of the life that its claim would begin."""
    life: int
    fence: int
    tenant: int
    command: int
    """Which body its client sent; another body has another fingerprint."""
    view: str = ""
    """What it knows of each effect, see `plan.py`."""
    again: bool = False
    """An own call under the open intent ended without an answer and may still land."""
    said: str = ""
    """What the bank answered (HEARD), or how it stops (LEAVING)."""
    key: int = NOBODY
    """The derived key of the open intent."""


class Message(NamedTuple):
    """Something on its way to the store or, as a `call`, to the bank; it may arrive at any time, or never."""

    verb: str
    tenant: int
    name: int
    life: int
    fence: int
    about: str = ""
    key: int = NOBODY
    command: int = 0


class Entry(NamedTuple):
    """What the bank knows of one effect under one derived key."""

    life: int
    step: str
    key: int
    times: int
    memory: str = ""
    """What the bank answers next time: S succeeded, R rejected, V voided, or nothing."""
    fence: int = 0
    """The highest fence seen, where the bank compares fences."""


class Body(NamedTuple):
    """The bytes of an outcome: two attempts never make the same ones."""

    kind: str
    life: int
    author: int


class Ack(NamedTuple):
    """An answer that left the process, for the life that its client asked about."""

    life: int
    body: Body
    fault: str = ""


class Past(NamedTuple):
    """A life that the store no longer knows, and how it ended; no kind means that it never did."""

    life: int
    kind: str


class Situation(NamedTuple):
    """Everything except the budgets. Records are indices into the store's table, one per tenant."""

    records: tuple[int, ...]
    attempts: tuple[Attempt, ...] = ()
    sent: tuple[Message, ...] = ()
    bank: tuple[Entry, ...] = ()
    acks: tuple[Ack, ...] = ()
    past: tuple[Past, ...] = ()


class Cost(IntEnum):
    """What a move uses up. Free moves need no luck, no fault and no person: only they count as a way out (G3)."""

    FREE = -1
    START = 0
    CRASH = 1
    LATE = 2
    REJECT = 3
    FAIL = 4
    AGE = 5
    EVIDENCE = 6


class Told(NamedTuple):
    """What a move was, for the story: who did what, and what came back."""

    who: int
    what: str
    about: str = ""
    answer: str = ""


class Move(NamedTuple):
    """One step from a situation to the next."""

    cost: Cost
    told: Told
    situation: Situation


class Turn(NamedTuple):
    """A situation and what the next move may use: the next free name and fence, and the costs that can be paid."""

    situation: Situation
    name: int
    fence: int
    payable: int
    """One bit for each cost."""

    def affords(self, cost: Cost) -> bool:
        """Tell whether moves of that cost are worth making."""
        return cost < 0 or bool(self.payable >> cost & 1)


ALL_COSTS = (1 << len(Cost)) - 1


def added(bank: tuple[Entry, ...], entry: Entry) -> tuple[Entry, ...]:
    """Return the ledger with this entry instead of the one for the same effect and key."""
    kept = [old for old in bank if (old.life, old.step, old.key) != (entry.life, entry.step, entry.key)]
    return tuple(sorted([*kept, entry]))


def found(bank: tuple[Entry, ...], life: int, step: str, key: int) -> Entry:
    """Return what the bank knows of an effect under that key."""
    for entry in bank:
        if entry.life == life and entry.step == step and entry.key == key:
            return entry
    return Entry(life, step, key, times=0)


def times_happened(bank: tuple[Entry, ...], life: int, step: str) -> int:
    """Count how often an effect happened, whatever key it was asked for with."""
    return sum(entry.times for entry in bank if entry.life == life and entry.step == step)
