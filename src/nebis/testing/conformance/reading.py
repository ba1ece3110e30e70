"""Reading: find, scan and count, which change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nebis.core.record import Record, Resource, State
from nebis.ports.store import Counts, Scan
from nebis.testing.conformance.harness import Connection
from nebis.testing.conformance.moves import attaching, by, claiming, owner
from nebis.testing.conformance.situations import SITUATIONS
from nebis.testing.conformance.specimens import (
    LEASE_US,
    SECOND_US,
    START_US,
    claim,
    identity_of_key,
    record_id_of,
)
from nebis.testing.conformance.stage import Stage
from nebis.testing.conformance.twin import Twin, in_scan_order


def pages(store: Connection, query: dict[str, Any], now: int) -> Iterator[list[Record]]:
    """Read page after page, as recovery does."""
    after: tuple[int, bytes] | None = None
    while page := store.run(store.store.scan(Scan(**query, after=after), now=now)):
        yield page
        after = (page[-1].lease_until, page[-1].identity)


class TestReading:
    """What was written is found, whole and in order."""

    def test_what_is_not_there_is_not_found(self, store: Connection) -> None:
        assert store.find(identity_of_key("nobody")) is None
        assert store.run(store.store.find_by_id(record_id_of("nobody"))) is None
        assert store.run(store.store.scan(Scan(), now=START_US)) == []

    def test_an_empty_store_counts_nothing_in_every_state(self, store: Connection) -> None:
        assert store.run(store.store.count(now=START_US)) == Counts(
            by_state=dict.fromkeys(State, 0), lapsed=0, oldest_in_progress_us=None, oldest_in_doubt_us=None
        )

    def test_every_situation_reads_back_the_same_by_every_way(self, twin: Twin) -> None:
        for situation in SITUATIONS:
            Stage(twin, key=situation).enter(situation)

        twin.compare_readings(START_US + 10 * SECOND_US)

    def test_pages_follow_each_other_without_gap_or_repetition_f060(self, twin: Twin) -> None:
        for number in range(10):
            # Pairs share the end of their lease, so that the identity has to order them.
            twin.ask(claim(f"key-{number}"), now=START_US + number // 2)

        read = list(pages(twin.connection, {"limit": 3}, START_US))

        assert [len(page) for page in read] == [3, 3, 3, 1]
        assert [record for page in read for record in page] == in_scan_order(twin.records.values())

    def test_a_page_of_lapsed_records_ends_at_this_very_instant(self, twin: Twin) -> None:
        for offset in (0, 1, 2):
            twin.ask(claim(f"key-{offset}"), now=START_US + offset)
        Stage(twin, key="completed").enter("completed")

        lapsed = twin.connection.run(twin.connection.store.scan(Scan(lapsed_only=True), now=START_US + LEASE_US + 1))

        assert [record.key for record in lapsed] == ["key-0", "key-1"]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ({"states": (State.IN_PROGRESS,)}, {"a", "b"}),
            ({"states": (State.IN_PROGRESS, State.AVAILABLE)}, {"a", "b", "c"}),
            ({"tenant": "acct_2"}, {"b"}),
            ({"operation": "refund"}, {"c"}),
            ({"resource_type": "payment"}, {"a"}),
            ({"resource_type": "payment", "resource_id": "pay_2"}, set()),
            ({"created_before": START_US + 1}, {"a"}),
            ({"states": (State.AVAILABLE,), "tenant": "acct_2"}, set()),
        ],
    )
    def test_a_page_holds_what_was_asked_for(self, twin: Twin, query: dict[str, Any], expected: set[str]) -> None:
        first, second, third = (Stage(twin, key=key) for key in "abc")
        first.ask(claiming())
        first.ask(by(owner, attaching(resource=Resource(type="payment", id="pay_1"))))
        for later in (second, third):
            later.wait(1)
        second.ask(claiming(tenant="acct_2"))
        third.ask(claiming(operation="refund"))
        third.ask("release")

        page = twin.connection.run(twin.connection.store.scan(Scan(**query), now=START_US))

        assert {record.key for record in page} == expected

    def test_counts_tell_how_old_the_oldest_unsettled_records_are(self, twin: Twin) -> None:
        Stage(twin, key="lapsed").enter("lapsed")
        Stage(twin, key="doubted").enter("in doubt, sticky")
        twin.ask(claim("young"), now=START_US + LEASE_US)

        counts = twin.connection.run(twin.connection.store.count(now=START_US + LEASE_US + SECOND_US))

        assert counts.by_state[State.IN_PROGRESS] == 2
        assert counts.lapsed == 1
        assert counts.oldest_in_progress_us == LEASE_US + SECOND_US
        assert counts.oldest_in_doubt_us == LEASE_US + SECOND_US

    def test_the_stores_own_clock_goes_forward_and_counts_microseconds(self, store: Connection) -> None:
        first = store.run(store.store.clock())
        second = store.run(store.store.clock())

        assert START_US < first <= second < first + 60 * SECOND_US

    def test_without_an_injected_instant_the_stores_own_clock_decides_i7(self, store: Connection) -> None:
        before = store.run(store.store.clock())
        store.run(store.store.apply([claim()]))
        after = store.run(store.store.clock())

        found = store.find(claim().identity)

        assert found is not None
        assert before <= found.created_at <= after
        assert found.lease_until == found.created_at + LEASE_US
