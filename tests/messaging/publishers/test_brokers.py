"""What every publisher promises, against the real broker."""

import asyncio
import time

from nebis.ports.messages import Confirmed, Message, Publisher, Refused, Unknown
from tests.messaging.publishers.benches import TIMEOUT_SECONDS, Arrived, Bench

SLACK_SECONDS = 5
"""What a loaded machine may add to a timeout."""


def message(topic: str, number: int = 1, *, ordering_key: str | None = None) -> Message:
    return Message(id=f"msg_{topic}_{number}", topic=topic, payload=b"%d" % number, ordering_key=ordering_key)


async def publish_until_confirmed(publisher: Publisher, sent: Message) -> int:
    """Do what the relay does: the same message again, after a reset, until the broker confirms it."""
    deadline = time.monotonic() + 60
    tries = 1
    while await publisher.publish([sent]) != [Confirmed()]:
        assert time.monotonic() < deadline
        tries += 1
        await publisher.reset()
    return tries


def test_a_message_arrives_whole(bench: Bench, topic: str) -> None:
    sent = Message(
        id=f"msg_{topic}",
        topic=topic,
        payload=b'{"amount": 5}\r\n\x00\xff',
        content_type="application/json",
        headers=(("Trace-Id", "abc 1"), ("Region", "é")),
        ordering_key="acct 1",
    )

    async def scenario() -> list[Arrived]:
        await bench.prepare(topic)
        publisher = bench.publisher()
        assert await publisher.publish([sent]) == [Confirmed()]
        await publisher.aclose()
        return await bench.arrived(topic)

    assert asyncio.run(scenario()) == [
        Arrived(
            id=sent.id,
            payload=sent.payload,
            content_type=sent.content_type,
            ordering_key=sent.ordering_key,
            headers=dict(sent.headers),
        )
    ]


def test_every_message_of_a_batch_is_answered(bench: Bench, topic: str) -> None:
    batch = [message(topic, number) for number in range(100)]

    async def scenario() -> list[Arrived]:
        await bench.prepare(topic)
        publisher = bench.publisher()
        assert await publisher.publish(batch) == [Confirmed()] * 100
        assert await publisher.publish([]) == []
        await publisher.aclose()
        return await bench.arrived(topic)

    assert sorted(arrived.id for arrived in asyncio.run(scenario())) == sorted(sent.id for sent in batch)


def test_a_staged_header_never_replaces_the_id(bench: Bench, topic: str) -> None:
    forged = tuple((name, "forged") for name in ("nats-msg-id", "NEBIS-MESSAGE-ID", "nebis-ordering-key", "id"))
    sent = Message(id=f"msg_{topic}", topic=topic, payload=b"", headers=forged, ordering_key="acct_1")

    async def scenario() -> list[Arrived]:
        await bench.prepare(topic)
        publisher = bench.publisher()
        await publisher.publish([sent])
        await publisher.aclose()
        return await bench.arrived(topic)

    [arrived] = asyncio.run(scenario())
    assert (arrived.id, arrived.ordering_key) == (sent.id, "acct_1")


def test_a_lost_reply_leaves_the_result_unknown_and_the_same_id_goes_again(bench: Bench, topic: str) -> None:
    """F107: a broker that tells repetitions keeps one; from others the consumer gets the same id twice."""
    first, then = [message(topic, number, ordering_key="acct_1") for number in (1, 2)]

    async def scenario() -> list[Arrived]:
        await bench.prepare(topic)
        result = await bench.publish_and_lose_the_reply(first=first, then=then)
        assert isinstance(result, Unknown)
        publisher = bench.publisher()
        await publish_until_confirmed(publisher, then)
        await publisher.aclose()
        return await bench.arrived(topic)

    copies = 1 if bench.tells_repetitions else 2
    assert [arrived.id for arrived in asyncio.run(scenario())] == [first.id, *[then.id] * copies]


def test_what_was_confirmed_survives_a_restart_of_the_broker(bench: Bench, topic: str) -> None:
    batch = [message(topic, number, ordering_key="acct_1") for number in range(20)]

    async def scenario() -> list[str]:
        await bench.prepare(topic)
        publisher = bench.publisher()
        for sent in batch[:10]:
            await publish_until_confirmed(publisher, sent)
        await asyncio.to_thread(bench.restart)
        for sent in batch[10:]:
            await publish_until_confirmed(publisher, sent)
        await publisher.aclose()
        return [arrived.id for arrived in await bench.arrived(topic)]

    ids = asyncio.run(scenario())
    assert list(dict.fromkeys(ids)) == [sent.id for sent in batch]


def test_a_broker_that_is_not_there_is_reported_in_time(bench: Bench, topic: str) -> None:
    async def scenario() -> float:
        publisher = bench.publisher(bench.dead_url)
        started = time.monotonic()
        results = await publisher.publish([message(topic, 1), message(topic, 2)])
        await publisher.aclose()
        assert len(results) == 2
        assert all(isinstance(result, Refused | Unknown) and result.reason for result in results)
        assert not any(isinstance(result, Refused) and result.is_permanent for result in results)
        return time.monotonic() - started

    assert asyncio.run(scenario()) < TIMEOUT_SECONDS + SLACK_SECONDS


def test_a_broker_that_never_answers_is_reported_in_time(bench: Bench, topic: str) -> None:
    async def scenario() -> float:
        with bench.swallowing() as publisher:
            started = time.monotonic()
            [result] = await publisher.publish([message(topic)])
            await publisher.reset()
            taken = time.monotonic() - started
            await publisher.aclose()
        assert isinstance(result, Refused | Unknown)
        return taken

    assert asyncio.run(scenario()) < 2 * (TIMEOUT_SECONDS + SLACK_SECONDS)
