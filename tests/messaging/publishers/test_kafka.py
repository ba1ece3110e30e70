import asyncio

from nebis.messaging.publishers.kafka import KafkaPublisher
from nebis.ports.messages import Confirmed, Message, Refused
from tests.engines.kafka import KafkaCluster
from tests.messaging.publishers.benches import KafkaBench


def test_a_message_that_is_too_large_leaves_the_others_alone(kafka_cluster: KafkaCluster, topic: str) -> None:
    batch = [
        Message(id=f"m{number}", topic=topic, payload=bytes(size)) for number, size in enumerate([1, 2_000_000, 1])
    ]

    async def scenario() -> None:
        publisher = KafkaPublisher(kafka_cluster.bootstrap_servers)
        first, large, last = await publisher.publish(batch)
        await publisher.aclose()
        assert (first, last) == (Confirmed(), Confirmed())
        assert isinstance(large, Refused)
        assert large.is_permanent

    asyncio.run(scenario())


def test_messages_of_one_key_arrive_in_order(kafka_cluster: KafkaCluster, topic: str) -> None:
    async def scenario() -> list[str]:
        publisher = KafkaPublisher(kafka_cluster.bootstrap_servers, settings={"linger.ms": 0})
        for number in range(20):
            message = Message(id=f"m{number}", topic=topic, payload=b"", ordering_key="acct_1")
            assert await publisher.publish([message]) == [Confirmed()]
        await publisher.aclose()
        return [arrived.id for arrived in await KafkaBench(kafka_cluster).arrived(topic)]

    assert asyncio.run(scenario()) == [f"m{number}" for number in range(20)]


def test_a_reset_begins_with_a_new_producer(kafka_cluster: KafkaCluster, topic: str) -> None:
    """F107: a producer that failed for good never sends again."""

    async def scenario() -> None:
        publisher = KafkaPublisher(kafka_cluster.bootstrap_servers)
        assert await publisher.publish([Message(id="m1", topic=topic, payload=b"")]) == [Confirmed()]
        before = publisher._producer
        await publisher.reset()
        assert await publisher.publish([Message(id="m2", topic=topic, payload=b"")]) == [Confirmed()]
        assert publisher._producer is not before
        await publisher.aclose()

    asyncio.run(scenario())


def test_settings_cannot_take_the_guarantee_away(kafka_cluster: KafkaCluster) -> None:
    publisher = KafkaPublisher(kafka_cluster.bootstrap_servers, settings={"acks": "0", "enable.idempotence": False})

    assert publisher._settings["acks"] == "all"
    assert publisher._settings["enable.idempotence"] is True


def test_an_unknown_setting_is_refused_with_its_name(kafka_cluster: KafkaCluster, topic: str) -> None:
    async def scenario() -> None:
        publisher = KafkaPublisher(kafka_cluster.bootstrap_servers, settings={"no.such.setting": "1"})
        [result] = await publisher.publish([Message(id="m", topic=topic, payload=b"")])
        assert isinstance(result, Refused)
        assert "no.such.setting" in result.reason

    asyncio.run(scenario())
