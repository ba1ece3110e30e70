"""Batches: many records in one commit, none at the expense of another."""

from __future__ import annotations

import pytest

from nebis.core.answers import Answer, Grant, Granted, Kept, Locked, Refused, Running
from nebis.core.verbs import Verb
from nebis.ports.store import Sweep
from nebis.testing.conformance.harness import Connection, Harness
from nebis.testing.conformance.moves import Case, Move, by, completing, intending, owner, renewing, taking_over
from nebis.testing.conformance.probes import PROBES
from nebis.testing.conformance.situations import SITUATIONS
from nebis.testing.conformance.specimens import LEASE_US, RETENTION, START_US, claim
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

    def test_the_twin_of_a_claim_waits_for_the_next_batch(self, twin: Twin) -> None:
        twin.apply([claim("a", by="one"), claim("b", by="one")], now=START_US)

        answers = twin.apply([claim("b", by="two"), claim("c", by="two")], now=START_US)

        assert [type(answer) for answer in answers] == [Running, Granted]

    def test_a_batch_that_is_sent_again_whole_gives_every_member_its_own_f014(self, twin: Twin) -> None:
        batch = [claim(key) for key in "abc"]
        twin.apply(batch, now=START_US)

        answers = twin.apply(batch, now=START_US + 1)

        assert [answer.how for answer in answers if isinstance(answer, Granted)] == [Grant.OWN] * 3

    def test_another_connection_sees_what_was_applied(self, harness: Harness, twin: Twin) -> None:
        twin.apply([claim("a"), claim("b")], now=START_US)
        other = harness.connect()

        try:
            assert [other.find(identity) for identity in twin.records] == list(twin.records.values())
        finally:
            other.close()


def _complete(case: Case) -> Verb:
    return PROBES["complete"](case)


CHANGING: dict[str, tuple[Move, int]] = {
    "claim of a lapsed record": (PROBES["claim"], START_US + LEASE_US),
    "take over": (taking_over(), START_US + LEASE_US),
    "renew": (by(owner, renewing()), START_US + 1),
    "intend": (by(owner, intending()), START_US),
    "complete": (by(owner, completing()), START_US),
    "release": (PROBES["release"], START_US),
    "withdraw": (PROBES["withdraw"], START_US),
    "doubt": (PROBES["doubt"], START_US),
}


class TestHeldRecords:
    """A record in somebody's open transaction: it can wait, its neighbours cannot."""

    @pytest.fixture(autouse=True)
    def _only_where_a_transaction_holds_one_record(self, harness: Harness, store: Connection) -> None:
        if not (store.store.capabilities.joins_transactions and harness.locks_single_records):
            pytest.skip(f"No transaction can hold a single record of the {store.store.capabilities.name} store.")

    @pytest.mark.parametrize("change", CHANGING)
    def test_a_held_record_answers_locked_and_its_neighbours_are_served(
        self, harness: Harness, twin: Twin, change: str
    ) -> None:
        first, held, last = cases(twin, "a", "b", "c")
        move, now = CHANGING[change]
        verbs = [move(first), move(held), move(last)]
        before = twin.records[held.identity]

        with harness.hold(held.identity):
            answers = twin.connection.apply(*verbs, now=now)

            assert answers[1] == Locked()
            assert not {type(answers[0]), type(answers[2])} & {Locked, Refused}
        assert twin.connection.find(held.identity) == before
        assert not isinstance(twin.ask(verbs[1], now=now), Locked)

    def test_a_claim_that_changes_nothing_need_not_wait_for_the_holder(self, harness: Harness, twin: Twin) -> None:
        (held,) = cases(twin, "a")

        with harness.hold(held.identity):
            answer: Answer | Locked = twin.connection.ask(claim("a", by="second"), now=START_US)

        assert isinstance(answer, Running | Locked)

    def test_new_keys_are_granted_while_another_is_held(self, harness: Harness, twin: Twin) -> None:
        (held,) = cases(twin, "held")

        with harness.hold(held.identity):
            answers = twin.connection.apply(claim("x"), claim("held", by="second"), claim("y"), now=START_US + LEASE_US)

        assert [type(answer) for answer in answers] == [Granted, Locked, Granted]

    @pytest.mark.parametrize(
        ("sweep", "ending", "age_us"),
        [
            (Sweep.EXPIRE, ["complete"], RETENTION.outcome_us),
            (Sweep.PURGE, ["release"], RETENTION.outcome_us),
            (Sweep.FORGET, ["complete", "expire"], RETENTION.outcome_us + RETENTION.metadata_us),
        ],
    )
    def test_a_sweep_passes_over_what_is_held(
        self, harness: Harness, twin: Twin, sweep: Sweep, ending: list[str], age_us: int
    ) -> None:
        made = cases(twin, "a", "b", "c")
        instants = [START_US, START_US + RETENTION.outcome_us]
        for probe, now in zip(ending, instants, strict=False):
            twin.apply([PROBES[probe](case) for case in made], now=now)
        store = twin.connection

        with harness.hold(made[1].identity):
            aged = store.run(store.store.sweep(sweep, limit=10, now=START_US + age_us))

        assert aged == 2
        assert store.find(made[1].identity) == twin.records[made[1].identity]
