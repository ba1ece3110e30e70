"""From a transaction to the consumer's ledger, over every broker: staged, relayed, delivered twice, applied once."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import pytest

from nebis import AsyncAttempt, AsyncNebis, Delivery, Incoming, Local
from nebis.delivery import Verdict
from nebis.messaging import AsyncRelay, Message, Publisher, PublishResult, RelayPolicy
from nebis.messaging.publishers.cloudevents import CloudEventsPublisher
from tests.messaging.publishers.benches import Bench
from tests.messaging.publishers.conftest import bench, topic
from tests.messaging.sources.benches import reader_of

__all__ = ["bench", "topic"]

PAYMENTS = 12
ACCOUNTS = 3
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class PaymentCreated:
    """What the messages are about."""

    payment: str
    account: str


class Twice:
    """A publisher that sends everything a second time, as a relay does that died before it could mark (F106)."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        await self._publisher.publish(messages)
        return await self._publisher.publish(messages)

    async def reset(self) -> None:
        await self._publisher.reset()

    async def aclose(self) -> None:
        await self._publisher.aclose()


class Counted:
    """A consumer whose deliveries are counted, and which ends its source when all have come."""

    def __init__(self, consumer: object, expected: int, stop: asyncio.Event) -> None:
        self._consumer = consumer
        self._expected = expected
        self._stop = stop
        self.deliveries: list[Delivery] = []
        self.verdicts: list[Verdict] = []
        self.name = "ledger"

    async def handle(self, delivery: Delivery) -> Verdict:
        self.deliveries.append(delivery)
        verdict: Verdict = await self._consumer.handle(delivery)  # type: ignore[attr-defined]
        self.verdicts.append(verdict)
        if len(self.verdicts) == self._expected:
            self._stop.set()
        return verdict


async def pay_all(nebis: AsyncNebis, topic: str) -> list[str]:
    """Make payments, one of which fails after it staged its message."""

    @nebis.operation("pay", effects=Local)
    async def pay(attempt: AsyncAttempt, number: int) -> str:
        account = f"account {number % ACCOUNTS}"
        async with attempt.transaction() as tx:
            tx.stage(topic, PaymentCreated(f"pay_{number}", account), ordering_key=account)
            if number == PAYMENTS:
                raise ValueError("no such account")
            tx.finish(f"pay_{number}")
        return f"pay_{number}"

    made = [
        await pay(key=f"payment-{number}", tenant="acct_1", command=number) for number in (*range(PAYMENTS), 0, 1, 2)
    ]
    with pytest.raises(ValueError, match="no such account"):
        await pay(key=f"payment-{PAYMENTS}", tenant="acct_1", command=PAYMENTS)
    return made[:PAYMENTS]


async def relay_all(nebis: AsyncNebis, publisher: Publisher) -> None:
    relay = AsyncRelay(nebis, publisher, policy=RelayPolicy(backoff_first=timedelta(milliseconds=50)))
    published = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while published < PAYMENTS:
            published += (await relay.run_once()).published
    assert (await relay.run_once()).taken == 0
    await relay.close()


def test_a_payment_made_twice_and_delivered_twice_is_booked_once(bench: Bench, topic: str, postgres_url: str) -> None:
    reader = reader_of(bench)
    copies = PAYMENTS if bench.tells_repetitions else 2 * PAYMENTS

    async def scenario() -> tuple[list[str], Counted, int]:
        stop = asyncio.Event()
        async with AsyncNebis(postgres_url, housekeeping=False) as nebis:

            @nebis.consumer("ledger", effects=Local)
            async def ledger(attempt: AsyncAttempt, message: Incoming[PaymentCreated]) -> None:
                async with attempt.transaction() as tx:
                    payment = message.payload
                    await tx.connection.execute(
                        "INSERT INTO ledger (payment, account) VALUES (%s, %s)", [payment.payment, payment.account]
                    )
                    tx.finish(None)

            await bench.prepare(topic)
            made = await pay_all(nebis, topic)
            await relay_all(nebis, Twice(CloudEventsPublisher(bench.publisher(), source="/payments", mode="binary")))
            counted = Counted(ledger, copies, stop)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await reader.source(topic).run(counted, stop)
        return made, counted, await reader.left(topic)

    with psycopg.connect(postgres_url, autocommit=True) as books:
        # Without any unique constraint: a second booking would be seen.
        books.execute("CREATE TABLE ledger (position serial, payment text, account text)")
        made, counted, left = asyncio.run(scenario())
        booked = books.execute("SELECT payment, account FROM ledger ORDER BY position").fetchall()

    assert sorted(payment for payment, _ in booked) == sorted(made)
    for account in {account for _, account in booked}:
        numbers = [int(payment.removeprefix("pay_")) for payment, owner in booked if owner == account]
        assert numbers == sorted(numbers)
    ids = Counter(delivery.id for delivery in counted.deliveries)
    assert set(ids.values()) == {copies // PAYMENTS}
    duplicates = [verdict for verdict in counted.verdicts if getattr(verdict, "is_duplicate", False)]
    assert len(duplicates) == copies - PAYMENTS
    assert left == 0
