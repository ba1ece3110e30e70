"""Many seeds: side by side, each hundredth twice, and a short story for each that fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from nebis.core.transitions import transition as core_transition
from nebis.testing.quiet import quiet
from nebis.testing.simulate.faults import Fault, minimised
from nebis.testing.simulate.scenario import Run, simulate
from nebis.testing.simulate.store import Transition

BATCH_SEEDS = 50
TWICE_EVERY = 100
"""One seed of so many is run twice, and must go the same way both times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What some seeds showed."""

    seeds: int
    asks: int
    calls: int
    answers: int
    messages: int
    faults: int
    stories: tuple[str, ...]
    """One for each seed that failed."""


@quiet()
def play(seeds: Iterable[int]) -> Tally:
    """Play seeds one after the other."""
    runs, stories = [], []
    for seed in seeds:
        run = simulate(seed)
        runs.append(run)
        if run.violations:
            stories.append(story(run))
        if seed % TWICE_EVERY == 0 and simulate(seed).digest != run.digest:
            stories.append(f"seed {seed} does not go the same way twice; something in it is left to chance")
    return Tally(
        seeds=len(runs),
        asks=sum(run.asks for run in runs),
        calls=sum(run.calls for run in runs),
        answers=sum(run.answers for run in runs),
        messages=sum(run.messages for run in runs),
        faults=sum(len(run.faults) for run in runs),
        stories=tuple(stories),
    )


def play_all(first: int, number: int, *, processes: int) -> Iterator[Tally]:
    """Play a range of seeds side by side, and yield a tally for each few of them."""
    seeds = range(first, first + number)
    batches = [seeds[at : at + BATCH_SEEDS] for at in range(0, number, BATCH_SEEDS)]
    with ProcessPoolExecutor(max_workers=processes) as pool:
        yield from pool.map(play, batches)


def story(run: Run, transition: Transition = core_transition) -> str:
    """Tell why a seed fails, with no more faults than it takes."""
    rules = {violation.rule for violation in run.violations}

    def fails(faults: Sequence[Fault]) -> bool:
        return not rules.isdisjoint(
            violation.rule for violation in simulate(run.seed, faults, transition=transition).violations
        )

    faults = minimised(run.faults, fails)
    told = [str(violation) for violation in simulate(run.seed, faults, transition=transition).violations] or list(
        map(str, run.violations)
    )
    return "\n".join([f"seed {run.seed}", *(f"  {fault}" for fault in faults), *(f"  => {line}" for line in told)])
