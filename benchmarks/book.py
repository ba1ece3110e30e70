"""Everything that was measured in one run."""

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.load import Sample


class Measured(NamedTuple):
    """What a series of samples is about."""

    system: str
    store: str
    case: str
    callers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The median of the ratios of single rounds, with the smallest and the largest."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(ratios: list[float]) -> "Ratio | None":
        """Return nothing where there is no round in which both were measured."""
        if not ratios:
            return None
        return Ratio(median=statistics.median(ratios), low=min(ratios), high=max(ratios))


@dataclass(slots=True)
class Book:
    """Samples by round, notes on systems, and figures that are no throughput."""

    samples: dict[Measured, dict[int, Sample]] = field(default_factory=lambda: defaultdict(dict))
    notes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    figures: dict[str, float] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)

    def progress(self, text: str) -> None:
        """Tell whoever waits where the run is."""
        print(f"[{time.monotonic() - self.begun:5.0f} s] {text}", flush=True)

    def note(self, name: str, text: str) -> None:
        """Write down, once, what a reader must know about a contender."""
        if text not in self.notes[name]:
            self.notes[name].append(text)
            self.progress(f"  {name}: {text}")

    def add(self, measured: Measured, name: str, turn: int, answer: dict[str, Any]) -> bool:
        """Keep one sample; return whether the contender can go on with this case."""
        if "failed" in answer:
            self.note(name, f"{measured.case} failed: {answer['failed']}")
            return False
        sample = Sample(**answer)
        if sample.failures:
            part = "every call failed" if sample.calls == 0 else "some calls failed"
            self.note(name, f"{measured.case}: {part} ({sample.first_failure})")
        if sample.calls == 0:
            return False
        self.samples[measured][turn] = sample
        return True

    def per_second(self, measured: Measured) -> float | None:
        """Return the median throughput."""
        rounds = self.samples.get(measured)
        return statistics.median(sample.per_second for sample in rounds.values()) if rounds else None

    def latency(self, measured: Measured, which: str) -> float | None:
        """Return the median over the rounds of `p50_ms`, `p99_ms` or `cpu_us`."""
        rounds = self.samples.get(measured)
        return statistics.median(getattr(sample, which) for sample in rounds.values()) if rounds else None

    def ratio(self, measured: Measured, baseline: Measured) -> Ratio | None:
        """Compare two series round by round."""
        ours, theirs = self.samples.get(measured, {}), self.samples.get(baseline, {})
        return Ratio.of([ours[turn].per_second / theirs[turn].per_second for turn in sorted(ours.keys() & theirs)])
