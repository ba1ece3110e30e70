"""One run of one seed: clients, workers and faults are drawn, everything comes to rest, and the oracle judges."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from nebis.core.record import State
from nebis.core.transitions import transition as core_transition
from nebis.flows.execute import execute
from nebis.flows.single import execute_single
from nebis.recovery import Patience, Recovery, Report
from nebis.testing.simulate.cast import Node, Stock, Turn
from nebis.testing.simulate.faults import LONGEST_DELAY_SECONDS, Fault, Trouble, draw_faults
from nebis.testing.simulate.oracle import Call, Violation
from nebis.testing.simulate.performing import Performer
from nebis.testing.simulate.store import Transition
from nebis.testing.simulate.trades import NEWEST_CODE, SECRETS, Terms, Trade, request_of
from nebis.testing.simulate.world import World

BUSY_SECONDS = 90.0
"""Clients call and things go wrong for so long; afterwards only the workers are left."""
PASS_SECONDS = 9.0
ROUNDS_LIMIT = 40
"""Passes after which everything must be at rest."""
_CLOCK = frozenset({Trouble.CLOCK_FORTH, Trouble.CLOCK_BACK})
_KEYS = ("a-key-of-a-simulation", "b-key-of-a-simulation")
_TENANTS = ("acct_1", "acct_2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run showed."""

    seed: int
    faults: tuple[Fault, ...]
    """All that were drawn or given."""
    violations: tuple[Violation, ...]
    asks: int
    calls: int
    digest: int
    """Equal for two runs exactly if they went the same way."""


def simulate(seed: int, faults: Sequence[Fault] | None = None, *, transition: Transition = core_transition) -> Run:
    """Play one seed, with its own faults or with others in their place."""
    scenario = _Scenario(seed, faults, transition)
    scenario.play()
    world = scenario.world
    return Run(
        seed=seed,
        faults=scenario.faults,
        violations=tuple(world.oracle.violations),
        asks=world.asks,
        calls=scenario.calls,
        digest=hash((world.asks, world.now, world.chance.getrandbits(64), world.skew_us)),
    )


@lru_cache(maxsize=16)
def _operations(terms: Terms) -> Mapping[str, Stock]:
    return {trade.value: Stock(trade, terms) for trade in Trade}


class _Scenario:
    """The people of one run."""

    def __init__(self, seed: int, faults: Sequence[Fault] | None, transition: Transition) -> None:
        self._chance = chance = random.Random(seed)  # noqa: S311 - a seed must give the same run again.
        drawn = draw_faults(chance)
        self._ages = chance.random() < 0.2
        self._waits = chance.random() < 0.2
        chosen = drawn if faults is None else tuple(faults)
        # Leases and doubts rest on no clock; how long an answer is kept does, and is promised by the store's own.
        self.faults = tuple(fault for fault in chosen if not self._ages or fault.trouble not in _CLOCK)
        nodes = [Node(name, chance.choice((1, NEWEST_CODE))) for name in range(chance.randint(2, 3))]
        self.world = World(chance, nodes, self.faults, ages=self._ages, transition=transition)
        self.world.perform = Performer(self.world).perform
        self.calls = 0

    def play(self) -> None:
        """Go through the whole run."""
        firsts = self._plan_calls()
        self._plan_passes()
        self.world.run_until(BUSY_SECONDS)
        self.world.heal()
        self.world.run_until(BUSY_SECONDS + LONGEST_DELAY_SECONDS + 10)
        # A clock that went back is put right: leases and deadlines of the time before would else be far away.
        self.world.skew_us = max(self.world.skew_us, 0) + 60 * int(LONGEST_DELAY_SECONDS) * 1_000_000 * self._stepped
        newest = self.world.nodes[0]
        newest.code = NEWEST_CODE
        self._come_to_rest(newest)
        for first in firsts:
            self._call(first.trade, first.tenant, first.key, first.command, node=newest, is_last=True)
        self._come_to_rest(newest)
        self.world.oracle.judge(self.world.store.records)

    @property
    def _stepped(self) -> int:
        return sum(fault.trouble is Trouble.CLOCK_BACK for fault in self.world.hazards.happened)

    def _plan_calls(self) -> list[Call]:
        """Have clients call: some race, some come back later, some send something else under the same key."""
        chance, firsts = self._chance, []
        for trade in chance.sample(list(Trade), chance.randint(1, 2)):
            for tenant, key in {(chance.choice(_TENANTS), chance.choice(_KEYS)): None for _ in range(2)}:
                command = f"42 EUR{' changed' if chance.random() < 0.15 else ''}"
                began = chance.random() * 5
                firsts.append(Call(number=0, trade=trade, tenant=tenant, key=key, command=command, at=0))
                for _ in range(chance.randint(2, 5)):
                    soon = chance.random() < 0.4
                    at = began + chance.random() * (0.2 if soon else BUSY_SECONDS * 0.9)
                    sent = command if chance.random() < 0.92 else "43 EUR"
                    self.world.later(at, partial(self._call, trade, tenant, key, sent))
        return firsts

    def _call(
        self, trade: Trade, tenant: str, key: str, command: str, *, node: Node | None = None, is_last: bool = False
    ) -> None:
        """Send a request to a node; one that is frozen serves it when it wakes."""
        world = self.world
        node = self._chance.choice(world.nodes) if node is None else node
        self.calls += 1
        call = Call(
            number=self.calls, trade=trade, tenant=tenant, key=key, command=command, at=world.now, is_last=is_last
        )
        terms = Terms(code=node.code, ages=self._ages, waits=self._waits)
        request = request_of(trade, terms, tenant, key, command)
        world.oracle.invoked(call)
        flow = execute_single(request) if trade is Trade.SINGLE else execute(request)
        world.start(node, flow, turn=Turn(trade, request, command, terms), call=call)

    def _plan_passes(self) -> None:
        at = self._chance.random() * PASS_SECONDS
        while at < BUSY_SECONDS:
            self.world.later(at, self._pass)
            at += PASS_SECONDS * (0.5 + self._chance.random())

    def _pass(self, node: Node | None = None) -> None:
        """Let the worker of a node look after what is due, and let records age."""
        node = self._chance.choice(self.world.nodes) if node is None else node
        terms = Terms(code=node.code, ages=self._ages, waits=self._waits)
        recovery = Recovery(
            operations=_operations(terms),
            endpoints={},
            secrets=SECRETS,
            patience=Patience(),
            may_go_on=lambda: True,
        )
        self.world.start(node, recovery.once(Report()))
        if self._ages:
            self.world.store.sweep()

    def _come_to_rest(self, node: Node) -> None:
        """Let a worker pass again and again until nothing moves any more."""
        for _ in range(ROUNDS_LIMIT):
            self.world.run_until(self.world.now + PASS_SECONDS)
            if not self.world.living and not any(
                record.state in (State.IN_PROGRESS, State.IN_DOUBT) for record in self.world.store.records.values()
            ):
                return
            self._pass(node)
