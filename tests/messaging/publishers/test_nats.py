import asyncio
from collections.abc import Awaitable, Callable

import nats
import pytest

from nebis.messaging.publishers.nats import NatsPublisher
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown
from tests.engines.nats import NatsServer
from tests.engines.proxy import FaultProxy
from tests.messaging.publishers.benches import NatsBench


def run(server: NatsServer, scenario: Callable[[NatsPublisher], Awaitable[PublishResult]]) -> PublishResult:
    async def outer() -> PublishResult:
        publisher = NatsPublisher(server.url, timeout_seconds=5)
        result = await scenario(publisher)
        await publisher.aclose()
        return result

    return asyncio.run(outer())


def publish_one(server: NatsServer, message: Message) -> PublishResult:
    async def scenario(publisher: NatsPublisher) -> PublishResult:
        return (await publisher.publish([message]))[0]

    return run(server, scenario)


def test_a_topic_that_no_stream_takes_is_refused_with_what_to_do(nats_server: NatsServer) -> None:
    result = publish_one(nats_server, Message(id="m", topic="nobody.listens", payload=b""))

    assert result == Refused(reason="no stream takes 'nobody.listens'; create one, or correct the topic")


@pytest.mark.parametrize("topic", ["a b", "a..b", ".a", "a.*", "a.>", "a\r\nPUB x 0", "a\t", ""])
def test_a_topic_that_is_no_subject_is_refused_for_good(nats_server: NatsServer, topic: str) -> None:
    result = publish_one(nats_server, Message(id="m", topic=topic, payload=b""))

    assert isinstance(result, Refused)
    assert result.is_permanent


@pytest.mark.parametrize("header", [("A", "1\r\nNats-Msg-Id: forged"), ("A B", "1"), ("", "1"), ("A:", "1")])
def test_a_header_that_cannot_travel_is_refused_for_good(
    nats_server: NatsServer, topic: str, header: tuple[str, str]
) -> None:
    asyncio.run(NatsBench(nats_server).prepare(topic))

    result = publish_one(nats_server, Message(id="m", topic=topic, payload=b"", headers=(header,)))

    assert isinstance(result, Refused)
    assert result.is_permanent


def test_a_payload_that_the_server_never_takes_is_refused_for_good(nats_server: NatsServer, topic: str) -> None:
    asyncio.run(NatsBench(nats_server).prepare(topic))

    result = publish_one(nats_server, Message(id="m", topic=topic, payload=bytes(2_000_000)))

    assert result == Refused(reason="the payload is larger than the server takes", is_permanent=True)


def test_a_full_stream_is_refused_until_there_is_room(nats_server: NatsServer, topic: str) -> None:
    async def scenario(publisher: NatsPublisher) -> PublishResult:
        client = await nats.connect(nats_server.url)
        stream = client.jetstream()
        name = topic.replace(".", "_")
        await stream.add_stream(name=name, subjects=[topic], max_msgs=1, discard="new")
        first, then = [Message(id=f"{topic}_{number}", topic=topic, payload=b"") for number in (1, 2)]
        assert await publisher.publish([first]) == [Confirmed()]
        [result] = await publisher.publish([then])
        await stream.purge_stream(name)
        assert await publisher.publish([then]) == [Confirmed()]
        await client.close()
        return result

    result = run(nats_server, scenario)
    assert isinstance(result, Refused)
    assert not result.is_permanent


def test_a_message_published_by_two_relays_is_kept_once(nats_server: NatsServer, topic: str) -> None:
    message = Message(id=f"msg_{topic}", topic=topic, payload=b"")
    asyncio.run(NatsBench(nats_server).prepare(topic))

    results = [publish_one(nats_server, message) for _ in range(2)]

    assert results == [Confirmed(), Confirmed()]
    assert len(asyncio.run(NatsBench(nats_server).arrived(topic))) == 1


def test_the_other_servers_are_tried(nats_server: NatsServer, topic: str) -> None:
    async def scenario() -> None:
        await NatsBench(nats_server).prepare(topic)
        publisher = NatsPublisher(["nats://127.0.0.1:9", nats_server.url])
        assert await publisher.publish([Message(id=topic, topic=topic, payload=b"")]) == [Confirmed()]
        await publisher.aclose()

    asyncio.run(scenario())


def test_a_cut_connection_is_reported_long_before_the_timeout(nats_server: NatsServer, topic: str) -> None:
    """Only the message whose answer was lost is unknown: what was answered before stays so."""

    async def scenario() -> list[PublishResult]:
        await NatsBench(nats_server).prepare(topic)
        with FaultProxy.before(nats_server.url) as proxy:
            publisher = NatsPublisher(proxy.url(nats_server.url), timeout_seconds=60)
            await publisher.publish([Message(id=f"{topic}_0", topic=topic, payload=b"")])
            proxy.cut_reply_after = f"{topic}_1".encode()
            async with asyncio.timeout(10):
                results = await publisher.publish([Message(id=f"{topic}_1", topic=topic, payload=b"")])
                await publisher.aclose()
        return list(results)

    assert asyncio.run(scenario()) == [Unknown(reason="the connection was lost")]
