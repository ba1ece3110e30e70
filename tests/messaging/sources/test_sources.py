"""What every source promises, against the real broker; the consumers here only write down what they were given."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from nebis.delivery import Delivery, Done, Later, Parked, ParkReason, Verdict
from nebis.errors import MisuseError
from nebis.ports.messages import Confirmed, Message
from tests.engines.proxy import FaultProxy
from tests.messaging.publishers.benches import Bench
from tests.messaging.sources.benches import Reader, reader_of

PATIENCE_SECONDS = 60


class Notes:
    """A consumer that does what it is told, and stops the source after so many deliveries."""

    name = "notes"

    def __init__(self, stop: asyncio.Event, *, count: int, judge: Callable[[Delivery], Verdict]) -> None:
        self.seen: list[Delivery] = []
        self._stop = stop
        self._count = count
        self._judge = judge

    async def handle(self, delivery: Delivery) -> Verdict:
        self.seen.append(delivery)
        verdict = self._judge(delivery)
        if len(self.seen) >= self._count:
            self._stop.set()
        return verdict


class BlockingNotes(Notes):
    """The same as a blocking consumer is."""

    def __init__(self, stop: asyncio.Event, *, count: int, judge: Callable[[Delivery], Verdict]) -> None:
        super().__init__(stop, count=count, judge=judge)
        self.threads: set[threading.Thread] = set()
        self._loop = asyncio.get_running_loop()

    def handle(self, delivery: Delivery) -> Verdict:  # type: ignore[override]
        self.threads.add(threading.current_thread())
        self.seen.append(delivery)
        if len(self.seen) >= self._count:
            self._loop.call_soon_threadsafe(self._stop.set)
        return self._judge(delivery)


def done(_: Delivery) -> Verdict:
    return Done(is_duplicate=False)


async def publish(bench: Bench, topic: str, count: int) -> list[Message]:
    await bench.prepare(topic)
    publisher = bench.publisher()
    batch = [
        Message(
            id=f"msg_{topic}_{number}",
            topic=topic,
            payload=b"%d" % number,
            content_type="text/plain",
            headers=(("Trace-Id", "abc"),),
            ordering_key="acct_1",
        )
        for number in range(count)
    ]
    for message in batch:
        assert await publisher.publish([message]) == [Confirmed()]
    await publisher.aclose()
    return batch


async def read(
    reader: Reader, topic: str, *, count: int, judge: Callable[[Delivery], Verdict] = done, notes: type[Notes] = Notes
) -> Notes:
    """Run a source until so many deliveries were made."""
    stop = asyncio.Event()
    made = notes(stop, count=count, judge=judge)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await reader.source(topic).run(made, stop)
    return made


def header(delivery: Delivery, name: str) -> str:
    value = delivery.headers[name]
    return value.decode() if isinstance(value, bytes) else value


def test_deliveries_carry_what_was_published_and_are_acknowledged(bench: Bench, topic: str) -> None:
    async def scenario() -> tuple[list[Message], Notes, int]:
        reader = reader_of(bench)
        batch = await publish(bench, topic, 3)
        notes = await read(reader, topic, count=3, notes=BlockingNotes)
        return batch, notes, await reader.left(topic)

    batch, notes, left = asyncio.run(scenario())
    assert [delivery.id for delivery in notes.seen] == [message.id for message in batch]
    assert [delivery.payload for delivery in notes.seen] == [message.payload for message in batch]
    assert {delivery.content_type for delivery in notes.seen} == {"text/plain"}
    assert {delivery.topic for delivery in notes.seen} == {topic}
    assert {header(delivery, "Trace-Id") for delivery in notes.seen} == {"abc"}
    assert {header(delivery, "Nebis-Ordering-Key") for delivery in notes.seen} == {"acct_1"}
    assert {delivery.redeliveries for delivery in notes.seen} <= {0, None}
    assert left == 0
    assert isinstance(notes, BlockingNotes)
    assert threading.main_thread() not in notes.threads


def test_what_is_not_yet_applied_is_delivered_again_and_what_is_parked_is_not(bench: Bench, topic: str) -> None:
    """F112: nothing is acknowledged before the consumer's word, and a consumer that fails says nothing."""

    async def scenario() -> tuple[Reader, list[Delivery], int]:
        reader = reader_of(bench)
        parked, postponed, failing = [message.id for message in await publish(bench, topic, 3)]
        tried: set[str | None] = set()
        settled: set[str | None] = set()

        def judge(delivery: Delivery) -> Verdict:
            is_first = delivery.id not in tried
            tried.add(delivery.id)
            if is_first and delivery.id == postponed:
                return Later(after_seconds=0.2, reason="in-flight")
            if is_first and delivery.id == failing:
                raise MisuseError("the programmer made a mistake")
            settled.add(delivery.id)
            is_parked = delivery.id == parked
            return Parked(reason=ParkReason.REJECTED, parked_id="1") if is_parked else Done(is_duplicate=False)

        seen: list[Delivery] = []
        while settled != {parked, postponed, failing}:
            stop = asyncio.Event()
            notes = Notes(stop, count=99 if failing not in tried else 1, judge=judge)
            with suppress(MisuseError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await reader.source(topic).run(notes, stop)
            seen += notes.seen
        return reader, seen, await reader.left(topic)

    reader, seen, left = asyncio.run(scenario())
    ids = [delivery.id for delivery in seen]
    assert {name: ids.count(name) for name in ids} == {
        f"msg_{topic}_0": 1,
        f"msg_{topic}_1": 2,
        f"msg_{topic}_2": 2,
    }
    assert left == 0
    if reader.counts_redeliveries:
        assert [delivery.redeliveries for delivery in seen if delivery.id == f"msg_{topic}_1"] == [0, 1]


@pytest.mark.parametrize("bench", ["nats", "valkey", "rabbitmq"], indirect=True)
def test_a_connection_cut_while_a_message_is_handled_only_delivers_it_again(bench: Bench, topic: str) -> None:
    """F111: the acknowledgement is lost, and what was applied comes once more."""

    async def scenario() -> tuple[list[str | None], int]:
        reader = reader_of(bench)
        await publish(bench, topic, 1)
        stop = asyncio.Event()
        with FaultProxy.before(bench.url) as proxy:

            def judge(_: Delivery) -> Verdict:
                if len(notes.seen) == 1:
                    proxy.reset_all()
                return Done(is_duplicate=False)

            notes = BlockingNotes(stop, count=2, judge=judge)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await reader.source(topic, proxy.url(bench.url)).run(notes, stop)
        return [delivery.id for delivery in notes.seen], await reader.left(topic)

    assert asyncio.run(scenario()) == ([f"msg_{topic}_0"] * 2, 0)


@pytest.mark.parametrize("bench", ["nats", "valkey", "kafka"], indirect=True)
def test_a_source_waits_for_its_broker_to_come_back(bench: Bench, topic: str) -> None:
    """RabbitMQ takes seconds to start; its source is cut off above, and finds its way back in the same code."""

    async def scenario() -> list[str | None]:
        reader = reader_of(bench)
        stop = asyncio.Event()
        arrived = asyncio.Event()

        def judge(delivery: Delivery) -> Verdict:
            arrived.set()
            return Done(is_duplicate=False)

        await publish(bench, topic, 1)
        notes = Notes(stop, count=99, judge=judge)
        async with asyncio.timeout(PATIENCE_SECONDS):
            running = asyncio.create_task(reader.source(topic).run(notes, stop))
            await arrived.wait()
            await asyncio.to_thread(bench.restart)
            arrived.clear()
            publisher = bench.publisher()
            last = Message(id=f"msg_{topic}_last", topic=topic, payload=b"", ordering_key="acct_1")
            while await publisher.publish([last]) != [Confirmed()]:
                await publisher.reset()
            await publisher.aclose()
            while notes.seen[-1].id != last.id:
                await arrived.wait()
                arrived.clear()
            stop.set()
            await running
        return [delivery.id for delivery in notes.seen]

    assert set(asyncio.run(scenario())) == {f"msg_{topic}_0", f"msg_{topic}_last"}


def test_a_source_ends_soon_after_it_is_told_to(bench: Bench, topic: str) -> None:
    async def scenario() -> float:
        await bench.prepare(topic)
        stop = asyncio.Event()
        running = asyncio.create_task(reader_of(bench).source(topic).run(Notes(stop, count=1, judge=done), stop))
        await asyncio.sleep(0.3)  # Into the middle of a read, which no event announces.
        started = asyncio.get_running_loop().time()
        stop.set()
        await running
        return asyncio.get_running_loop().time() - started

    assert asyncio.run(scenario()) < 10
