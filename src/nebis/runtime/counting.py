"""Counts what happens, for people: in memory first, added to the store by housekeeping."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from nebis.core.answers import ClaimAnswer, Doubtful, Gone, Grant, Granted, Replay, Reused, Running
from nebis.ports.observer import (
    AttemptStarted,
    DoubtRaised,
    Event,
    FoundExpired,
    FoundInDoubt,
    FoundInFlight,
    FoundKeyReused,
    FoundTooFast,
    GapFound,
    MessageIgnored,
    MessageParked,
    OwnershipLost,
    Replayed,
)
from nebis.ports.store import Tally

_NAMES: dict[type[Event], str] = {
    Replayed: "replays",
    FoundInFlight: "in_flight",
    FoundKeyReused: "key_reuses",
    FoundInDoubt: "in_doubt",
    FoundExpired: "expired_retries",
    FoundTooFast: "too_fast",
    DoubtRaised: "doubts",
    OwnershipLost: "lost_leases",
    MessageParked: "parked",
    MessageIgnored: "ignored",
    GapFound: "gaps",
}
_NAMES_OF_ANSWERS: dict[type[ClaimAnswer], str] = {
    Replay: _NAMES[Replayed],
    Running: _NAMES[FoundInFlight],
    Reused: _NAMES[FoundKeyReused],
    Doubtful: _NAMES[FoundInDoubt],
    Gone: _NAMES[FoundExpired],
}
_NAMES_OF_GRANTS = {
    Grant.RUN_AGAIN: "expired_retries",
    Grant.TAKEN_OVER: "takeovers",
    Grant.RESUMED: "takeovers",
}


_REPLAYS: Final = _NAMES[Replayed]
_NEW: Final = Grant.NEW
"""Looked up once: nearly every grant is one."""


class Counting:
    """An observer that counts events by kind and operation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}

    def __call__(self, event: Event) -> None:
        """Count one event, if it is of a kind that people ask for."""
        name = _NAMES_OF_GRANTS.get(event.how) if isinstance(event, AttemptStarted) else _NAMES.get(type(event))
        if name is not None:
            self._count(name, event.operation)

    def claimed(self, answer: ClaimAnswer) -> None:
        """Count how a claim was answered, as the event would be; it is not made for this alone."""
        if not isinstance(answer, Granted):
            name = _NAMES_OF_ANSWERS.get(type(answer))
        elif answer.how is _NEW:
            return  # Nearly all of them are.
        else:
            name = _NAMES_OF_GRANTS.get(answer.how)
        if name is not None:
            self._count(name, answer.record.operation)

    def replayed(self, replays: Mapping[str, int]) -> None:
        """Count so many replays of each operation, as `claimed` does one by one."""
        self.give_back({Tally(_REPLAYS, operation): number for operation, number in replays.items()})

    def _count(self, name: str, operation: str) -> None:
        counted = name, operation
        with self._lock:
            self._counts[counted] = self._counts.get(counted, 0) + 1

    @property
    def has_any(self) -> bool:
        """Tell whether anything was counted since the last time."""
        return bool(self._counts)

    def take(self) -> dict[Tally, int]:
        """Return what was counted since the last time, and begin anew."""
        with self._lock:
            taken, self._counts = self._counts, {}
        return {Tally(*counted): number for counted, number in taken.items()}

    def give_back(self, taken: dict[Tally, int]) -> None:
        """Count again what could not be added to the store."""
        with self._lock:
            for counted, number in taken.items():
                self._counts[counted] = self._counts.get(counted, 0) + number
