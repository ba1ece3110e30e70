"""The processes of the storm: relays and consumers, each doomed to be killed with SIGKILL at some point of its work."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from nebis import AsyncAttempt, AsyncNebis, Delivery, Incoming, Local
from nebis.declaration import PolicyOptions
from nebis.delivery import Verdict
from nebis.messaging import AsyncRelay, Message, PublishResult, RelayPolicy
from nebis.messaging.publishers.nats import NatsPublisher
from nebis.messaging.sources.nats import NatsSource

STREAM = "storm"
PARTITIONS = 8
ANY_TIME = "any time"
RELAY_POINTS = ("before publishing", "published, not marked", "marked", ANY_TIME)
CONSUMER_POINTS = ("delivered", "inside the transaction", "committed, not acknowledged", ANY_TIME)

# Short, since the storm waits for the leases of the dead.
REDELIVER_AFTER_SECONDS = 1.0
RELAY = RelayPolicy(
    batch=40,
    lease=timedelta(seconds=2.5),
    publish_timeout=timedelta(seconds=2),
    attempts_limit=10_000,
    backoff_first=timedelta(milliseconds=50),
    backoff_longest=timedelta(milliseconds=500),
    idle=timedelta(milliseconds=50),
)
CONSUMER = PolicyOptions(
    lease=timedelta(seconds=1),
    renewal=timedelta(milliseconds=300),
    effect_timeout=timedelta(milliseconds=500),
    single_transaction=True,
)

SCHEMA = "CREATE TABLE ledger (position serial, message text NOT NULL, account text NOT NULL, number int NOT NULL)"
"""Without any unique constraint: whatever is applied twice is seen."""
APPLY = "INSERT INTO ledger (message, account, number) VALUES (%s, %s, %s)"


@dataclass(frozen=True)
class Entry:
    """What the messages are about: the n-th event of an account."""

    account: str
    number: int


def topic_of(account: str) -> str:
    """Return the subject of the partition that an account belongs to."""
    return f"storm.{sum(account.encode()) % PARTITIONS}"


@dataclass(frozen=True)
class Scene:
    """Where everybody works."""

    store: str
    broker: str
    deliveries: Path
    """A file with a line for each delivery that a consumer was given."""


@dataclass(frozen=True)
class Doom:
    """Where a process dies: when it passes a point for the n-th time, or after so many hundredths of a second."""

    point: str
    passes: int

    @classmethod
    def drawn(cls, point: str, chance: random.Random) -> Doom:
        return cls(point, chance.randint(20, 150) if point == ANY_TIME else chance.randint(1, 8))


class Fate:
    """Kills this process when its doom has come; without one it never comes."""

    def __init__(self, doom: Doom | None) -> None:
        self._doom = doom
        self._left = doom.passes if doom else 0
        if doom is not None and doom.point == ANY_TIME:
            timer = threading.Timer(doom.passes / 100, signal.raise_signal, [signal.SIGKILL])
            timer.daemon = True
            timer.start()

    def pass_by(self, point: str) -> None:
        if self._doom is None or point != self._doom.point:
            return
        self._left -= 1
        if self._left == 0:
            signal.raise_signal(signal.SIGKILL)


class FatefulPublisher:
    """A publisher that may be the last thing its process did."""

    def __init__(self, url: str, fate: Fate) -> None:
        self._publisher = NatsPublisher(url, timeout_seconds=0.9)
        self._fate = fate

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        self._fate.pass_by("before publishing")
        results = await self._publisher.publish(messages)
        self._fate.pass_by("published, not marked")
        return results

    async def reset(self) -> None:
        await self._publisher.reset()

    async def aclose(self) -> None:
        await self._publisher.aclose()


class FatefulConsumer:
    """A consumer that may be killed before it begins, and after it committed."""

    name = "ledger"

    def __init__(self, handle: Callable[[Delivery], Awaitable[Verdict]], scene: Scene, fate: Fate) -> None:
        self._handle = handle
        self._fate = fate
        self._log = os.open(scene.deliveries, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handle(self, delivery: Delivery) -> Verdict:
        os.write(self._log, f"{delivery.id}\n".encode())
        self._fate.pass_by("delivered")
        verdict = await self._handle(delivery)
        self._fate.pass_by("committed, not acknowledged")
        return verdict


def relay(scene: Scene, doom: Doom | None) -> None:
    """Be a relay until told to stop, or killed."""
    fate = Fate(doom)

    async def main() -> None:
        async with AsyncNebis(scene.store, housekeeping=False) as nebis:
            publisher = FatefulPublisher(scene.broker, fate)
            await AsyncRelay(nebis, publisher, policy=RELAY, told=lambda _: fate.pass_by("marked")).run(_stopped())

    _run(main)


def consume(scene: Scene, doom: Doom | None) -> None:
    """Be a consumer of every partition until told to stop, or killed."""
    fate = Fate(doom)

    async def main() -> None:
        stop = _stopped()
        async with AsyncNebis(scene.store, housekeeping=False) as nebis:

            @nebis.consumer("ledger", effects=Local, attempts_limit=1000, **CONSUMER)
            async def ledger(attempt: AsyncAttempt, message: Incoming[Entry]) -> None:
                async with attempt.transaction() as tx:
                    entry = message.payload
                    await tx.connection.execute(APPLY, [message.id, entry.account, entry.number])
                    fate.pass_by("inside the transaction")
                    tx.finish(None)

            consumer = FatefulConsumer(ledger.handle, scene, fate)
            await asyncio.gather(*(_source(scene, partition).run(consumer, stop) for partition in range(PARTITIONS)))

    _run(main)


def _source(scene: Scene, partition: int) -> NatsSource:
    return NatsSource(
        scene.broker,
        stream=STREAM,
        durable=f"ledger-{partition}",
        subject=f"storm.{partition}",
        in_order=True,
        redeliver_after_seconds=REDELIVER_AFTER_SECONDS,
    )


def _stopped() -> asyncio.Event:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop


def _run(main: Callable[[], Awaitable[None]]) -> None:
    logging.disable(logging.WARNING)  # Lost brokers and relays are the weather here.

    async def run() -> None:
        await main()

    asyncio.run(run())
