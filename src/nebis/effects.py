"""How an effect can be recovered when nobody knows whether it happened: the words to declare it with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from nebis.core.record import EffectClass
from nebis.policy import microseconds


@dataclass(frozen=True, slots=True)
class Sticky:
    """The downstream remembers success and rejection under our key for at least `window`: it may be called again."""

    window: timedelta


@dataclass(frozen=True, slots=True)
class SuccessOnly:
    """The downstream remembers only success under our key, for at least `window`: a late rejection proves nothing."""

    window: timedelta


@dataclass(frozen=True, slots=True)
class Fenced:
    """The downstream compares our fence and refuses older ones: it may be called again with the new fence."""


@dataclass(frozen=True, slots=True)
class Queryable:
    """The downstream can be asked by our key; the operation's `queries` say how. Never called again."""


@dataclass(frozen=True, slots=True)
class Unrecoverable:
    """Nothing is known: whenever the answer is missing, the record is in doubt and a person decides."""


Recall: TypeAlias = Sticky | SuccessOnly | Fenced | Queryable | Unrecoverable

_CLASSES: dict[type[object], EffectClass] = {
    Sticky: EffectClass.STICKY,
    SuccessOnly: EffectClass.SUCCESS_ONLY,
    Fenced: EffectClass.FENCED,
    Queryable: EffectClass.QUERYABLE,
    Unrecoverable: EffectClass.OPAQUE,
}


def class_of(recall: Recall) -> EffectClass:
    """Return the class that a declaration stands for."""
    return _CLASSES[type(recall)]


def window_us(recall: Recall) -> int | None:
    """Return how long the downstream remembers our key, where it matters."""
    return microseconds(recall.window) if isinstance(recall, Sticky | SuccessOnly) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """How to undo an effect that happened: a function that a worker can import, called under a key of its own.

    It gets the effect's result, and, where it asks for them by name, `idempotency_key` (its own), `original_key` (the
    effect's) and `fence`. Its result is of the type that it is annotated with, as is what it gets.
    """

    call: Callable[..., Any]
    recall: Recall | None
    """How it can be recovered itself; None for a local step, which gets the transaction's connection before the result
    and commits its rows together with the word that it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """How to ask a downstream what became of an effect: by our key, with a function that a worker can import.

    `find` returns the effect's result, or None if there is nothing. That alone never lets the effect run again: the
    first call may still be on its way (F065). `void` burns the key downstream so that it cannot happen later; it raises
    or returns False where it could not. `settled_after` says for how long after the doubt began a call may still land;
    it must outlast the longest pause of a process that was about to call.
    """

    find: Callable[[str], Any]
    void: Callable[[str], Any] | None = None
    settled_after: timedelta | None = None
