"""What is kept for consumers: parked messages, and how far each partition is applied."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from nebis.core.record import RecordId
from nebis.delivery import ParkReason
from nebis.ports.history import Signed
from nebis.ports.inbox import Letter, ParkDecision, ParkedLetter, Place, Progress
from nebis.testing.conformance.harness import Connection
from nebis.testing.conformance.specimens import START_US


class Case:
    """A consumer and messages that no other test has, as a store may be one that others used before."""

    def __init__(self) -> None:
        self._mark = uuid4().hex[:24]
        self.consumer = f"a consumer \u2603 {self._mark}"
        self.other = f"another {self._mark}"

    def id(self, number: int) -> UUID:
        """Return the id of a message; a higher number is a higher id."""
        return UUID(hex=f"{self._mark}{number:08x}")

    def letter(self, number: int, **changes: object) -> Letter:
        """Return a message that a consumer would keep."""
        letter = Letter(
            parked_id=self.id(number),
            consumer=self.consumer,
            topic="payments \u2603",
            message_id=f"m-{number}",
            partition="0",
            offset=2**63 - 1,
            content_type="application/json",
            headers=(("trace", ""), ("trace", "\u2603")),
            payload=b"\x00\xff",
            payload_bytes=2,
        )
        return replace(letter, **changes)  # type: ignore[arg-type]  # Any field of it.

    def parked(self, number: int, **changes: object) -> ParkedLetter:
        """Return a parked message."""
        parked = ParkedLetter(
            letter=self.letter(number),
            reason=ParkReason.ATTEMPTS_USED_UP,
            detail="ValueError",
            attempts=3,
            record_id=RecordId(UUID(int=77)),
        )
        return replace(parked, **changes)  # type: ignore[arg-type]  # Any field of it.

    def signed(self, number: int, what: str) -> Signed:
        """Return what a person asks for about a parked message."""
        return Signed(who="ann@shop-1", what=what, reason="cured", record_id=RecordId(self.id(number)))


class TestParked:
    """Messages that wait for a person."""

    def test_what_was_parked_is_read_back_whole(self, store: Connection) -> None:
        case = Case()
        bare = case.letter(
            2, message_id=None, partition=None, offset=None, headers=(), payload=None, payload_bytes=2**40
        )
        for parked in (case.parked(1), case.parked(2, letter=bare, record_id=None, detail="", is_due=True)):
            store.run(store.store.park(parked, now=START_US))

            kept = replace(parked, parked_at=START_US, updated_at=START_US)
            assert store.run(store.store.find_parked(parked.letter.parked_id)) == kept
        assert store.run(store.store.find_parked(case.id(9))) is None

    def test_second_delivery_changes_the_reason_and_keeps_the_first_message(self, store: Connection) -> None:
        case = Case()
        store.run(store.store.park(case.parked(1), now=START_US))
        again = case.parked(1, letter=case.letter(1, payload=b"other"), reason=ParkReason.ID_REUSED, attempts=4)

        store.run(store.store.park(again, now=START_US + 5))

        found = store.run(store.store.find_parked(case.id(1)))
        assert found == replace(again, letter=case.letter(1), parked_at=START_US, updated_at=START_US + 5)

    def test_pages_are_in_the_order_of_parking_and_without_payloads(self, store: Connection) -> None:
        case = Case()
        for number, at in ((3, 0), (1, 1), (2, 1), (4, 2)):
            parked = case.parked(number, letter=case.letter(number, consumer=case.consumer))
            store.run(store.store.park(parked, now=START_US + at))

        store.run(store.store.park(case.parked(5, letter=case.letter(5, consumer=case.other)), now=START_US))

        first = store.run(store.store.list_parked(consumer=case.consumer, limit=2))
        after = (first[-1].parked_at, first[-1].letter.parked_id)
        rest = store.run(store.store.list_parked(consumer=case.consumer, after=after))
        everybodys = store.run(store.store.list_parked(limit=10_000))
        own = store.run(store.store.list_parked(consumer=case.other))

        assert [each.letter.parked_id for each in (*first, *rest)] == [case.id(number) for number in (3, 1, 2, 4)]
        assert {each.letter.payload for each in (*first, *rest)} == {None}
        assert [each.letter.parked_id for each in own] == [case.id(5)]
        assert {each.letter.parked_id for each in (*first, *rest, *own)} <= {
            each.letter.parked_id for each in everybodys
        }
        counts = store.run(store.store.count_parked())
        assert (counts[case.consumer], counts[case.other]) == (4, 1)

    def test_unpark_takes_it_out_once(self, store: Connection) -> None:
        case = Case()
        store.run(store.store.park(case.parked(1), now=START_US))

        assert store.run(store.store.unpark(case.id(1))) is True
        assert store.run(store.store.unpark(case.id(1))) is False

    def test_due_are_those_that_a_person_asked_for_and_nobody_touched_since(self, store: Connection) -> None:
        case = Case()
        for number in (1, 2, 3):
            store.run(store.store.park(case.parked(number, is_due=number == 2), now=START_US))
        signed = case.signed(3, "inbox retry")

        assert store.run(store.store.decide_parked(case.id(3), ParkDecision.RETRY, signed)) is True

        assert store.run(store.store.due_letters(case.consumer, before=START_US)) == [case.id(3)]
        assert store.run(store.store.due_letters(case.consumer, before=START_US + 1)) == [case.id(3), case.id(2)]
        assert store.run(store.store.due_letters(case.consumer, before=START_US + 1, limit=1)) == [case.id(3)]
        assert store.run(store.store.due_letters(case.other, before=START_US + 1)) == []

    def test_what_a_person_decides_is_written_down_even_in_vain(self, store: Connection) -> None:
        """SEC30."""
        case = Case()
        store.run(store.store.park(case.parked(1), now=START_US))
        signed = case.signed(1, "inbox discard")

        done = [store.run(store.store.decide_parked(case.id(1), ParkDecision.DISCARD, signed)) for _ in range(2)]
        done.append(store.run(store.store.decide_parked(case.id(1), ParkDecision.RETRY, signed)))

        assert done == [True, False, False]
        assert store.run(store.store.find_parked(case.id(1))) is None
        lines = store.run(store.store.audits_of(RecordId(case.id(1))))
        assert [(line.signed, line.answer) for line in lines] == [
            (signed, "done"),
            (signed, "absent"),
            (signed, "absent"),
        ]


class TestOffsets:
    """The last applied offset of each partition."""

    def test_offset_only_goes_up_and_gaps_are_written_down(self, store: Connection) -> None:
        case = Case()
        found: list[tuple[int, int, tuple[int, int] | None]] = []
        for number, offset in enumerate((5, 5, 4, 6, 9, 7, 10, 12)):
            place = Place(consumer=case.consumer, partition="payments/0", offset=offset)
            store.run(store.store.advance(place, now=START_US + number))
            progress = store.run(store.store.progress(case.consumer, "payments/0"))
            assert progress is not None
            found.append((progress.last_offset, progress.gaps, progress.gap))

        first, gap = (5, 0, None), (9, 1, (7, 8))
        assert found == [first, first, first, (6, 0, None), gap, gap, (10, 1, (7, 8)), (12, 2, (11, 11))]

    def test_partitions_and_consumers_count_for_themselves(self, store: Connection) -> None:
        case = Case()
        places = [
            Place(consumer=consumer, partition=partition, offset=2**63 - 1 if consumer == case.other else 0)
            for consumer in (case.consumer, case.other)
            for partition in ("t/0", "t/1")
        ]
        for place in reversed(places):
            store.run(store.store.advance(place, now=START_US))

        expected = [
            Progress(
                consumer=place.consumer,
                partition=place.partition,
                last_offset=place.offset,
                gaps=0,
                gap=None,
                updated_at=START_US,
            )
            for place in places
        ]
        everybodys = store.run(store.store.progresses())
        assert [each for each in everybodys if each in expected] == expected
        assert store.run(store.store.progresses(case.other)) == expected[2:]
        assert store.run(store.store.progress(case.consumer, "t/2")) is None

    def test_offset_is_part_of_the_transaction_that_it_is_written_in(self, store: Connection) -> None:
        case = Case()
        if not store.store.capabilities.joins_transactions:
            pytest.skip(f"The {store.store.capabilities.name} store joins no transactions.")
        place = Place(consumer=case.consumer, partition="payments/0", offset=5)

        with store.transaction() as transaction:
            transaction.run(store.store.advance(place, now=START_US))
        assert store.run(store.store.progress(case.consumer, "payments/0")) is None
        with store.transaction() as transaction:
            transaction.run(store.store.advance(place, now=START_US))
            transaction.commit()

        assert store.run(store.store.progress(case.consumer, "payments/0")) is not None
