"""Offsets at or below the last one applied are ignored, a gap is reported, and nothing that it skipped is lost (M3)."""

from collections.abc import Callable
from typing import Any

from nebis import Delivery, Done, Later, Local, Parked, ParkReason
from nebis.ports.inbox import Progress
from nebis.ports.observer import GapFound, MessageIgnored
from tests.messaging.inbox.offices import Office, delivery

Opens = Callable[..., Office]
APPLIED, AGAIN = Done(is_duplicate=False), Done(is_duplicate=True)


def at(offset: int | None, **changes: Any) -> Delivery:
    """Return a message that has a place instead of a name."""
    return delivery(None, **{"payment": f"p-{offset}", "partition": "0", "offset": offset, **changes})


def progress(office: Office, partition: str = "payments/0") -> Progress | None:
    return office.run(lambda store: store.progress(office.name, partition))


def summary(office: Office) -> tuple[int, int, tuple[int, int] | None]:
    found = progress(office)
    assert found is not None
    return found.last_offset, found.gaps, found.gap


def test_offsets_at_below_and_after_a_gap(office: Opens) -> None:
    opened = office(sequence=True)

    assert [opened.handle(at(offset)) for offset in (7, 8, 8, 7, 6)] == [APPLIED, APPLIED, AGAIN, AGAIN, AGAIN]
    assert summary(opened) == (8, 0, None)
    assert opened.handle(at(12)) == APPLIED
    assert summary(opened) == (12, 1, (9, 11))

    gaps = [(event.partition, event.first, event.last) for event in opened.told if isinstance(event, GapFound)]
    assert gaps == [("payments/0", 9, 11)]
    assert len([event for event in opened.told if isinstance(event, MessageIgnored)]) == 3
    assert [message.offset for message in opened.runs] == [7, 8, 12]


def test_message_that_a_gap_had_skipped_is_kept_and_can_be_sent_in(office: Opens) -> None:
    opened = office(sequence=True)
    for offset in (1, 4):
        opened.handle(at(offset))

    verdict = opened.handle(at(2))

    assert isinstance(verdict, Parked)
    assert verdict.reason is ParkReason.OFFSET_SKIPPED
    opened.retry()
    opened.work()
    assert [message.offset for message in opened.runs] == [1, 4, 2]
    assert opened.parked() == []
    assert opened.handle(at(2)) == AGAIN
    assert summary(opened) == (4, 1, (2, 3))


def test_partitions_and_topics_count_for_themselves(office: Opens) -> None:
    opened = office(sequence=True)

    assert opened.handle(at(5)) == APPLIED
    assert opened.handle(at(5, partition="1", payment="r-5")) == APPLIED
    assert opened.handle(at(5, topic="refunds", payment="s-5")) == APPLIED
    assert opened.handle(at(5, partition=None, payment="q-5")) == APPLIED
    assert progress(opened, "payments/1") is not None
    assert progress(opened, "payments") is not None


def test_message_without_an_offset_is_parked(office: Opens) -> None:
    opened = office(sequence=True)

    for given in (at(None), at(-1), at(2**63)):
        verdict = opened.handle(given)
        assert isinstance(verdict, Parked)
        assert verdict.reason is ParkReason.NO_OFFSET
    assert opened.runs == []


def test_same_id_at_another_offset_is_the_same_message(office: Opens) -> None:
    """A relay that died between publish and mark publishes again (F106)."""
    opened = office(sequence=True)

    assert opened.handle(at(1, id="m-1", payment="p")) == APPLIED
    assert opened.handle(at(2, id="m-1", payment="p")) == AGAIN
    assert summary(opened) == (2, 0, None)
    assert len(opened.runs) == 1


def test_offset_and_rows_are_one_commit(sql_office: Opens) -> None:
    opened = sql_office(sequence=True, effects=Local)
    opened.sql("INSERT INTO ledger VALUES ('p-1', 1)")

    assert isinstance(opened.handle(at(1)), Later)
    assert progress(opened) is None
    opened.sql("DELETE FROM ledger")

    assert opened.handle(at(1)) == APPLIED
    assert summary(opened) == (1, 0, None)
    assert opened.ledger() == [("p-1", 1200)]


def test_offset_alone_keeps_a_message_from_running_that_nobody_remembers(sql_office: Opens) -> None:
    """The row of offsets outlives every record."""
    opened = sql_office(sequence=True, effects=Local)
    opened.handle(at(1))
    opened.sql("DELETE FROM nebis_record")

    assert opened.handle(at(1)) == AGAIN
    assert len(opened.runs) == 1


def test_parked_message_does_not_hold_up_its_partition(office: Opens) -> None:
    opened = office(sequence=True)
    opened.handle(at(1))

    assert isinstance(opened.handle(at(2, payload=b"?")), Parked)
    assert opened.handle(at(3)) == APPLIED
    assert summary(opened) == (3, 0, None)
    assert opened.handle(at(2, payload=b"?")) == Parked(
        reason=ParkReason.UNDECODABLE, parked_id=str(opened.parked()[0].letter.parked_id)
    )
