"""Every broker as the same tests see it: something to publish to, to look into and to break."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aio_pika
import nats
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from redis.asyncio import Redis

from nebis.messaging.publishers.kafka import KafkaPublisher
from nebis.messaging.publishers.nats import NatsPublisher
from nebis.messaging.publishers.rabbitmq import RabbitPublisher
from nebis.messaging.publishers.streams import StreamsPublisher
from nebis.ports.messages import Confirmed, Message, Publisher, PublishResult
from tests.engines.daemon import Daemon
from tests.engines.kafka import KafkaCluster
from tests.engines.nats import NatsServer
from tests.engines.proxy import FaultProxy
from tests.engines.rabbitmq import RabbitServer
from tests.engines.valkey import ValkeyServer

TIMEOUT_SECONDS = 1.5
"""What a publisher may take here before it answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A message as a client of the broker, without any help of ours, finds it there."""

    id: str
    payload: bytes
    content_type: str
    ordering_key: str | None
    headers: dict[str, str] = field(default_factory=dict)


class Bench(ABC):
    """One broker."""

    tells_repetitions = False
    """Whether it keeps one of two messages with the same id."""

    def __init__(self, url: str, *, dead_url: str) -> None:
        self.url = url
        self.dead_url = dead_url
        """An address at which nobody listens."""

    @abstractmethod
    def publisher(self, url: str | None = None) -> Publisher: ...

    @abstractmethod
    async def prepare(self, topic: str) -> None:
        """Create what must be there before anything can be published."""

    @abstractmethod
    async def arrived(self, topic: str) -> list[Arrived]: ...

    @abstractmethod
    def restart(self) -> None: ...

    async def publish_and_lose_the_reply(self, *, first: Message, then: Message) -> PublishResult:
        """Publish one whose confirmation comes back, and one that the broker gets and whose confirmation is lost."""
        with FaultProxy.before(self.url) as proxy:
            publisher = self.publisher(proxy.url(self.url))
            assert await publisher.publish([first]) == [Confirmed()]
            proxy.cut_reply_after = then.id.encode()
            [result] = await publisher.publish([then])
            assert proxy.was_cut.is_set()
            await publisher.aclose()
        return result

    @contextmanager
    def swallowing(self) -> Iterator[Publisher]:
        """Give a publisher whose connection is made and never answered."""
        with FaultProxy.before(self.url) as proxy:
            proxy.swallow()
            yield self.publisher(proxy.url(self.url))


class ServerBench(Bench):
    """A broker that is a process."""

    def __init__(self, server: Daemon, url: str, *, dead_url: str) -> None:
        super().__init__(url, dead_url=dead_url)
        self._server = server

    def restart(self) -> None:
        self._server.restart(crash=True)


class NatsBench(ServerBench):
    tells_repetitions = True

    def __init__(self, server: NatsServer) -> None:
        super().__init__(server, server.url, dead_url="nats://127.0.0.1:9")

    def publisher(self, url: str | None = None) -> Publisher:
        return NatsPublisher(url or self.url, timeout_seconds=TIMEOUT_SECONDS)

    async def prepare(self, topic: str) -> None:
        client = await nats.connect(self.url)
        await client.jetstream().add_stream(name=topic.replace(".", "_"), subjects=[topic])
        await client.close()

    async def arrived(self, topic: str) -> list[Arrived]:
        client = await nats.connect(self.url)
        name = topic.replace(".", "_")
        count = (await client.jetstream().stream_info(name)).state.messages
        subscription = await client.jetstream().pull_subscribe(topic, stream=name)
        found: list[Arrived] = []
        while len(found) < count:
            for message in await subscription.fetch(count, timeout=10):
                headers = dict(message.headers or {})
                found.append(
                    Arrived(
                        id=headers.pop("Nats-Msg-Id"),
                        payload=message.data,
                        content_type=headers.pop("Content-Type"),
                        ordering_key=headers.pop("Nebis-Ordering-Key", None),
                        headers=headers,
                    )
                )
        await client.close()
        return found


class ValkeyBench(ServerBench):
    def __init__(self, server: ValkeyServer) -> None:
        super().__init__(server, server.url, dead_url="redis://127.0.0.1:9/0")

    def publisher(self, url: str | None = None) -> Publisher:
        return StreamsPublisher(url or self.url, timeout_seconds=TIMEOUT_SECONDS)

    async def prepare(self, topic: str) -> None:
        """Do nothing: a stream appears with its first entry."""

    async def arrived(self, topic: str) -> list[Arrived]:
        client = Redis.from_url(self.url)
        entries: Any = await client.xrange(topic)  # The library's types allow for every protocol and setting.
        await client.aclose()
        return [
            Arrived(
                id=fields[b"id"].decode(),
                payload=fields[b"payload"],
                content_type=fields[b"content_type"].decode(),
                ordering_key=fields[b"ordering_key"].decode() if b"ordering_key" in fields else None,
                headers=json.loads(fields.get(b"headers", b"{}")),
            )
            for _, fields in entries
        ]


class RabbitBench(ServerBench):
    def __init__(self, server: RabbitServer) -> None:
        super().__init__(server, server.url, dead_url="amqp://guest:guest@127.0.0.1:9/")
        self._await_kept = server.await_kept

    def publisher(self, url: str | None = None) -> Publisher:
        return RabbitPublisher(url or self.url, timeout_seconds=TIMEOUT_SECONDS)

    async def prepare(self, topic: str) -> None:
        async with await aio_pika.connect(self.url) as connection:
            await (await connection.channel()).declare_queue(topic, durable=True)
        await asyncio.to_thread(self._await_kept, topic)

    async def arrived(self, topic: str) -> list[Arrived]:
        found = []
        async with await aio_pika.connect(self.url) as connection:
            queue = await (await connection.channel()).get_queue(topic)
            while (message := await queue.get(fail=False)) is not None:
                assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
                headers = {name: str(value) for name, value in message.headers.items()}
                found.append(
                    Arrived(
                        id=message.message_id or "",
                        payload=message.body,
                        content_type=message.content_type or "",
                        ordering_key=headers.pop("Nebis-Ordering-Key", None),
                        headers=headers,
                    )
                )
        return found


class KafkaBench(Bench):
    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__(cluster.bootstrap_servers, dead_url="127.0.0.1:9")
        self._cluster = cluster

    def publisher(self, url: str | None = None) -> Publisher:
        return KafkaPublisher(url or self.url, timeout_seconds=TIMEOUT_SECONDS)

    async def prepare(self, topic: str) -> None:
        """Do nothing: a topic appears when it is first asked for."""

    async def arrived(self, topic: str) -> list[Arrived]:
        settings = {"bootstrap.servers": self.url, "group.id": "bench", "enable.partition.eof": True}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        partitions = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(10)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition() or 0)
                continue
            wire: Any = message.headers() or []  # As pairs, which the library's types do not say.
            headers = {name: value.decode() for name, value in wire}
            key: Any = message.key()
            found.append(
                Arrived(
                    id=headers.pop("Nebis-Message-Id"),
                    payload=bytes(message.value() or b""),
                    content_type=headers.pop("Content-Type"),
                    ordering_key=None if key is None else key.decode(),
                    headers=headers,
                )
            )
        consumer.close()
        return found

    def restart(self) -> None:
        self._cluster.stop()
        self._cluster.start()

    async def publish_and_lose_the_reply(self, *, first: Message, then: Message) -> PublishResult:
        """Brokers tell clients where they are, so no proxy comes between them: the answer comes much too late."""
        publisher = self.publisher()
        assert await publisher.publish([first]) == [Confirmed()]
        self._cluster.delay_replies(60_000)
        [result] = await publisher.publish([then])
        self._cluster.delay_replies(0)
        await publisher.aclose()
        return result

    @contextmanager
    def swallowing(self) -> Iterator[Publisher]:
        self._cluster.delay_replies(60_000)
        try:
            yield self.publisher()
        finally:
            self._cluster.delay_replies(0)
