import asyncio

import aio_pika

from nebis.messaging.publishers.rabbitmq import RabbitPublisher
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused
from tests.engines.rabbitmq import RabbitServer
from tests.messaging.publishers.benches import RabbitBench


def publish(server: RabbitServer, *messages: Message, exchange: str = "") -> list[PublishResult]:
    async def scenario() -> list[PublishResult]:
        publisher = RabbitPublisher(server.url, exchange=exchange)
        results = await publisher.publish(messages)
        await publisher.aclose()
        return list(results)

    return asyncio.run(scenario())


def test_only_the_message_that_no_queue_takes_is_refused(rabbit_server: RabbitServer, topic: str) -> None:
    asyncio.run(RabbitBench(rabbit_server).prepare(topic))
    batch = [Message(id=f"m{number}", topic=name, payload=b"") for number, name in enumerate([topic, "nobody", topic])]

    results = publish(rabbit_server, *batch)

    assert results == [
        Confirmed(),
        Refused(reason="no queue takes 'nobody'; bind one, or correct the topic"),
        Confirmed(),
    ]
    assert [arrived.id for arrived in asyncio.run(RabbitBench(rabbit_server).arrived(topic))] == ["m0", "m2"]


def test_an_exchange_routes_by_the_topic(rabbit_server: RabbitServer, topic: str) -> None:
    async def prepare() -> None:
        async with await aio_pika.connect(rabbit_server.url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(f"x.{topic}", aio_pika.ExchangeType.TOPIC, durable=True)
            queue = await channel.declare_queue(topic, durable=True)
            await queue.bind(exchange, "payment.*")

    asyncio.run(prepare())

    results = publish(rabbit_server, Message(id="m", topic="payment.created", payload=b""), exchange=f"x.{topic}")

    assert results == [Confirmed()]
    assert [arrived.id for arrived in asyncio.run(RabbitBench(rabbit_server).arrived(topic))] == ["m"]


def test_an_exchange_that_is_not_there_is_refused(rabbit_server: RabbitServer) -> None:
    [result] = publish(rabbit_server, Message(id="m", topic="t", payload=b""), exchange="nowhere")

    assert isinstance(result, Refused)
    assert "nowhere" in result.reason
    assert not result.is_permanent


def test_what_the_protocol_cannot_carry_is_refused_for_good(rabbit_server: RabbitServer) -> None:
    results = publish(
        rabbit_server,
        Message(id="m", topic="t" * 256, payload=b""),
        Message(id="é" * 128, topic="t", payload=b""),
        Message(id="m", topic="t", payload=b"", content_type="x" * 256),
    )

    assert [isinstance(result, Refused) and result.is_permanent for result in results] == [True] * 3
