"""The witness: a bank of a few lines that shares no code with what it watches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class Memory(StrEnum):
    """What a counter of the bank remembers of a key."""

    STICKY = "success and rejection"
    SUCCESS_ONLY = "success"
    FENCED = "success and the highest fence"
    QUERYABLE = "success and burnt keys, for those who ask"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A call on its way to the bank. Life and step are for the books alone; the bank decides by key and fence."""

    memory: Memory
    life: str
    step: str
    key: str = ""
    fence: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """A question to the bank: what became of a key, or that it be burnt."""

    key: str
    burns: bool


class Declined(Exception):
    """The bank says no."""


class Unclear(Exception):
    """The bank answers with something that says nothing about the charge."""


class Bank:
    """Moves money, and keeps books of it."""

    def __init__(self) -> None:
        self.moved: Counter[tuple[str, str]] = Counter()
        """The books: how often money moved, by life and step."""
        self._known: dict[tuple[Memory, str], str | None] = {}
        self._fences: dict[str, int] = {}
        self._burnt: set[str] = set()

    def move(self, order: Order, *, declines: bool) -> str:
        """Serve a call: a new charge, or what is remembered of its key; raise `Declined` or `Unclear`."""
        place = (order.memory, order.key)
        if order.memory is Memory.FENCED:
            if order.fence < self._fences.get(order.key, 0):
                raise Unclear("a newer fence was seen")
            self._fences[order.key] = order.fence
        if order.memory is Memory.QUERYABLE and order.key in self._burnt:
            raise Unclear("this key is burnt")
        if order.memory not in (Memory.NOTHING, Memory.QUERYABLE) and place in self._known:
            charge = self._known[place]
            if charge is None:
                raise Declined
            return charge
        if declines:
            if order.memory is Memory.STICKY:
                self._known[place] = None
            raise Declined
        self.write(order.life, order.step)
        charge = f"{order.life} {order.step} {self.moved.total()}"
        if order.memory is not Memory.NOTHING:
            self._known[place] = charge
        return charge

    def write(self, life: str, step: str) -> None:
        """Write a movement down."""
        self.moved[(life, step)] += 1

    def answer(self, look: Look) -> str | bool | None:
        """Say what became of a key, or burn it: False if it is too late for that."""
        charge = self._known.get((Memory.QUERYABLE, look.key))
        if not look.burns:
            return charge
        if charge is not None:
            return False
        self._burnt.add(look.key)
        return True
