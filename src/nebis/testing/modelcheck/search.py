"""The search itself: every situation that can be reached, within the budgets, by any order of moves."""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter

from nebis.core.record import State
from nebis.core.step import Edge
from nebis.core.transitions import transition as core_transition
from nebis.testing.modelcheck.configurations import Configuration
from nebis.testing.modelcheck.engine import Engine
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.naming import Naming
from nebis.testing.modelcheck.plan import Plan
from nebis.testing.modelcheck.rows import Rows
from nebis.testing.modelcheck.surroundings import Surroundings
from nebis.testing.modelcheck.table import Face, Renaming, Table, Transition
from nebis.testing.modelcheck.theorems import Theorems, Violation
from nebis.testing.modelcheck.world import ALL_COSTS, NOBODY, Attempt, Cost, Entry, Message, Move, Situation, Turn

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

    @property
    def poisoned(self) -> int:
        """Return from how many situations nothing leads out by itself."""
        return self.violations[Violation.POISONED]


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
        rows = Rows(self.table, habits)
        self._engine = Engine(configuration, self.plan, rows, habits)
        self._surroundings = Surroundings(configuration, self.plan, rows, habits)
        self._theorems = Theorems(self.plan, self.table)
        self._naming = Naming(self.table, self._theorems, keeps_fences=Habit.FENCES_START_OVER in habits)
        self.situations: list[Situation] = []
        self._numbers: dict[Situation, int] = {}
        self._violations: list[Violation | None] = []
        self._steps: list[tuple[int, dict[int, tuple[int, ...]]] | None] = []

    def run(self, *, until: Violation | None = None) -> Result:
        """Search until everything within the budgets was seen, or the wanted violation was found."""
        began = perf_counter()
        was_collecting = gc.isenabled()
        # Millions of small tuples and not one cycle: looking for cycles would cost a quarter of the time.
        gc.disable()
        try:
            result = self._run(until)
        finally:
            if was_collecting:
                gc.enable()
        result.seconds = perf_counter() - began
        return result

    def _run(self, until: Violation | None) -> Result:
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
            for cost, reached in self._affordable(number, budget).items():
                if cost < 0:
                    left = budget
                elif budget >> (3 * cost) & 7:
                    left = budget - (1 << (3 * cost))
                else:
                    continue
                result.transitions += len(reached)
                for following in reached:
                    after = (following << BUDGET_BITS) | left
                    if after not in parents:
                        parents[after] = state
                        waiting.append(after)
        result.states = len(parents)
        result.situations = len(self.situations)
        if until in (None, Violation.POISONED):
            self._find_poison(result, parents)
        result.edges = frozenset(self.table.edges)
        return result

    def moves(self, number: int, payable: int = ALL_COSTS) -> Iterator[Move]:
        """Yield each move from a situation; where it leads is not in canonical form yet."""
        situation = self.situations[number]
        faces = [self.table.faces[record] for record in situation.records]
        turn = Turn(situation, _next_name(situation, faces), _next_fence(situation, faces), payable)
        yield from self._engine.moves(turn)
        yield from self._surroundings.moves(turn)

    def led_to(self, situation: Situation) -> tuple[int, Renaming]:
        """Return the number of a situation, and how names change on the way there."""
        canonical, names = self._naming.canonical(situation)
        return self._number(canonical), names

    def _affordable(self, number: int, budget: int) -> dict[int, tuple[int, ...]]:
        """Return where a situation leads, by cost. What nobody could pay for so far is not even worked out."""
        payable = _payable(budget)
        known, steps = self._steps[number] or (0, {})
        if payable & ~known:
            reached: dict[int, set[int]] = {}
            for move in self.moves(number, payable | known):
                if move.cost < 0 or (payable | known) >> move.cost & 1:
                    reached.setdefault(move.cost, set()).add(self.led_to(move.situation)[0])
            # A move that changes nothing is none.
            steps = {int(cost): tuple(sorted(numbers - {number})) for cost, numbers in reached.items()}
            self._steps[number] = (payable | known, steps)
        return steps

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
            for following in steps[1].get(Cost.FREE, ()) if steps else ():
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


@cache
def _payable(budget: int) -> int:
    """Return one bit for each cost that can be paid, and one more for what is free."""
    bits = sum(1 << cost for cost in Cost if cost >= 0 and budget >> (3 * cost) & 7)
    return bits | 1 << len(Cost)


def _next_name(situation: Situation, faces: list[Face]) -> int:
    names = [NOBODY]
    for face in faces:
        names += face.names
    actors: list[Attempt | Message] = [*situation.attempts, *situation.sent]
    for one in actors:
        names += (one.name, one.life, one.key)
    for ack in situation.acks:
        names += ack.body[1:]
    names += [entry.key for entry in situation.bank]
    return max(names) + 1


def _next_fence(situation: Situation, faces: list[Face]) -> int:
    fences = [face.fence for face in faces]
    actors: list[Attempt | Message | Entry] = [*situation.attempts, *situation.sent, *situation.bank]
    fences += [one.fence for one in actors]
    return max(fences) + 1


def _path(parents: dict[int, int], state: int) -> tuple[int, ...]:
    path = [state >> BUDGET_BITS]
    while parents[state] != state:
        state = parents[state]
        path.append(state >> BUDGET_BITS)
    return tuple(reversed(path))
