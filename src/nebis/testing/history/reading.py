"""Read a history from lines of JSON, and sort it by key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nebis.testing.history.events import (
    Completed,
    Effect,
    Final,
    Granted,
    HistoryUnusable,
    Invoke,
    Place,
    RowKind,
    Told,
    Verdict,
)


@dataclass(slots=True)
class KeyHistory:
    """All that is known of one key, each kind in the order in which it was written down."""

    place: Place
    invokes: dict[str, Invoke] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    granted: list[Granted] = field(default_factory=list)
    completed: list[Completed] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)


@dataclass(slots=True)
class AggregateHistory:
    """The rows of one aggregate, which many keys may work on, wherever they were seen."""

    place: Place
    rows: dict[RowKind, list[str]] = field(default_factory=lambda: {kind: [] for kind in RowKind})


class History:
    """A history, sorted by key and by aggregate while it is read."""

    def __init__(self) -> None:
        self.keys: dict[Place, KeyHistory] = {}
        self.aggregates: dict[Place, AggregateHistory] = {}
        self.answers = 0

    @classmethod
    def read(cls, *files: Path) -> History:
        """Read files of JSON lines, in any order; raise `HistoryUnusable` for a line that means nothing."""
        history = cls()
        for file in files:
            with file.open() as lines:
                history.add_lines(lines, file.name)
        return history

    def add_lines(self, lines: Iterable[str], source: str = "history") -> None:
        """Add lines of JSON."""
        for number, line in enumerate(lines, start=1):
            try:
                self.add(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                detail = f"{type(error).__name__}: {error}"
                raise HistoryUnusable(f"{source} line {number} is no event ({detail}); repair what wrote it") from error

    def add(self, entry: dict[str, Any]) -> None:
        """Add one event."""
        if entry["type"] in list(RowKind):
            self._add_row(entry)
            return
        place = Place(str(entry["tenant"]), str(entry["key"]))
        known = self.keys.get(place) or self.keys.setdefault(place, KeyHistory(place))
        kind = entry["type"]
        match kind:
            case "invoke":
                self._add_invoke(known, entry)
            case "ok" | "fail" | "refused" | "info":
                self._add_told(known, entry)
            case "effect":
                known.effects.append(Effect(place=place, at=entry["at"], attempt=entry.get("attempt")))
            case "granted":
                known.granted.append(Granted(place=place, record=entry["record"], fence=int(entry["fence"])))
            case "completed":
                known.completed.append(Completed(place=place, record=entry["record"], at=entry["at"]))
            case "record":
                known.finals.append(Final(place=place, state=entry["state"], reason=entry.get("reason")))
            case _:
                raise ValueError(f"{kind!r} is no kind of event")

    def _add_row(self, entry: dict[str, Any]) -> None:
        place = Place(str(entry["tenant"]), str(entry["aggregate"]))
        known = self.aggregates.get(place) or self.aggregates.setdefault(place, AggregateHistory(place))
        known.rows[RowKind(entry["type"])].append(str(entry["row"]))

    def _add_invoke(self, known: KeyHistory, entry: dict[str, Any]) -> None:
        call = str(entry["call"])
        if call in known.invokes:
            raise ValueError(f"call {call!r} was invoked twice")
        known.invokes[call] = Invoke(
            place=known.place, call=call, at=entry["at"], command=entry["command"], nonce=entry["nonce"]
        )

    def _add_told(self, known: KeyHistory, entry: dict[str, Any]) -> None:
        told = Told(
            place=known.place,
            call=str(entry["call"]),
            at=entry["at"],
            verdict=Verdict(entry["type"]),
            digest=entry["digest"] if entry["type"] == "ok" else None,
            code=entry.get("code"),
            body_tenant=entry.get("body_tenant"),
            body_nonce=entry.get("body_nonce"),
        )
        known.told.append(told)
        self.answers += told.verdict is not Verdict.INFO
