"""A message that cannot be applied is parked after so many attempts, visible, and arrives once it is cured (F108)."""

from collections.abc import Callable

import pytest

from nebis import (
    Attempt,
    Declared,
    Done,
    Incoming,
    Later,
    Local,
    Nebis,
    Parked,
    ParkReason,
    Query,
    Queryable,
    hours,
)
from nebis.ports.history import Signed
from nebis.ports.inbox import ParkDecision
from nebis.ports.observer import MessageParked
from nebis.worker import Worker
from tests.messaging.inbox.offices import QUICK, Office, PaymentCreated, delivery

Opens = Callable[..., Office]
APPLIED, AGAIN = Done(is_duplicate=False), Done(is_duplicate=True)


def poison(message: Incoming[PaymentCreated]) -> None:
    if message.id == "poison":
        raise ValueError("what it says is never stored")


def test_one_poison_message_among_others(office: Opens) -> None:
    opened = office(attempts_limit=3)
    opened.hook = poison
    names = [f"m-{number}" for number in range(5)]

    poisoned = [opened.handle(delivery("poison", payment="p-x")) for _ in range(5)]
    others = [opened.handle(delivery(name, payment=name)) for name in names]

    assert [type(verdict) for verdict in poisoned] == [Later, Later, Parked, Parked, Parked]
    assert others == [APPLIED] * 5
    assert len([message for message in opened.runs if message.id == "poison"]) == 3
    [parked] = opened.parked()
    assert (parked.reason, parked.detail) == (ParkReason.ATTEMPTS_USED_UP, "AttemptsUsedUp")
    assert [event.reason for event in opened.told if isinstance(event, MessageParked)] == ["attempts-used-up"] * 3


def test_cured_message_arrives_after_retry_and_only_once(office: Opens) -> None:
    opened = office(attempts_limit=1)
    opened.hook = poison
    opened.handle(delivery("poison"))
    opened.work()
    assert len(opened.runs) == 1, "nobody asked for it yet"

    opened.hook = lambda _: None
    opened.retry()
    report = opened.work()

    assert report.redriven == 1
    assert len(opened.runs) == 2
    assert opened.parked() == []
    assert opened.handle(delivery("poison")) == AGAIN


def test_retry_in_vain_parks_it_again(office: Opens) -> None:
    opened = office(attempts_limit=1)
    opened.hook = poison
    opened.handle(delivery("poison"))

    opened.retry()
    opened.work()
    opened.work()

    assert len(opened.runs) == 2, "one more try for each time that a person asks"
    [parked] = opened.parked()
    assert not parked.is_due


@pytest.mark.parametrize("redeliveries", [None, 1])
def test_failures_in_a_single_transaction_count_too(sql_office: Opens, redeliveries: int | None) -> None:
    """Nothing is left of a transaction that is undone, so each failure is written down beside it."""
    opened = sql_office(effects=Local, single_transaction=True, attempts_limit=2)
    opened.hook = poison

    verdicts = [opened.handle(delivery("poison", redeliveries=redeliveries)) for _ in range(3)]

    assert [type(verdict) for verdict in verdicts] == [Later, Parked, Parked]
    assert len(opened.runs) == 2
    assert opened.ledger() == []


def test_discarded_message_is_gone_and_still_not_run(office: Opens) -> None:
    opened = office(attempts_limit=1)
    opened.hook = poison
    opened.handle(delivery("poison"))
    [parked] = opened.parked()

    signed = Signed(who="a test", what="inbox discard", reason="obsolete")
    opened.run(lambda store: store.decide_parked(parked.letter.parked_id, ParkDecision.DISCARD, signed))

    assert opened.parked() == []
    opened.hook = lambda _: None
    assert isinstance(opened.handle(delivery("poison")), Parked)
    assert len(opened.runs) == 1


def test_doubt_is_parked_and_leaves_by_itself_once_it_ended(tmp_path: object) -> None:
    """The record has the message, so that a worker finishes it without the broker."""
    told: dict[str, str] = {}
    is_known = False

    def tell(payment: str, *, idempotency_key: str) -> str:
        told[idempotency_key] = payment
        raise ConnectionError("the answer was lost")

    def find(key: str) -> str | None:
        return told.get(key) if is_known else None

    nebis = Nebis(f"sqlite:///{tmp_path}/nebis.db", housekeeping=False)

    @nebis.consumer("tell", effects=Declared, queries={"tell": Query(find=find, settled_after=hours(1))}, **QUICK)
    def consumer(attempt: Attempt, message: Incoming[PaymentCreated]) -> None:
        attempt.effect("tell", tell, message.payload.payment, recall=Queryable())

    with nebis:
        world, _ = nebis.opened()
        verdict = consumer.handle(delivery("m-1"))
        assert isinstance(verdict, Parked)
        assert verdict.reason is ParkReason.IN_DOUBT
        assert consumer.handle(delivery("m-1")) == verdict
        is_known = True
        for _ in range(2):
            world.backend.sessions.run(
                world.backend.store.decide_parked(
                    world.backend.sessions.run(world.backend.store.list_parked())[0].letter.parked_id,
                    ParkDecision.RETRY,
                    Signed(who="a test", what="inbox retry", reason="no need to wait"),
                )
            )
            Worker(nebis).run_once()
            if not world.backend.sessions.run(world.backend.store.list_parked()):
                break
        assert world.backend.sessions.run(world.backend.store.list_parked()) == []
        assert consumer.handle(delivery("m-1")) == AGAIN
    assert len(told) == 1
