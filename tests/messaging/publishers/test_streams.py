import asyncio

from redis import Redis

from nebis.messaging.publishers.streams import StreamsPublisher
from nebis.ports.messages import Confirmed, Message, Refused
from tests.engines.valkey import ValkeyServer
from tests.messaging.publishers.benches import ValkeyBench


def test_only_the_topic_that_is_no_stream_is_refused(valkey_server: ValkeyServer, topic: str) -> None:
    with Redis.from_url(valkey_server.url) as client:
        client.set(f"{topic}.text", "not a stream")
    batch = [Message(id=f"m{number}", topic=name, payload=b"") for number, name in enumerate([topic, f"{topic}.text"])]

    async def scenario() -> None:
        publisher = StreamsPublisher(valkey_server.url)
        confirmed, refused = await publisher.publish(batch)
        await publisher.aclose()
        assert confirmed == Confirmed()
        assert isinstance(refused, Refused)
        assert "WRONGTYPE" in refused.reason

    asyncio.run(scenario())
    assert [arrived.id for arrived in asyncio.run(ValkeyBench(valkey_server).arrived(topic))] == ["m0"]


def test_a_stream_grows_no_longer_than_about_its_maximum(valkey_server: ValkeyServer, topic: str) -> None:
    async def scenario() -> int:
        publisher = StreamsPublisher(valkey_server.url, maximum_length=100)
        batch = [Message(id=f"m{number}", topic=topic, payload=b"") for number in range(1000)]
        assert await publisher.publish(batch) == [Confirmed()] * 1000
        await publisher.aclose()
        return len(await ValkeyBench(valkey_server).arrived(topic))

    assert 100 <= asyncio.run(scenario()) < 400


def test_a_wrong_password_is_refused_before_anything_is_sent(valkey_server: ValkeyServer, topic: str) -> None:
    async def scenario() -> None:
        publisher = StreamsPublisher(valkey_server.url.replace("redis://", "redis://nobody:wrong@"))
        [result] = await publisher.publish([Message(id="m", topic=topic, payload=b"")])
        await publisher.aclose()
        assert isinstance(result, Refused)

    asyncio.run(scenario())
