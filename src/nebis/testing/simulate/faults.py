"""What goes wrong in one run: an explicit list drawn from the seed, so that a part of it can be tried alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

LEASE_SECONDS = 10.0
LONGEST_DELAY_SECONDS = 4 * LEASE_SECONDS
"""Of a message or a frozen process. Records outlive it by far, as the promise assumes."""
ASKS_IN_A_RUN = 160
"""Faults are spread over about so many asks; those that find no ask any more do not happen."""


class Trouble(StrEnum):
    """One way in which the world misbehaves towards the next ask that it can befall."""

    CRASH_BEFORE = "the process dies before it asks"
    CRASH_AFTER = "the process dies once its message has arrived"
    LOST = "the message is lost"
    REPLY_LOST = "the message arrives and its answer is lost"
    LATE = "the message is given up for lost and arrives later"
    REFUSED = "the store refuses at once"
    SLOW = "the message and its answer take very long"
    PAUSE = "the process is frozen"
    PARTITION = "the process cannot reach the store"
    CLOCK_FORTH = "the store's clock steps forward"
    CLOCK_BACK = "the store's clock steps back"
    NEVER_SENT = "the call fails before it leaves"
    DECLINE = "the bank declines"
    RAISE = "the handler raises"
    GIVE_UP = "the handler says that it should be tried again"
    WITHDRAW = "the handler says that the request should never have been one"
    DOUBT = "the handler says that nobody can tell"
    REJECT = "the handler rejects"
    TWICE = "the broker delivers something once more"
    SWALLOWED = "the broker swallows messages without a word"
    UNCONFIRMED = "the broker takes messages and its confirmation is lost"
    BELATED = "messages are given up for lost and reach the broker later"


OF_MAIL = (Trouble.TWICE, Trouble.SWALLOWED, Trouble.UNCONFIRMED, Trouble.BELATED)
"""What only a broker does."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One trouble: it befalls the first ask from a number on that it suits."""

    at: int
    trouble: Trouble
    seconds: float

    def __str__(self) -> str:
        """Tell it in one line."""
        return f"from ask {self.at}: {self.trouble.value} ({self.seconds:.1f} s)"


def draw_faults(chance: random.Random, *, has_mail: bool) -> tuple[Fault, ...]:
    """Draw the faults of one run: a few kinds out of all, so that rare kinds also come in crowds."""
    usual = [trouble for trouble in Trouble if trouble not in OF_MAIL]
    found = _drawn(chance, chance.sample(usual, chance.randint(2, 9)), chance.choice((0, 2, 4, 6, 8, 12, 18)))
    if has_mail:
        found += _drawn(chance, OF_MAIL, chance.choice((0, 1, 2, 4, 6)))
    return tuple(sorted(found, key=lambda fault: fault.at))


def _drawn(chance: random.Random, kinds: Sequence[Trouble], number: int) -> list[Fault]:
    return [
        Fault(
            at=int(chance.random() * ASKS_IN_A_RUN),
            trouble=chance.choice(kinds),
            seconds=chance.random() ** 2 * LONGEST_DELAY_SECONDS,
        )
        for _ in range(number)
    ]


class Hazards:
    """The faults of a run that have not happened yet."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._coming = list(reversed(faults))
        self._armed: list[Fault] = []
        self.happened: list[Fault] = []

    def befall(self, number: int, suits: frozenset[Trouble]) -> Fault | None:
        """Return what befalls the ask of that number, if anything does."""
        while self._coming and self._coming[-1].at <= number:
            self._armed.append(self._coming.pop())
        for fault in self._armed:
            if fault.trouble in suits:
                self._armed.remove(fault)
                self.happened.append(fault)
                return fault
        return None

    def stop(self) -> None:
        """Let nothing go wrong any more."""
        self._coming.clear()
        self._armed.clear()


def minimised(faults: Sequence[Fault], still_fails: Callable[[Sequence[Fault]], bool]) -> tuple[Fault, ...]:
    """Return a part of the faults that fails all the same, and of which no single one can be left out."""
    kept = list(faults)
    size = max(1, len(kept) // 2)
    while True:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if still_fails(fewer):
                kept = fewer
            else:
                start += size
        if size == 1:
            return tuple(kept)
        size //= 2
