"""One run of one seed: clients, workers and faults are drawn, everything comes to rest, and the oracle judges."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from nebis.core.record import Record, State
from nebis.core.transitions import transition as core_transition
from nebis.flows.execute import execute
from nebis.flows.request import Ending
from nebis.flows.single import execute_single
from nebis.http.exchange import Exchange
from nebis.recovery import Patience, Recoverable, Recovery, Report
from nebis.testing.simulate.cast import Node, Stock, Turn
from nebis.testing.simulate.faults import LONGEST_DELAY_SECONDS, Fault, Trouble, draw_faults
from nebis.testing.simulate.mail import Habits, reading, relay
from nebis.testing.simulate.mailing import Mail
from nebis.testing.simulate.performing import Performer
from nebis.testing.simulate.promises import Call, Violation
from nebis.testing.simulate.store import Transition
from nebis.testing.simulate.trades import NEWEST_CODE, SECRETS, TELLING, Terms, Trade, request_of
from nebis.testing.simulate.web import ENDPOINT_TRADES, Reply, endpoint_of, misspelt, received, spelt
from nebis.testing.simulate.world import World

BUSY_SECONDS = 90.0
"""Clients call and things go wrong for so long; afterwards only the workers are left."""
PASS_SECONDS = 9.0
ROUNDS_LIMIT = 40
"""Passes after which everything must be at rest."""
MAIL_EVERY = 7
"""One seed of so many has operations that stage messages, relays that publish them, and a consumer."""
HTTP_EVERY = 4
"""One seed of so many has its clients speak HTTP."""
_TRIES = 3
_MISSPELT = 0.06
_CLOCK = frozenset({Trouble.CLOCK_FORTH, Trouble.CLOCK_BACK})
_OTHER = "43 EUR"
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
    answers: int
    """Told over HTTP."""
    messages: int
    """Applied by the consumer."""
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
        answers=world.oracle.listener.answers,
        messages=len(world.oracle.books.applied),
        digest=hash((world.asks, world.now, world.chance.getrandbits(64), world.skew_us)),
    )


@lru_cache(maxsize=512)
def _operations(terms: Terms, endpoints: frozenset[Trade]) -> Mapping[str, Stock]:
    return {trade.value: Stock(trade, terms) for trade in Trade if trade not in endpoints}


def _draw_habits(chance: random.Random) -> Habits:
    return Habits(
        is_sequenced=chance.random() < 0.5,
        is_single=chance.random() < 0.5,
        counts=chance.random() < 0.5,
        takes_heads_first=chance.random() < 0.7,
    )


class _Scenario:
    """The people of one run."""

    def __init__(self, seed: int, faults: Sequence[Fault] | None, transition: Transition) -> None:
        self._chance = chance = random.Random(seed)  # noqa: S311 - a seed must give the same run again.
        has_mail = seed % MAIL_EVERY == 1
        drawn = draw_faults(chance, has_mail=has_mail)
        self._ages = chance.random() < 0.2
        self._waits = chance.random() < 0.2
        chosen = drawn if faults is None else tuple(faults)
        # Leases and doubts rest on no clock; how long an answer is kept does, and is promised by the store's own.
        self.faults = tuple(fault for fault in chosen if not self._ages or fault.trouble not in _CLOCK)
        nodes = [Node(name, chance.choice((1, NEWEST_CODE))) for name in range(chance.randint(2, 3))]
        self.world = World(chance, nodes, self.faults, ages=self._ages, has_mail=has_mail, transition=transition)
        performer = Performer(self.world)
        self.world.perform = performer.perform
        self.world.told = self._told
        self.calls = 0
        self._speaks_http = seed % HTTP_EVERY == HTTP_EVERY - 1
        asked = ENDPOINT_TRADES if self._speaks_http else ()
        self._endpoints = frozenset(trade for trade in asked if chance.random() < 0.5)
        self._tries: dict[int, int] = {}
        self._mail = Mail(self.world, performer, _draw_habits(chance)) if has_mail else None

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
        self._bring_clients_back([first for first in firsts if first.trade in self._endpoints], newest)
        for first in firsts:
            self._call(first.trade, first.tenant, first.key, first.command, node=newest, is_last=True)
        self._come_to_rest(newest)
        self.world.oracle.judge(self.world.store.records)

    def _bring_clients_back(self, firsts: Sequence[Call], node: Node) -> None:
        """Let every client ask again: a worker goes on with an operation, nobody but its client with an endpoint."""
        for first in firsts:
            for command in (first.command, _OTHER):
                self._call(first.trade, first.tenant, first.key, command, node=node, tries=_TRIES)
        if firsts:
            self._come_to_rest(node)

    @property
    def _stepped(self) -> int:
        return sum(fault.trouble is Trouble.CLOCK_BACK for fault in self.world.hazards.happened)

    def _draw_trades(self) -> list[Trade]:
        chance = self._chance
        trades = chance.sample(list(Trade), chance.randint(1, 2))
        if self._mail is not None and TELLING.isdisjoint(trades):
            trades[0] = chance.choice((Trade.GUARDED, Trade.SINGLE))
        return trades

    def _plan_calls(self) -> list[Call]:
        """Have clients call: some race, some come back later, some send something else under the same key."""
        chance, firsts = self._chance, []
        for trade in self._draw_trades():
            for tenant, key in {(chance.choice(_TENANTS), chance.choice(_KEYS)): None for _ in range(2)}:
                command = f"42 EUR{' changed' if chance.random() < 0.15 else ''}"
                began = chance.random() * 5
                firsts.append(Call(number=0, trade=trade, tenant=tenant, key=key, command=command, at=0))
                for _ in range(chance.randint(2, 5)):
                    soon = chance.random() < 0.4
                    at = began + chance.random() * (0.2 if soon else BUSY_SECONDS * 0.9)
                    sent = command if chance.random() < 0.92 else _OTHER
                    self.world.later(at, partial(self._call, trade, tenant, key, sent))
        return firsts

    def _call(
        self,
        trade: Trade,
        tenant: str,
        key: str,
        command: str,
        *,
        node: Node | None = None,
        is_last: bool = False,
        tries: int = 1,
    ) -> None:
        """Send a request to a node; one that is frozen serves it when it wakes."""
        world = self.world
        node = self._chance.choice(world.nodes) if node is None else node
        self.calls += 1
        call = Call(
            number=self.calls, trade=trade, tenant=tenant, key=key, command=command, at=world.now, is_last=is_last
        )
        terms = Terms(code=node.code, ages=self._ages, waits=self._waits)
        if self._speaks_http:
            self._tries[call.number] = tries
            self._post(call, terms, node)
            return
        request = request_of(trade, terms, tenant, key, command)
        world.oracle.invoked(call)
        flow = execute_single(request) if trade is Trade.SINGLE else execute(request)
        world.start(node, flow, turn=Turn(trade, request, command, terms), call=call)

    def _post(self, call: Call, terms: Terms, node: Node) -> None:
        """Send a request over HTTP; now and then, while things go wrong, something that is none."""
        is_right = self.world.now >= BUSY_SECONDS or self._chance.random() >= _MISSPELT
        incoming = (spelt if is_right else misspelt)(call.key, call.command, self._chance)
        is_endpoint = call.trade in self._endpoints
        found = received(call.trade, terms, call.tenant, incoming, is_endpoint=is_endpoint)
        if isinstance(found, Exchange):
            self.world.oracle.listener.hear_refusal(found)
            return
        flow, turn = found
        self.world.oracle.invoked(call)
        self.world.start(node, flow, turn=turn, call=call)

    def _told(self, call: Call, end: Ending | Reply | Exception) -> None:
        """Hear what a client is told; one that is asked to come back does so when it was told to."""
        self.world.oracle.answered(call, self.world.now, end)
        if not isinstance(end, Reply) or call.is_last or self._tries[call.number] >= _TRIES:
            return
        after = next((value for name, value in end.exchange.headers if name == "retry-after"), "")
        if after.isdigit() and self.world.now < BUSY_SECONDS:
            again = partial(
                self._call, call.trade, call.tenant, call.key, call.command, tries=self._tries[call.number] + 1
            )
            self.world.later(int(after) + self.world.moment(), again)

    def _plan_passes(self) -> None:
        at = self._chance.random() * PASS_SECONDS
        while at < BUSY_SECONDS:
            self.world.later(at, self._pass)
            if self._mail is not None:
                self.world.later(at + self.world.moment(), partial(self._carry, self._mail))
            at += PASS_SECONDS * (0.5 + self._chance.random())

    def _pass(self, node: Node | None = None) -> None:
        """Let the worker of a node look after what is due, and let records age."""
        node = self._chance.choice(self.world.nodes) if node is None else node
        terms = Terms(code=node.code, ages=self._ages, waits=self._waits)
        recovery = Recovery(
            operations=self._operations(terms),
            endpoints={trade.value: endpoint_of(trade, terms).subject for trade in self._endpoints},
            secrets=SECRETS,
            patience=Patience(),
            may_go_on=lambda: True,
        )
        self.world.start(node, recovery.once(Report()))
        if self._ages:
            self.world.store.sweep()

    def _operations(self, terms: Terms) -> Mapping[str, Recoverable]:
        known = _operations(terms, self._endpoints)
        return known if self._mail is None else {**known, **reading(self._mail.habits)}

    def _carry(self, mail: Mail, node: Node | None = None) -> None:
        """Start a relay on some node, and a reader of each partition on some other; earlier ones may still go on."""
        for flow in (relay(), *mail.readers()):
            self.world.start(self._chance.choice(self.world.nodes) if node is None else node, flow)

    def _come_to_rest(self, node: Node) -> None:
        """Let a worker pass again and again until nothing moves any more."""
        for _ in range(ROUNDS_LIMIT):
            self.world.run_until(self.world.now + PASS_SECONDS)
            is_carried = self._mail is None or self._mail.is_carried
            if not self.world.living and is_carried and all(map(self._rests, self.world.store.records.values())):
                return
            self._pass(node)
            if self._mail is not None:
                self._carry(self._mail, node)

    def _rests(self, record: Record) -> bool:
        """Tell whether nothing more becomes of a record, unless its client comes back."""
        if record.state is not State.IN_PROGRESS:
            return record.state is not State.IN_DOUBT
        now = self.world.clock()
        is_endpoint = record.operation in {trade.value for trade in self._endpoints}
        return is_endpoint and record.has_lapsed(now) and record.may_resume(now)
