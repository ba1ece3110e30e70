"""Every broker as its source's tests see it: with something to read from, and what it still has to deliver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import aio_pika
import nats
from confluent_kafka import Consumer, TopicPartition
from redis.asyncio import Redis

from nebis.messaging.sources.kafka import KafkaSource
from nebis.messaging.sources.nats import NatsSource
from nebis.messaging.sources.rabbitmq import RabbitSource
from nebis.messaging.sources.source import Source
from nebis.messaging.sources.streams import StreamsSource
from tests.messaging.publishers.benches import Bench, KafkaBench, NatsBench, RabbitBench, ValkeyBench

GROUP = "ledger"
REDELIVER_AFTER_SECONDS = 1.0


class Reader(Protocol):
    """One broker's source."""

    counts_redeliveries: bool

    def source(self, topic: str, url: str | None = None) -> Source: ...

    async def left(self, topic: str) -> int:
        """Return how many messages the broker would still deliver to the group."""
        ...


class NatsReader:
    counts_redeliveries = True

    def __init__(self, bench: Bench) -> None:
        self._url = bench.url

    def source(self, topic: str, url: str | None = None) -> Source:
        return NatsSource(
            url or self._url,
            stream=topic.replace(".", "_"),
            durable=GROUP,
            in_order=True,
            redeliver_after_seconds=REDELIVER_AFTER_SECONDS,
        )

    async def left(self, topic: str) -> int:
        client = await nats.connect(self._url)
        info = await client.jetstream().consumer_info(topic.replace(".", "_"), GROUP)
        await client.close()
        return (info.num_pending or 0) + (info.num_ack_pending or 0)


class ValkeyReader:
    counts_redeliveries = False

    def __init__(self, bench: Bench) -> None:
        self._url = bench.url

    def source(self, topic: str, url: str | None = None) -> Source:
        return StreamsSource(
            url or self._url, stream=topic, group=GROUP, concurrency=1, redeliver_after_seconds=REDELIVER_AFTER_SECONDS
        )

    async def left(self, topic: str) -> int:
        client: Any = Redis.from_url(self._url)
        [group] = await client.xinfo_groups(topic)
        await client.aclose()
        return int(group["pending"]) + int(group["lag"])


class RabbitReader:
    counts_redeliveries = False

    def __init__(self, bench: Bench) -> None:
        self._url = bench.url

    def source(self, topic: str, url: str | None = None) -> Source:
        return RabbitSource(url or self._url, queue=topic, concurrency=1)

    async def left(self, topic: str) -> int:
        async with await aio_pika.connect(self._url) as connection:
            queue = await (await connection.channel()).declare_queue(topic, passive=True)
            return queue.declaration_result.message_count or 0


class KafkaReader:
    counts_redeliveries = False

    def __init__(self, bench: Bench) -> None:
        self._url = bench.url

    def source(self, topic: str, url: str | None = None) -> Source:
        # The mock cluster lets a new member in only when the session of the last one has run out.
        session = {"session.timeout.ms": 4000, "heartbeat.interval.ms": 200}
        return KafkaSource(url or self._url, topics=[topic], group=f"{GROUP}.{topic}", settings=session)

    async def left(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self._url, "group.id": f"{GROUP}.{topic}"})
        partitions = [TopicPartition(topic, number) for number in consumer.list_topics(topic).topics[topic].partitions]
        left = 0
        for partition in consumer.committed(partitions, timeout=10):
            lowest, highest = consumer.get_watermark_offsets(partition, timeout=10)
            left += highest - (partition.offset if partition.offset >= 0 else lowest)
        consumer.close()
        return left


READERS: dict[type[Bench], Callable[[Bench], Reader]] = {
    NatsBench: NatsReader,
    ValkeyBench: ValkeyReader,
    RabbitBench: RabbitReader,
    KafkaBench: KafkaReader,
}


def reader_of(bench: Bench) -> Reader:
    return READERS[type(bench)](bench)
