"""Batches: many records in one commit, none at the expense of another."""

from __future__ import annotations

import pytest

from nebis.core.answers import Grant, Granted, Kept, Refused, Replay, Running
from nebis.core.verbs import Verb
from nebis.testing.conformance.harness import Connection, Harness
from nebis.testing.conformance.moves import Case
from nebis.testing.conformance.probes import PROBES
from nebis.testing.conformance.situations import SITUATIONS
from nebis.testing.conformance.specimens import LEASE_US, START_US, claim
from nebis.testing.conformance.stage import Stage
from nebis.testing.conformance.tour import BATCH_SIZE
from nebis.testing.conformance.twin import Twin


def cases(twin: Twin, *keys: str) -> list[Case]:
    """Claim each of the keys."""
    twin.apply([claim(key) for key in keys], now=START_US)
    made = [Case(key) for key in keys]
    for case in made:
        case.became(twin.records[case.identity])
    return made


class TestBatches:
    """Plural verbs: the answers of singular ones, in one commit."""

    def test_an_empty_batch_is_answered_with_nothing(self, store: Connection) -> None:
        assert store.apply(now=START_US) == []

    def test_answers_come_in_the_order_of_the_verbs(self, twin: Twin) -> None:
        keys = [f"key-{number}" for number in range(20)]

        answers = twin.apply([claim(key) for key in keys], now=START_US)

        assert [answer.record.key for answer in answers if isinstance(answer, Granted)] == keys

    def test_fences_of_one_batch_are_all_different_i10(self, twin: Twin) -> None:
        twin.apply([claim(f"key-{number}") for number in range(20)], now=START_US)

        assert len({record.fence for record in twin.records.values()}) == 20

    def test_a_large_batch_is_one_batch(self, twin: Twin) -> None:
        answers = twin.apply([claim(f"key-{number}") for number in range(5 * BATCH_SIZE)], now=START_US)

        assert {type(answer) for answer in answers} == {Granted}

    @pytest.mark.parametrize("situation", ["running", "calling, sticky, lapsed", "in doubt, queryable", "completed"])
    def test_verbs_of_every_kind_share_a_batch(self, twin: Twin, situation: str) -> None:
        stages = {probe: Stage(twin, key=probe) for probe in PROBES}
        for stage in stages.values():
            stage.enter(situation)
        verbs: list[Verb] = [PROBES[probe](stage.case) for probe, stage in stages.items()]
        now = next(iter(stages.values())).now

        answers = twin.apply(verbs, now=now)

        assert len(answers) == len(PROBES)

    def test_every_situation_answers_one_batch_of_claims(self, twin: Twin) -> None:
        for situation in SITUATIONS:
            Stage(twin, key=situation).enter(situation)

        answers = twin.apply([claim(key, by="second", life=2) for key in SITUATIONS], now=START_US + LEASE_US)

        assert len(answers) == len(SITUATIONS)

    def test_refused_members_do_not_harm_their_neighbours(self, twin: Twin) -> None:
        first, second, third = cases(twin, "a", "b", "c")
        zombie = PROBES["complete as an impostor"](second)

        answers = twin.apply([_complete(first), zombie, _complete(third)], now=START_US)

        assert [type(answer) for answer in answers] == [Kept, Refused, Kept]

    def test_claims_and_completions_share_a_batch(self, twin: Twin) -> None:
        first, second, _ = cases(twin, "a", "b", "c")
        zombie = PROBES["complete as an impostor"](second)
        verbs = [claim("d"), _complete(first), claim("c", by="two"), zombie, claim("e")]

        answers = twin.apply(verbs, now=START_US)

        assert [type(answer) for answer in answers] == [Granted, Kept, Running, Refused, Granted]

    def test_one_claim_and_one_completion_share_a_batch(self, twin: Twin) -> None:
        [first] = cases(twin, "a")

        answers = twin.apply([_complete(first), claim("b")], now=START_US)

        assert [type(answer) for answer in answers] == [Kept, Granted]

    def test_the_twin_of_a_claim_waits_for_the_next_batch(self, twin: Twin) -> None:
        twin.apply([claim("a", by="one"), claim("b", by="one")], now=START_US)

        answers = twin.apply([claim("b", by="two"), claim("c", by="two")], now=START_US)

        assert [type(answer) for answer in answers] == [Running, Granted]

    def test_a_batch_that_is_sent_again_whole_gives_every_member_its_own_f014(self, twin: Twin) -> None:
        batch = [claim(key) for key in "abc"]
        twin.apply(batch, now=START_US)

        answers = twin.apply(batch, now=START_US + 1)

        assert [answer.how for answer in answers if isinstance(answer, Granted)] == [Grant.OWN] * 3

    @pytest.mark.parametrize("number", [7, 8, 33])
    def test_many_of_one_kind_are_answered_as_each_by_itself(self, twin: Twin, number: int) -> None:
        keys = [f"key-{place}" for place in range(number)]

        claims = twin.apply([claim(key) for key in keys], now=START_US)
        made = [Case(key) for key in keys]
        for case in made:
            case.became(twin.records[case.identity])
        completions = twin.apply([_complete(case) for case in made], now=START_US + 1)
        again = twin.apply([claim(key, by="second", life=2) for key in keys], now=START_US + 2)

        assert {type(answer) for answer in claims} == {Granted}
        assert completions == [Kept()] * number
        assert {type(answer) for answer in again} == {Replay}

    @pytest.mark.parametrize("number", [7, 8, 33])
    def test_one_of_many_that_finds_something_else_harms_no_neighbour(self, twin: Twin, number: int) -> None:
        [taken] = cases(twin, "key-3")

        claims = twin.apply([claim(f"key-{place}", by="second", life=2) for place in range(number)], now=START_US)
        made = [Case(f"key-{place}") for place in range(number)]
        for case in made:
            case.became(twin.records[case.identity])
        twin.apply([_complete(taken)], now=START_US)
        completions = twin.apply([_complete(case) for case in made], now=START_US + 1)

        assert [type(answer) for answer in claims] == [Running if place == 3 else Granted for place in range(number)]
        assert completions == [Kept(is_repeated=place == 3) for place in range(number)]

    def test_another_connection_sees_what_was_applied(self, harness: Harness, twin: Twin) -> None:
        twin.apply([claim("a"), claim("b")], now=START_US)
        other = harness.connect()

        try:
            assert [other.find(identity) for identity in twin.records] == list(twin.records.values())
        finally:
            other.close()


def _complete(case: Case) -> Verb:
    return PROBES["complete"](case)
