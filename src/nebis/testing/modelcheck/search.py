"""The search itself: every situation that can be reached, within the budgets, by any order of moves."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

from nebis.core.record import State
from nebis.core.step import Edge
from nebis.core.transitions import transition as core_transition
from nebis.testing.modelcheck.configurations import Configuration
from nebis.testing.modelcheck.engine import Engine
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.naming import Naming
from nebis.testing.modelcheck.plan import Plan
from nebis.testing.modelcheck.surroundings import Surroundings
from nebis.testing.modelcheck.table import Renaming, Table, Transition
from nebis.testing.modelcheck.theorems import Theorems, Violation
from nebis.testing.modelcheck.world import Cost, Move, Situation

BUDGET_BITS = 24
BUDGET_MASK = (1 << BUDGET_BITS) - 1
WAYS_OUT = (None, State.AVAILABLE, State.COMPLETED, State.EXPIRED)

# After these a search goes on: they are the first sign of worse, and the worse is the better story.
NOT_FINAL = frozenset({Violation.EFFECT_VANISHED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A broken promise and the shortest way to it."""

    violation: Violation
    path: tuple[int, ...]
    """Situations by number, from the beginning."""


@dataclass(slots=True, kw_only=True)
class Result:
    """What a search saw."""

    configuration: Configuration
    states: int = 0
    situations: int = 0
    transitions: int = 0
    seconds: float = 0.0
    violations: Counter[Violation] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    edges: frozenset[Edge] = frozenset()
    is_complete: bool = True
    """False if the limit of states stopped it."""

    @property
    def poisoned(self) -> int:
        """Return from how many situations nothing leads out by itself."""
        return self.violations[Violation.POISONED]


class Step:
    """All moves of one cost from one situation: as they were made, and later as numbers."""

    __slots__ = ("cost", "raw", "reached")

    def __init__(self, cost: int, raw: list[Situation]) -> None:
        self.cost = cost
        self.raw = raw
        self.reached: tuple[int, ...] = ()


