"""A message is applied once, however often it is delivered; whatever cannot be is kept, with the reason (M2)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nebis import Delivery, Done, Later, Local, Parked, ParkReason, Rejected, Retryable
from nebis.core.record import State
from nebis.ports.observer import FoundExpired
from nebis.ports.store import Scan
from tests.messaging.inbox.offices import BlockingOffice, Office, delivery

Opens = Callable[..., Office]
APPLIED, AGAIN = Done(is_duplicate=False), Done(is_duplicate=True)


def reason_of(office: Office) -> ParkReason:
    [parked] = office.parked()
    return parked.reason


def test_message_that_comes_again_is_not_applied_again(office: Opens) -> None:
    """F111."""
    opened = office()

    assert opened.handle(delivery("m-1", headers={"trace": "1"})) == APPLIED
    assert opened.handle(delivery("m-1", headers={"trace": "2"}, redeliveries=1)) == AGAIN
    assert len(opened.runs) == 1
    assert opened.parked() == []


def test_handler_gets_the_message_as_it_was_delivered(office: Opens) -> None:
    opened = office()
    given = delivery("m-1", headers={"trace": b"caf\xc3\xa9"}, partition="3", offset=9, content_type="text/json")

    opened.handle(given)

    [message] = opened.runs
    assert (message.payload.payment, message.payload.cents) == ("p-1", 1200)
    assert (message.id, message.topic, message.content_type) == ("m-1", "payments", "text/json")
    assert (message.headers, message.partition, message.offset) == ({"trace": "café"}, "3", 9)


def test_payment_created_twice_with_a_first_attempt_that_fails_half_way(sql_office: Opens) -> None:
    """F112: one ledger entry, one email, one provider notification."""
    opened = sql_office()
    opened.provider.fails = ["after"]

    first = opened.handle(delivery("evt-1"))
    second = opened.handle(delivery("evt-1", redeliveries=1))
    third = opened.handle(delivery("evt-1", redeliveries=2))

    assert isinstance(first, Later)
    assert (second, third) == (APPLIED, AGAIN)
    assert opened.ledger() == [("p-1", 1200)]
    assert (opened.mail.acts, opened.provider.acts) == (["p-1"], ["p-1"])
    assert len(opened.mail.keys) == len(opened.provider.keys) == 1


def test_worker_finishes_what_a_consumer_left_half_way_without_the_broker(sql_office: Opens) -> None:
    opened = sql_office()
    opened.provider.fails = ["after"]
    opened.handle(delivery("evt-1"))

    opened.work()

    assert opened.ledger() == [("p-1", 1200)]
    assert opened.handle(delivery("evt-1")) == AGAIN
    assert (opened.mail.acts, opened.provider.acts) == (["p-1"], ["p-1"])


def test_rows_of_a_handler_that_fails_are_gone_and_come_with_the_outcome(sql_office: Opens) -> None:
    """The rows and the record of the message are one commit: a row that cannot be written leaves no record either."""
    opened = sql_office(effects=Local)
    opened.sql("INSERT INTO ledger VALUES ('p-1', 1)")

    assert isinstance(opened.handle(delivery("m-1")), Later)
    opened.sql("DELETE FROM ledger")

    assert opened.handle(delivery("m-1")) == APPLIED
    assert opened.ledger() == [("p-1", 1200)]


@pytest.mark.parametrize("redeliveries", [None, 0])
def test_single_transaction_applies_once(sql_office: Opens, redeliveries: int | None) -> None:
    opened = sql_office(effects=Local, single_transaction=True)

    assert opened.handle(delivery("m-1", redeliveries=redeliveries)) == APPLIED
    assert opened.handle(delivery("m-1")) == AGAIN
    assert opened.handle(delivery("m-1", redeliveries=1)) == AGAIN
    assert opened.ledger() == [("p-1", 1200)]


def test_users_own_function_says_what_is_the_same(office: Opens) -> None:
    opened = office(dedup=lambda message: message.payload.payment)

    assert opened.handle(delivery(None)) == APPLIED
    assert opened.handle(delivery("another id")) == AGAIN
    assert opened.handle(delivery(None, payment="p-2")) == APPLIED


def test_id_may_have_any_visible_character(office: Opens) -> None:
    opened = office()

    assert opened.handle(delivery('a"b\\c,d;e')) == APPLIED
    assert opened.handle(delivery('a"b\\c,d;e')) == AGAIN


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (delivery(None), ParkReason.NO_ID),
        (delivery(""), ParkReason.ID_MALFORMED),
        (delivery("x" * 256), ParkReason.ID_MALFORMED),
        (delivery("two words"), ParkReason.ID_MALFORMED),
        (delivery("na\x00me"), ParkReason.HEADERS_BROKEN),
        (delivery("m-1", headers={"trace": b"\xff\xfe"}), ParkReason.HEADERS_BROKEN),
        (delivery("m-1", headers={"trace": "a\x00b"}), ParkReason.HEADERS_BROKEN),
        (delivery("m-1", headers={"trace": "x" * 70_000}), ParkReason.HEADERS_BROKEN),
        (delivery("m-1", topic="a\x00b"), ParkReason.HEADERS_BROKEN),
        (delivery("m-1", payload=b"\xff"), ParkReason.UNDECODABLE),
        (delivery("m-1", payload=b'{"payment": "p-1", "cents": "many"}'), ParkReason.UNDECODABLE),
        (delivery("m-1", payload=b'{"payment": "p-1", "cents": 1, "new": 2}'), ParkReason.UNDECODABLE),
        (delivery("m-1", payload=b'{"payment": "%s", "cents": 1}' % (b"p" * 1_100_000)), ParkReason.TOO_LARGE),
    ],
)
def test_message_that_cannot_be_read_is_kept_with_the_reason(
    tmp_path: Path, postgres_url: str, given: Delivery, reason: ParkReason
) -> None:
    """Nothing runs, nothing is lost, and nothing in it breaks a store."""
    for url in ("memory://", f"sqlite:///{tmp_path}/nebis.db", postgres_url):
        opened = BlockingOffice(url)
        opened.books = False

        verdict = opened.handle(given)

        assert isinstance(verdict, Parked)
        assert verdict.reason is reason
        [parked] = opened.parked()
        found = opened.run(lambda store, parked=parked: store.find_parked(parked.letter.parked_id))  # type: ignore[misc]
        assert found is not None
        assert found.letter.payload == given.payload
        assert opened.runs == []
        opened.close()


def test_every_delivery_of_a_parked_message_is_one_parked_message(office: Opens) -> None:
    opened = office()
    broken = delivery("m-1", payload=b"?")

    assert opened.handle(broken) == opened.handle(broken)
    assert len(opened.parked()) == 1


def test_equal_messages_without_a_name_are_two(office: Opens) -> None:
    opened = office()

    opened.handle(delivery(None))
    opened.handle(delivery(None))

    assert len(opened.parked()) == 2


def test_id_with_another_payload_is_parked_and_not_run(office: Opens) -> None:
    opened = office()
    opened.handle(delivery("m-1"))

    verdict = opened.handle(delivery("m-1", cents=9))

    assert isinstance(verdict, Parked)
    assert reason_of(opened) is ParkReason.ID_REUSED
    assert len(opened.runs) == 1


def test_rejection_parks_at_once_and_for_good(office: Opens) -> None:
    opened = office()

    def reject(_: object) -> None:
        raise Rejected("unknown-account")

    opened.hook = reject

    first, second = opened.handle(delivery("m-1")), opened.handle(delivery("m-1"))

    assert isinstance(first, Parked)
    assert first == second
    assert reason_of(opened) is ParkReason.REJECTED
    assert len(opened.runs) == 1


def test_failing_handler_comes_later_each_time_after_a_longer_pause(office: Opens) -> None:
    opened = office()

    def fail(_: object) -> None:
        raise Retryable("the database of somebody else is down")

    opened.hook = fail

    pauses = [opened.handle(delivery("m-1")) for _ in range(3)]

    assert pauses == [Later(after_seconds=seconds, reason="Retryable") for seconds in (0.001, 0.002, 0.004)]


def test_redelivery_after_retention_is_detected_and_not_run(sql_office: Opens) -> None:
    """F113: the tombstone says that it was applied, or that nobody can tell any more."""
    opened = sql_office()
    opened.handle(delivery("m-1"))
    [record] = opened.run(lambda store: store.scan(Scan(operation=opened.name)))
    assert record.expires_at - record.created_at >= 14 * 86_400 * 1_000_000
    opened.sql("UPDATE nebis_record SET expires_at = completed_at")
    opened.run(lambda store: store.sweep(limit=10))
    [record] = opened.run(lambda store: store.scan(Scan(operation=opened.name)))
    assert record.state is State.EXPIRED

    assert opened.handle(delivery("m-1")) == AGAIN
    assert isinstance(opened.handle(delivery("m-1", cents=9)), Parked)

    assert reason_of(opened) is ParkReason.AFTER_RETENTION
    assert len([event for event in opened.told if isinstance(event, FoundExpired)]) == 2
    assert len(opened.runs) == 1
    assert opened.ledger() == [("p-1", 1200)]
