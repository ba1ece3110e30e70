"""A random walk over any store, compared with the state machine after every step."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from nebis.core.record import EffectVerdict, Outcome, OutcomeKind, Resource
from nebis.core.verbs import Verb, identity_of
from nebis.testing.conformance.harness import Harness
from nebis.testing.conformance.moves import (
    Case,
    Move,
    attaching,
    by,
    checkpointing,
    claiming,
    completing,
    intending,
    owner,
)
from nebis.testing.conformance.probes import PROBES
from nebis.testing.conformance.refusals import is_listed
from nebis.testing.conformance.specimens import LEASE_US, RECALL_US, RETENTION, START_US
from nebis.testing.conformance.tour import covering, tour
from nebis.testing.conformance.twin import Twin

EXAMPLES = int(os.environ.get("NEBIS_DIFFERENTIAL_EXAMPLES", "60"))
STEPS = int(os.environ.get("NEBIS_DIFFERENTIAL_STEPS", "40"))
TOURS = int(os.environ.get("NEBIS_DIFFERENTIAL_TOURS", "3"))
"""How often the tour reaches each edge and refusal, by different ways; a large number takes every way there is."""

KEYS = ("a", "b", "c")
SPANS_US = (1, LEASE_US // 2, LEASE_US, RECALL_US, RETENTION.outcome_us, RETENTION.metadata_us)

_probes = st.sampled_from(sorted(PROBES))
_keys = st.sampled_from(KEYS)
# NUL and lone surrogates are no text: no SQL engine stores them.
_texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
_names = _texts.filter(lambda text: text != "" and not text.startswith("undo:"))
_bytes = st.binary(max_size=50)


@st.composite
def _moves_with_any_values(draw: st.DrawFn) -> Move:
    """Make a move whose texts and bytes are arbitrary: what goes in must come out."""
    resource = Resource(type=draw(_texts), id=draw(_texts))
    outcome = Outcome(kind=draw(st.sampled_from(OutcomeKind)), body=draw(_bytes))
    verdict = draw(st.sampled_from(EffectVerdict))
    moves: list[Move] = [
        claiming(tenant=draw(_texts), scope=draw(_texts), operation=draw(_texts), command=draw(st.none() | _bytes)),
        by(owner, intending(draw(_names), derived_key=draw(_texts), recall_us=draw(st.none() | st.just(RECALL_US)))),
        by(owner, checkpointing(verdict=verdict, result=draw(_bytes))),
        by(owner, completing(outcome, resource=resource)),
        by(owner, attaching(resource=resource)),
    ]
    return draw(st.sampled_from(moves))


class Differential(RuleBasedStateMachine):
    """Several actors on three keys: right, late, repeated and foreign verbs, sweeps, batches and a moving clock."""

    harness: Harness

    def __init__(self) -> None:
        super().__init__()
        self.connection = self.harness.fresh()
        self.twin = Twin(self.connection)
        self.cases = {key: Case(key) for key in KEYS}
        self.sent: list[Verb] = []
        self.now = START_US

    def _apply(self, verbs: dict[str, Verb]) -> None:
        self.twin.apply(list(verbs.values()), now=self.now)
        for key in verbs:
            self.cases[key].became(self.twin.records.get(self.cases[key].identity))
        self.sent.extend(verbs.values())

    @initialize(key=_keys)
    def begin(self, key: str) -> None:
        """Claim something, so that there is something to do."""
        self._apply({key: claiming("first")(self.cases[key])})

    @rule(key=_keys, probe=_probes)
    def ask(self, key: str, probe: str) -> None:
        """Ask anything of one key."""
        self._apply({key: PROBES[probe](self.cases[key])})

    @rule(key=_keys, move=_moves_with_any_values())
    def ask_with_any_values(self, key: str, move: Move) -> None:
        """Write arbitrary text and bytes."""
        self._apply({key: move(self.cases[key])})

    @rule(probes=st.lists(_probes, min_size=len(KEYS), max_size=len(KEYS)), order=st.permutations(KEYS))
    def ask_of_all(self, probes: list[str], order: list[str]) -> None:
        """Ask something of every key in one batch."""
        self._apply({key: PROBES[probe](self.cases[key]) for key, probe in zip(order, probes, strict=True)})

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Let a message arrive a second time, however late."""
        verb = data.draw(st.sampled_from(self.sent))
        answered = {case.identity: key for key, case in self.cases.items()}
        self._apply({answered[identity_of(verb)]: verb})

    @rule(span_us=st.sampled_from(SPANS_US))
    def wait(self, span_us: int) -> None:
        """Let time pass."""
        self.now += span_us

    @rule(data=st.data())
    def wait_for_an_instant(self, data: st.DataObject) -> None:
        """Go to the very microsecond, or to the one before, at which something becomes due."""
        records = self.twin.records.values()
        due = sorted({t for r in records for t in (r.lease_until, r.expires_at, r.forget_at) if t > self.now})
        if due:
            self.now = data.draw(st.sampled_from(due)) - data.draw(st.integers(0, 1))

    @rule(span_us=st.sampled_from(SPANS_US))
    def step_back(self, span_us: int) -> None:
        """Let the store's clock jump back: liveness may suffer, nothing else (F055)."""
        self.now = max(START_US, self.now - span_us)

    @rule(limit=st.integers(1, len(KEYS) + 1))
    def sweep(self, limit: int) -> None:
        """Age what is due."""
        self.twin.sweep(limit=limit, now=self.now)
        for case in self.cases.values():
            case.became(self.twin.records.get(case.identity))

    @rule()
    def read(self) -> None:
        """Read everything back in every way."""
        self.twin.compare_readings(self.now)

    def teardown(self) -> None:
        """Close, and see that nothing happened that the contract does not list."""
        self.connection.close()
        unlisted = [hit for hit in self.twin.hits if not is_listed(hit)]
        assert not unlisted, f"The list of refusals lacks {unlisted}."


def compare_at_random(harness: Harness, *, examples: int = EXAMPLES, steps: int = STEPS, **options: Any) -> None:
    """Walk at random and fail with the shortest walk on which the store and the state machine differ.

    `options` are Hypothesis settings.
    """
    machine = type("StoreDifferential", (Differential,), {"harness": harness})
    chosen: dict[str, Any] = {"max_examples": examples, "stateful_step_count": steps, **options}
    run_state_machine_as_test(
        machine, settings=settings(deadline=None, print_blob=True, suppress_health_check=list(HealthCheck), **chosen)
    )


class TestDifferential:
    """The store beside the state machine, step by step."""

    def test_a_tour_of_every_edge_and_refusal_finds_no_difference(self, twin: Twin) -> None:
        tour(twin, covering(TOURS))

    def test_a_random_walk_finds_no_difference(self, harness: Harness) -> None:
        compare_at_random(harness)