class Search:
    """One world, searched breadth first, so that a counterexample is as short as possible."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        transition: Transition = core_transition,
        habits: frozenset[Habit] = frozenset(),
    ) -> None:
        self.configuration = configuration
        self.plan = Plan(configuration)
        self.table = Table(self.plan, transition)
        self._engine = Engine(configuration, self.plan, self.table, habits)
        self._surroundings = Surroundings(configuration, self.plan, self.table, self._engine, habits)
        self._naming = Naming(self.table, keeps_fences=Habit.FENCES_START_OVER in habits)
        self._theorems = Theorems(self.plan, self.table)
        self.situations: list[Situation] = []
        self._numbers: dict[Situation, int] = {}
        self._violations: list[Violation | None] = []
        self._steps: list[list[Step] | None] = []

    def run(self, *, limit: int = 10_000_000, until: Violation | None = None) -> Result:
        """Search until everything was seen, the limit was reached, or the wanted violation was found."""
        began = perf_counter()
        result = Result(configuration=self.configuration)
        start = (self._number(Situation(records=(0,) * self.configuration.tenants)) << BUDGET_BITS) | (
            self.configuration.budget
        )
        parents = {start: start}
        waiting = deque([start])
        while waiting:
            state = waiting.popleft()
            number, budget = state >> BUDGET_BITS, state & BUDGET_MASK
            violation = self._violations[number]
            if violation is not None:
                result.violations[violation] += 1
                if result.violations[violation] == 1:
                    result.findings.append(Finding(violation=violation, path=_path(parents, state)))
                if violation is until:
                    break
                if violation not in NOT_FINAL:
                    continue
            for cost, reached in self._affordable(number, budget):
                left = budget if cost < 0 else budget - (1 << (3 * cost))
                result.transitions += len(reached)
                for following in reached:
                    after = (following << BUDGET_BITS) | left
                    if after not in parents:
                        parents[after] = state
                        waiting.append(after)
            if len(parents) > limit:
                result.is_complete = False
                break
        result.states = len(parents)
        result.situations = len(self.situations)
        if result.is_complete and until in (None, Violation.POISONED):
            self._find_poison(result, parents)
        result.edges = frozenset(self.table.edges)
        result.seconds = perf_counter() - began
        return result

    def moves(self, number: int) -> Iterator[Move]:
        """Yield each move from a situation; where it leads is not in canonical form yet."""
        situation = self.situations[number]
        faces = self.table.faces
        fence = 1 + max(
            max(faces[record].fence for record in situation.records),
            max((attempt.fence for attempt in situation.attempts), default=0),
            max((message.fence for message in situation.sent), default=0),
            max((entry.fence for entry in situation.bank), default=0),
        )
        name = _next_name(situation, faces_names=[faces[record].names for record in situation.records])
        yield from self._engine.moves(situation, fence)
        yield from self._surroundings.moves(situation, name, fence)

    def _affordable(self, number: int, budget: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield where a situation leads, by cost; what nobody can pay for yet is not even given a number."""
        steps = self._steps[number]
        if steps is None:
            steps = self._steps[number] = self._expand(number)
        for step in steps:
            if step.cost < 0 or (budget >> (3 * step.cost)) & 7:
                if step.raw:
                    numbers = {self._number(self._naming.canonical(situation)[0]) for situation in step.raw}
                    # A move that changes nothing is none.
                    step.reached = tuple(sorted(numbers - {number}))
                    step.raw = []
                yield step.cost, step.reached

    def _expand(self, number: int) -> list[Step]:
        by_cost: dict[int, list[Situation]] = {}
        for move in self.moves(number):
            by_cost.setdefault(move.cost, []).append(move.situation)
        return [Step(cost, raw) for cost, raw in sorted(by_cost.items())]

    def _number(self, situation: Situation) -> int:
        number = self._numbers.get(situation)
        if number is None:
            number = self._numbers[situation] = len(self.situations)
            self.situations.append(situation)
            self._violations.append(self._theorems.violation(situation))
            self._steps.append(None)
        return number

    def _find_poison(self, result: Result, parents: dict[int, int]) -> None:
        """Find the situations from which free moves alone never lead to a record that is at rest (G3)."""
        saved = [self._is_at_rest(number) or self._steps[number] is None for number in range(len(self.situations))]
        before: list[list[int]] = [[] for _ in saved]
        for number, steps in enumerate(self._steps):
            for step in steps or ():
                if step.cost < 0:
                    for following in step.reached:
                        before[following].append(number)
        waiting = deque(number for number, is_saved in enumerate(saved) if is_saved)
        while waiting:
            for earlier in before[waiting.popleft()]:
                if not saved[earlier]:
                    saved[earlier] = True
                    waiting.append(earlier)
        if not all(saved):
            poisoned = {number for number, is_saved in enumerate(saved) if not is_saved}
            first = next(state for state in parents if state >> BUDGET_BITS in poisoned)
            result.violations[Violation.POISONED] = len(poisoned)
            result.findings.append(Finding(violation=Violation.POISONED, path=_path(parents, first)))

    def _is_at_rest(self, number: int) -> bool:
        return all(self.table.faces[record].state in WAYS_OUT for record in self.situations[number].records)


def _next_name(situation: Situation, faces_names: list[tuple[int, ...]]) -> int:
    names = [-1]
    names += [name for mentioned in faces_names for name in mentioned]
    names += [name for one in situation.attempts for name in (one.name, one.life, one.key)]
    names += [name for one in situation.sent for name in (one.name, one.life, one.key)]
    names += [name for ack in situation.acks for name in (ack.body.life, ack.body.author)]
    names += [entry.key for entry in situation.bank]
    return max(names) + 1


def _path(parents: dict[int, int], state: int) -> tuple[int, ...]:
    path = [state >> BUDGET_BITS]
    while parents[state] != state:
        state = parents[state]
        path.append(state >> BUDGET_BITS)
    return tuple(reversed(path))


