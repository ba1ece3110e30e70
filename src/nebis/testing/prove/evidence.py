"""What was seen, as a file: a night adds up piece by piece, each layer for as long as its own code stays the same."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nebis.testing.prove.ground import GROUNDS, newest

KEYS = (
    "model_states",
    "model_violations",
    "poisoned_states",
    "simulation_seeds",
    "simulation_violations",
    "kills",
    "protocol_cuts",
    "failovers",
    "soak_requests",
    "violations",
    "planted_bugs_total",
    "planted_bugs_caught",
    "torture_checks",
    "mutation_score",
)
"""What the file says about all layers together; the rest stands with each layer."""


@dataclass(slots=True)
class Seen:
    """What a layer saw in one piece of its work."""

    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """What broke a promise."""
    breakdowns: list[str] = field(default_factory=list)
    """What kept the layer from looking; nothing was seen then, good or bad."""
    done: str | None = None
    """The name of the piece, if it has one: it is not done again."""

    def add(self, more: Seen) -> None:
        """Put another piece to it."""
        self.counts = _sum(self.counts, more.counts)
        self.failures += more.failures
        self.breakdowns += more.breakdowns


@dataclass(slots=True)
class Record:
    """What a layer saw of one state of its code."""

    commit: str
    pieces: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)


class Evidence:
    """The file of one size; several processes may write it at once, each about other layers."""

    def __init__(self, root: Path, size: str) -> None:
        self._root = root
        self._locks = root / ".nebis"
        self.place = root / ("proof/latest.json" if size == "night" else f".nebis/proof-{size}.json")

    def forget(self) -> None:
        """Begin at zero."""
        self.place.unlink(missing_ok=True)

    def records(self) -> dict[str, Record]:
        """Return what still holds: what was seen of code that was changed since does not."""
        if not self.place.exists():
            return {}
        kept: dict[str, Any] = json.loads(self.place.read_text()).get("layers", {})
        return {
            name: Record(**kept[name])
            for name, ground in GROUNDS.items()
            if name in kept and kept[name]["commit"] == ground.commit(self._root)
        }

    def record(self, layer: str) -> Record:
        """Return what is known of a layer, which may be nothing yet."""
        commit = GROUNDS[layer].commit(self._root)
        return self.records().get(layer) or Record(commit=commit)

    def add(self, layer: str, seen: Seen, seconds: float) -> None:
        """Put one piece to what is known, and keep it."""
        with self._locked("evidence"):
            records = self.records()
            record = records.setdefault(layer, Record(commit=GROUNDS[layer].commit(self._root)))
            record.pieces += 1
            record.seconds = round(record.seconds + seconds, 1)
            record.counts = _sum(record.counts, {**seen.counts, "violations": len(seen.failures)})
            if seen.done is not None:
                record.done.append(seen.done)
            self._write(records)

    def write(self) -> None:
        """Keep what still holds, and nothing else."""
        with self._locked("evidence"):
            self._write(self.records())

    @contextmanager
    def turn(self, layer: str) -> Iterator[bool]:
        """Have a layer to oneself, so that nothing is counted twice; False if another process has it."""
        with self._locked(layer.replace(" ", "-"), waits=False) as is_ours:
            yield is_ours

    @contextmanager
    def _locked(self, what: str, *, waits: bool = True) -> Iterator[bool]:
        self._locks.mkdir(parents=True, exist_ok=True)
        with (self._locks / f"{self.place.stem}-{what}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
            else:
                yield True

    def _write(self, records: Mapping[str, Record]) -> None:
        totals = totals_of(records)
        told = {
            "commit": newest(self._root, [GROUNDS[name].commit_of_source(self._root) for name in records]),
            **{key: totals[key] for key in KEYS},
            "layers": {name: asdict(records[name]) for name in GROUNDS if name in records},
        }
        self.place.parent.mkdir(parents=True, exist_ok=True)
        # Whoever reads sees all of it or what was there before, also if this process ends in the middle.
        draft = self.place.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps(told, indent=2) + "\n")
        draft.replace(self.place)


def totals_of(records: Mapping[str, Record]) -> dict[str, int]:
    """Return all counts of all layers."""
    totals = dict.fromkeys(KEYS, 0)
    for record in records.values():
        totals = _sum(totals, record.counts)
    totals["mutation_score"] = 100 * totals.get("mutants_killed", 0) // max(1, totals.get("mutants_killable", 0))
    return totals


def _sum(known: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: known.get(name, 0) + more.get(name, 0) for name in {**known, **more}}
