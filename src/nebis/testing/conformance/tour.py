"""A scripted visit to every edge and every refusal: each situation met with each probe, many keys at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, groupby

from nebis.core.record import Fence, Record
from nebis.core.transitions import transition
from nebis.testing.conformance.moves import Case, Move
from nebis.testing.conformance.probes import PROBES
from nebis.testing.conformance.situations import SITUATIONS, Passing
from nebis.testing.conformance.specimens import START_US
from nebis.testing.conformance.twin import Hit, Twin, hit_of

BATCH_SIZE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One situation and what is then asked in it."""

    situation: str
    probe: str

    @property
    def key(self) -> str:
        """Return a key that no other scenario uses."""
        return f"{self.situation} / {self.probe}"

    def script(self) -> Iterator[tuple[int, Move]]:
        """Yield each move with its instant; the last one is the probe."""
        now = START_US
        for item in SITUATIONS[self.situation]:
            if isinstance(item, Passing):
                now += item.us
            else:
                yield now, item
        yield now, PROBES[self.probe]


@cache
def explored() -> dict[Hit, list[Scenario]]:
    """Meet each situation with each probe on the state machine alone; return what was reached, and by what."""
    reached: dict[Hit, list[Scenario]] = {}
    for situation in SITUATIONS:
        for probe in PROBES:
            scenario = Scenario(situation=situation, probe=probe)
            reached.setdefault(_played_on_the_core(scenario), []).append(scenario)
    return reached


def _played_on_the_core(scenario: Scenario) -> Hit:
    case = Case(scenario.key)
    record: Record | None = None
    hit: Hit | None = None
    for fence, (now, move) in zip(count(1), scenario.script()):
        verb = move(case)
        step = transition(record, verb, now, Fence(fence))
        record, hit = step.record, hit_of(verb, step)
        case.became(record)
    assert hit is not None
    return hit


def covering(times: int) -> list[Scenario]:
    """Choose scenarios so that each edge and refusal is reached that often, as far as there are so many ways to it."""
    return [scenario for scenarios in explored().values() for scenario in scenarios[:times]]


def tour(twin: Twin, scenarios: Iterable[Scenario]) -> None:
    """Play many scenarios side by side: one batch holds a verb of each that has come to the same instant."""
    playing = [(Case(scenario.key), list(scenario.script())) for scenario in scenarios]
    while playing:
        playing.sort(key=lambda played: played[1][0][0])
        for now, group in groupby(playing, key=lambda played: played[1][0][0]):
            together = list(group)
            for start in range(0, len(together), BATCH_SIZE):
                _play_batch(twin, together[start : start + BATCH_SIZE], now)
        playing = [(case, script[1:]) for case, script in playing if script[1:]]


def _play_batch(twin: Twin, playing: Sequence[tuple[Case, list[tuple[int, Move]]]], now: int) -> None:
    twin.apply([script[0][1](case) for case, script in playing], now=now)
    for case, _ in playing:
        case.became(twin.records.get(case.identity))
