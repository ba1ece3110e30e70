"""Transactions: what the application commits with its own rows, and what others do meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nebis.core.answers import Answer, Granted, Kept, Locked, Refusal, Refused, Replay, Running
from nebis.core.record import Record
from nebis.ports.store import DefiniteFailure
from nebis.testing.conformance.batches import cases
from nebis.testing.conformance.harness import Connection, Harness
from nebis.testing.conformance.moves import Move, by, completing, intending, owner, renewing, taking_over
from nebis.testing.conformance.probes import PROBES
from nebis.testing.conformance.specimens import LEASE_US, RETENTION, START_US, claim
from nebis.testing.conformance.stage import Stage
from nebis.testing.conformance.twin import Twin

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


class TestTransactions:
    """Verbs inside a transaction that the application commits."""

    @pytest.fixture(autouse=True)
    def _only_where_there_are_transactions(self, store: Connection) -> None:
        if not store.store.capabilities.joins_transactions:
            pytest.skip(f"The {store.store.capabilities.name} store joins no transactions.")

    def test_what_was_applied_counts_from_the_commit_on(self, harness: Harness, store: Connection) -> None:
        watcher = harness.connect()
        try:
            with store.transaction() as transaction:
                (answer,) = transaction.run(store.store.apply([claim()], now=START_US))
                before = watcher.find(claim().identity)
                transaction.commit()
            after = watcher.find(claim().identity)
        finally:
            watcher.close()

        assert isinstance(answer, Granted)
        assert (before, after) == (None, answer.record)

    def test_what_was_rolled_back_never_happened(self, store: Connection) -> None:
        with store.transaction() as transaction:
            transaction.run(store.store.apply([claim()], now=START_US))

        assert store.find(claim().identity) is None

    def test_a_held_record_is_read_as_it_stands_and_completed_in_the_same_commit(self, stage: Stage) -> None:
        before = stage.enter("running")
        store = stage.twin.connection

        with store.transaction() as transaction:
            held = transaction.run(store.store.hold(stage.case.identity))
            is_same = transaction.is_same()
            settled = transaction.settle(store.store.apply([PROBES["complete"](stage.case)], now=stage.now))
            transaction.commit()

        assert held == before
        assert is_same
        assert settled == [Kept()]
        assert isinstance(store.ask(claim(by="second"), now=stage.now), Replay)

    def test_nothing_is_held_where_nothing_is(self, store: Connection) -> None:
        with store.transaction() as transaction:
            assert transaction.run(store.store.hold(claim().identity)) is None

    def test_the_barrier_reads_what_is_settled(self, stage: Stage) -> None:
        store = stage.twin.connection
        before = store.run(store.store.barrier(stage.case.identity))
        stage.enter("completed")

        assert before is None
        assert store.run(store.store.barrier(stage.case.identity)) == stage.record

    def test_no_barrier_speaks_while_a_transaction_on_the_key_is_under_way(
        self, harness: Harness, store: Connection
    ) -> None:
        """A lost COMMIT of a first claim may still arrive: that no record is seen yet proves nothing (F012, F013)."""
        other = harness.connect()
        try:
            with store.transaction() as transaction:
                transaction.run(store.store.apply([claim()], now=START_US))
                meanwhile = _barrier(other, claim().identity)
                transaction.commit()
            afterwards = other.run(other.store.barrier(claim().identity))
        finally:
            other.close()

        assert meanwhile == Locked()
        assert isinstance(afterwards, Record)

    def test_a_zombie_is_refused_inside_a_transaction_too(self, stage: Stage) -> None:
        before = stage.enter("taken over by a request")
        store = stage.twin.connection
        zombie = PROBES["complete as the first owner"](stage.case)

        with store.transaction() as transaction:
            (answer,) = transaction.run(store.store.apply([zombie], now=stage.now))

        assert answer == Refused(reason=Refusal.FENCED, found=before)


def _barrier(connection: Connection, identity: bytes) -> Record | Locked | None:
    try:
        return connection.run(connection.store.barrier(identity))
    except DefiniteFailure:  # Held as a whole, so that not even the question could be asked.
        return Locked()


@contextmanager
def holding(harness: Harness, identity: bytes) -> Iterator[None]:
    """Keep a record in an open transaction on a connection of its own."""
    holder = harness.connect()
    try:
        with holder.transaction() as transaction:
            assert isinstance(transaction.run(holder.store.hold(identity)), Record)
            yield
    finally:
        holder.close()


class TestHeldRecords:
    """A record in somebody's open transaction: it can wait, its neighbours cannot."""

    @pytest.fixture(autouse=True)
    def _only_where_a_transaction_holds_one_record(self, harness: Harness, store: Connection) -> None:
        if not store.store.capabilities.joins_transactions or not harness.locks_single_records:
            pytest.skip(f"No transaction can hold a single record of the {store.store.capabilities.name} store.")

    @pytest.mark.parametrize("change", CHANGING)
    def test_a_held_record_answers_locked_and_its_neighbours_are_served(
        self, harness: Harness, twin: Twin, change: str
    ) -> None:
        first, held, last = cases(twin, "a", "b", "c")
        move, now = CHANGING[change]
        verbs = [move(first), move(held), move(last)]
        before = twin.records[held.identity]

        with holding(harness, held.identity):
            answers = twin.connection.apply(*verbs, now=now)

            assert answers[1] == Locked()
            assert not {type(answers[0]), type(answers[2])} & {Locked, Refused}
        assert twin.connection.find(held.identity) == before
        assert not isinstance(twin.ask(verbs[1], now=now), Locked)

    def test_a_claim_that_changes_nothing_need_not_wait_for_the_holder(self, harness: Harness, twin: Twin) -> None:
        (held,) = cases(twin, "a")

        with holding(harness, held.identity):
            answer: Answer | Locked = twin.connection.ask(claim("a", by="second"), now=START_US)

        assert isinstance(answer, Running | Locked)

    def test_new_keys_are_granted_while_another_is_held(self, harness: Harness, twin: Twin) -> None:
        (held,) = cases(twin, "held")

        with holding(harness, held.identity):
            answers = twin.connection.apply(claim("x"), claim("held", by="second"), claim("y"), now=START_US + LEASE_US)

        assert [type(answer) for answer in answers] == [Granted, Locked, Granted]

    def test_a_record_is_held_by_one_at_a_time_and_nobody_waits(self, harness: Harness, twin: Twin) -> None:
        (held,) = cases(twin, "a")
        store = twin.connection

        with holding(harness, held.identity), store.transaction() as transaction:
            assert transaction.run(store.store.hold(held.identity)) == Locked()
            assert store.run(store.store.barrier(held.identity)) == Locked()

    @pytest.mark.parametrize(
        ("ending", "age_us"),
        [
            (["complete"], RETENTION.outcome_us),
            (["release"], RETENTION.outcome_us),
            (["complete", "expire"], RETENTION.outcome_us + RETENTION.metadata_us),
            (["complete"], RETENTION.outcome_us + RETENTION.metadata_us),
        ],
    )
    def test_a_sweep_passes_over_what_is_held(
        self, harness: Harness, twin: Twin, ending: list[str], age_us: int
    ) -> None:
        made = cases(twin, "a", "b", "c")
        instants = [START_US, START_US + RETENTION.outcome_us]
        for probe, now in zip(ending, instants, strict=False):
            twin.apply([PROBES[probe](case) for case in made], now=now)
        store = twin.connection

        with holding(harness, made[1].identity):
            swept = store.run(store.store.sweep(limit=10, now=START_US + age_us))

        assert swept.aged == 2
        assert store.find(made[1].identity) == twin.records[made[1].identity]


class TestHeldStore:
    """A store that is held as a whole by somebody's open transaction."""

    @pytest.fixture(autouse=True)
    def _only_where_a_transaction_holds_everything(self, harness: Harness, store: Connection) -> None:
        if not store.store.capabilities.joins_transactions or harness.locks_single_records:
            pytest.skip(f"No transaction holds the whole {store.store.capabilities.name} store.")

    def test_a_batch_is_definitely_refused_and_works_afterwards_f042(self, harness: Harness, twin: Twin) -> None:
        first, second = cases(twin, "a", "b")
        batch = [PROBES["complete"](first), PROBES["complete"](second)]

        with holding(harness, first.identity), pytest.raises(DefiniteFailure):
            twin.connection.apply(*batch, now=START_US)

        assert twin.connection.find(first.identity) == first.record
        assert twin.apply(batch, now=START_US) == [Kept(), Kept()]
