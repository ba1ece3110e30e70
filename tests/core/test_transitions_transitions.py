"""The dispatch: every verb reaches its own rule, and the situations reach every edge and every refusal."""

from __future__ import annotations

from typing import get_args

from nebis.core.answers import Refusal
from nebis.core.step import Edge
from nebis.core.verbs import Claim, Verb
from nebis.testing.conformance.refusals import EDGES, REFUSALS, refusal_hits
from nebis.testing.conformance.tour import explored


def test_every_verb_is_dispatched() -> None:
    assert {hit.verb for hit in explored()} == {verb.__name__ for verb in get_args(Verb)}


def test_every_edge_is_reached_and_none_is_unknown() -> None:
    reached = {hit.result for hit in explored()} - {reason.value for reason in Refusal}

    assert reached == {edge.value for edge in EDGES}
    assert set(Edge) - EDGES == {Edge.REFUSED}


def test_the_list_of_refusals_is_what_the_state_machine_does() -> None:
    reached = {hit for hit in explored() if hit.result not in EDGES}

    assert reached == set(refusal_hits())


def test_every_verb_but_the_claim_is_refused_for_listed_reasons_and_every_reason_is_used() -> None:
    assert set(REFUSALS) == set(get_args(Verb)) - {Claim}
    assert set().union(*REFUSALS.values()) == set(Refusal)
