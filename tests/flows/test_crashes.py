"""Dying before and after every ask of every flow, at both levels, and coming back (F001, F002, F006, F007).

The witness is independent of the store: each run of a handler counts itself and returns something that no other run
returns, so that equal answers prove a single outcome.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from nebis import Declared, InDoubt, Local, Opaque, Rejected, Retryable, Wait
from nebis.core.answers import Answer, Doubtful, Granted, Intended, Kept, Locked, Refused, Running
from nebis.core.record import EffectClass, EffectsMode, EffectVerdict, Outcome, OutcomeKind, Record, Resource, State
from nebis.core.secret import Secrets
from nebis.core.verbs import Checkpoint, Complete, Intend
from nebis.declaration import PolicyOptions
from nebis.flow import Flow
from nebis.flows.attach import attach_resource
from nebis.flows.execute import execute
from nebis.flows.request import Ending, Failed, Finished, Request, Vanished
from nebis.flows.start import start
from nebis.ports.asks import Apply
from nebis.ports.store import BlockingBackend
from nebis.runtime.entropy import draw
from nebis.stores import memory, open_blocking
from tests.flows.crashing import Clock, Crash, Doom, MortalWorld, doomed
from tests.flows.specimens import LEASE_US, NOW, Unwanted, classified, declaration, request_of

PAST_THE_LEASE_SECONDS = LEASE_US / 1_000_000 + 1


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingBackend]:
    """One store for all crashes, each of which has a key of its own."""
    path = tmp_path_factory.mktemp("crashes") / "nebis.db"
    opened = open_blocking("memory://" if request.param == "memory" else f"sqlite:///{path}")
    opened.sessions.run(opened.store.migrate())
    yield opened
    opened.sessions.close()


@dataclass
class Witness:
    """What really happened, counted outside the store."""

    runs: int = 0
    charged: set[str] = field(default_factory=set)
    """The keys under which a downstream, which remembers them, was called."""
    ran_after_the_end: int = 0

    def run(self, world: MortalWorld, record: Record) -> str:
        """Run the work once more and return what no other run returns."""
        self.runs += 1
        found = MortalWorld(world.backend, world.clock).find(record.identity)
        self.ran_after_the_end += found is None or found.state is State.COMPLETED
        return f"run {self.runs}"


Handler = Callable[[MortalWorld, Record, Witness], object]


@dataclass(frozen=True)
class Scenario:
    """How a request goes if nobody dies."""

    name: str
    handler: Handler
    effects: EffectsMode = Declared
    options: PolicyOptions = field(default_factory=PolicyOptions)
    begins_with: Handler | None = None
    """An earlier attempt that stopped inside its handler, and whose lease is over when the request comes."""
    is_completed_before: bool = False
    twin_runs: bool = False
    later: Handler | None = None
    """The handler of requests after the crash, where it differs from one that just succeeds."""


def succeed(world: MortalWorld, record: Record, witness: Witness) -> object:
    return witness.run(world, record)


def raises(error: Exception) -> Handler:
    def handler(world: MortalWorld, record: Record, witness: Witness) -> object:
        witness.run(world, record)
        raise error

    return handler


def attach(world: MortalWorld, record: Record, witness: Witness) -> object:
    world.run(attach_resource(record, declaration().policy, Resource(type="invoice", id="in_1")))
    return witness.run(world, record)


def charge(world: MortalWorld, record: Record, witness: Witness) -> str:
    """Call a downstream that remembers keys: intent, call, checkpoint."""
    known = record.effect("charge")
    if known is None or known.is_open:
        intend = Intend(
            ownership=record.ownership,
            name="charge",
            effect_class=EffectClass.STICKY,
            derived_key=f"derived-by-attempt-{record.attempts}",
            digest=bytes(32),
            recall_us=86_400_000_000,
            lease_us=LEASE_US,
        )
        answer = world.run(ask(intend))
        assert isinstance(answer, Intended)
        witness.charged.add(answer.effect.derived_key)
        checkpoint = Checkpoint(
            ownership=record.ownership, name="charge", verdict=EffectVerdict.HAPPENED, result=b"charged"
        )
        assert isinstance(world.run(ask(checkpoint)), Kept)
    return witness.run(world, record)


def charge_then_fail(world: MortalWorld, record: Record, witness: Witness) -> object:
    charge(world, record, witness)
    raise Retryable("the next step is down")


def ask(verb: Intend | Checkpoint) -> Flow[Answer | Locked]:
    return (yield from Apply(verb))


WAITING = PolicyOptions(in_flight=Wait(longest=timedelta(seconds=2)))
SCENARIOS = [
    Scenario("fresh, local", succeed, Local),
    Scenario("fresh, declared", succeed),
    Scenario("fresh, opaque", succeed, Opaque),
    Scenario("replay", succeed, is_completed_before=True),
    Scenario("takeover", succeed, begins_with=succeed),
    Scenario("resume", charge, begins_with=charge, later=charge),
    Scenario("charge", charge, later=charge),
    Scenario("lapsed and opaque", succeed, Opaque, begins_with=succeed),
    Scenario("release", raises(Retryable("busy"))),
    Scenario("suspend", charge_then_fail, later=charge),
    Scenario("reject", raises(Rejected("declined"))),
    Scenario("withdraw", raises(Unwanted())),
    Scenario("in doubt", raises(InDoubt("timeout"))),
    Scenario("opaque raises", raises(ValueError("a bug")), Opaque),
    Scenario("attach", attach, later=attach),
    Scenario("wait", succeed, options=WAITING, twin_runs=True),
]


class Story:
    """One scenario on one key: what came before, the request that may die, and everybody who comes later."""

    def __init__(self, scenario: Scenario, backend: BlockingBackend, key: str) -> None:
        self.scenario = scenario
        self.witness = Witness()
        self.clock = Clock(NOW)
        self.backend = backend
        self.granted: list[Record] = []
        self.request: Request = replace(
            request_of(declaration(scenario.effects, **scenario.options), key=key),
            classify=classified if scenario.name == "withdraw" else request_of().classify,
        )
        self.identity = self.request.claim(draw().record_id, draw().nonce).identity
        self._come_before()

    def _come_before(self) -> None:
        if self.scenario.is_completed_before:
            self.call(succeed)
        if self.scenario.twin_runs:
            self._claim()
        if self.scenario.begins_with is not None:
            world = MortalWorld(self.backend, self.clock)
            self.scenario.begins_with(world, self._claim(), self.witness)
            self.clock.pass_seconds(PAST_THE_LEASE_SECONDS)

    def _claim(self) -> Record:
        drawn = draw()
        answer = MortalWorld(self.backend, self.clock).apply(self.request.claim(drawn.record_id, drawn.nonce))
        assert isinstance(answer, Granted)
        self.granted.append(answer.record)
        return answer.record

    def call(self, handler: Handler, doom: Doom | None = None) -> Ending:
        """Send the request; whoever is granted is remembered, since a zombie may come back."""
        world = MortalWorld(self.backend, self.clock, doom)

        def handle(world: MortalWorld, record: Record) -> object:
            self.granted.append(record)
            return handler(world, record, self.witness)

        world.handler = handle
        world.while_waiting = self._twin_completes
        return world.run(execute(self.request))

    def _twin_completes(self) -> None:
        """Let the twin that ran before the request end while the request waits for it."""
        world = MortalWorld(self.backend, self.clock)
        found = world.find(self.identity)
        if self.scenario.twin_runs and found is not None and found.nonce == self.granted[0].nonce:
            self.complete_as(self.granted[0], self.witness.run(world, found))

    def complete_as(self, owner: Record, value: str) -> Kept | Refused:
        outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=self.request.encode(value))
        verb = Complete(ownership=owner.ownership, outcome=outcome, retention=self.request.policy.kept)
        answer = MortalWorld(self.backend, self.clock).apply(verb)
        assert isinstance(answer, Kept | Refused)
        return answer

    @property
    def stored(self) -> Record | None:
        return MortalWorld(self.backend, self.clock).find(self.identity)


def points_of(scenario: Scenario, backend: BlockingBackend) -> int:
    doom = Doom()
    Story(scenario, backend, f"counting-{scenario.name.replace(' ', '_').replace(',', '')}").call(
        scenario.handler, doom
    )
    return doom.points


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_dying_anywhere_never_makes_an_effect_twice_and_all_answers_are_one(
    scenario: Scenario, backend: BlockingBackend
) -> None:
    """G1, G2, G3: every point of either level, then the same request again, at once and past the lease."""
    points = points_of(scenario, backend)
    assert points >= 8

    for point in range(points):
        story = Story(scenario, backend, f"{scenario.name.replace(' ', '_').replace(',', '')}-{point}")
        doom = Doom(point)
        with pytest.raises(Crash):
            story.call(scenario.handler, doom)

        later = scenario.later or succeed
        endings = [story.call(later)]
        story.clock.pass_seconds(PAST_THE_LEASE_SECONDS)
        endings += [story.call(later), story.call(later)]

        check(story, endings, doom.where)


def check(story: Story, endings: list[Ending], where: str) -> None:
    witness, scenario = story.witness, story.scenario
    told = f"{scenario.name}, died {where}: {endings}"
    assert witness.ran_after_the_end == 0, told
    assert len(witness.charged) <= 1, told
    answers = {ending.outcome for ending in endings if isinstance(ending, Finished)}
    assert len(answers) <= 1, told
    assert _told(endings[-2]) == _told(endings[-1]), told
    if scenario.effects is Opaque:
        assert witness.runs <= 1, told
        assert isinstance(endings[-1], Doubtful) or (witness.runs == 1 and answers), told
    elif scenario.name == "in doubt":
        assert isinstance(endings[-1], Finished | Doubtful), told
    else:
        assert isinstance(endings[-1], Finished), told
    assert not any(isinstance(ending, Failed | Vanished) for ending in endings), told
    assert not any(isinstance(ending, Running) for ending in endings[1:]), told
    check_zombies(story, told)


def _told(ending: Ending) -> object:
    """Return what a caller reads of an answer; that it is a replay is no part of it."""
    return (ending.record_id, ending.outcome) if isinstance(ending, Finished) else ending


def check_zombies(story: Story, told: str) -> None:
    """Let every owner that ever was come back: none may change an outcome (I1, I2, F050)."""
    before = story.stored
    if before is None or before.state is not State.COMPLETED:
        return
    for owner in story.granted:
        story.complete_as(owner, "a zombie's")
    assert story.stored == before, told


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_dying_while_a_store_is_opened_leaves_one_secret_for_everybody(kind: str, tmp_path: Path) -> None:
    def opened(name: str) -> BlockingBackend:
        return memory.open_blocking() if kind == "memory" else open_blocking(f"sqlite:///{tmp_path / name}.db")

    def starting(store: BlockingBackend, candidate: int, doom: Doom) -> Secrets:
        flow = start(store.store, configured=None, candidate=bytes([candidate]) * 32, migrates=True)
        return store.sessions.run(doomed(flow, doom))

    counting = Doom()
    first = opened("counting")
    starting(first, 1, counting)
    first.sessions.close()
    assert counting.points >= 8

    for point in range(counting.points):
        store = opened(f"point-{point}")
        with pytest.raises(Crash):
            starting(store, 1, Doom(point))

        secrets = starting(store, 2, Doom())

        assert starting(store, 3, Doom()) == secrets
        store.sessions.close()
