"""Judge a whole history."""

from __future__ import annotations

from dataclasses import dataclass

from nebis.testing.history.events import HistoryUnusable, Place
from nebis.testing.history.reading import History
from nebis.testing.history.rules import AGGREGATE_RULES, KEY_RULES


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule of one key or aggregate."""

    rule: str
    place: Place
    detail: str

    def __str__(self) -> str:
        """Tell it in one line."""
        return f"{self.rule} {self.place}: {self.detail}"


def check(history: History) -> list[Violation]:
    """Return every violation, in the order of keys; raise `HistoryUnusable` for a history that proves nothing."""
    if not history.answers:
        raise HistoryUnusable("nobody was told anything definite in this history; record one before you check it")
    _require_calls(history)
    return judge(history)


def judge(history: History) -> list[Violation]:
    """Return every violation of what may be only a part of a history, and prove nothing by itself."""
    found = [
        Violation(rule, key.place, detail)
        for key in history.keys.values()
        for rule, broken in KEY_RULES.items()
        for detail in broken(key)
    ]
    found += [
        Violation(rule, aggregate.place, detail)
        for aggregate in history.aggregates.values()
        for rule, broken in AGGREGATE_RULES.items()
        for detail in broken(aggregate)
    ]
    return found


def _require_calls(history: History) -> None:
    """Refuse an answer to a call that nobody made: then lines are missing, and what is missing may be the fault."""
    for key in history.keys.values():
        for told in key.told:
            if told.call not in key.invokes:
                raise HistoryUnusable(f"{key.place}: call {told.call} was answered and never invoked; lines are lost")
