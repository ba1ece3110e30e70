"""A consumer group of Kafka topics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, assert_never

from nebis.delivery import Delivery, Done, Later, Parked
from nebis.extras import missing
from nebis.messaging.sources.source import Progress, Source
from nebis.messaging.wire import CONTENT_TYPE, DEFAULT_CONTENT_TYPE, MESSAGE_ID, ORDERING_KEY

try:
    from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
except ImportError as error:
    raise missing("confluent-kafka", extra="kafka") from error

_LOG = logging.getLogger("nebis.kafka")
_POLL_SECONDS = 0.2


class KafkaSource(Source):
    """Reads `topics` as the group `group`, each partition in order.

    The offset of a message is committed after it was handled. A message whose time has not come holds up its partition,
    and no other. `settings` are those of librdkafka.
    """

    outages: ClassVar[tuple[type[Exception], ...]] = (KafkaException,)

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topics: Sequence[str],
        group: str,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._topics = list(topics)
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            # What was published before the first consumer came is for it too.
            "auto.offset.reset": "earliest",
            **(settings or {}),
            "group.id": group,
            "enable.auto.commit": False,
        }

    async def _read(self, progress: Progress, stop: asyncio.Event) -> None:
        consumer = Consumer(self._settings, logger=_LOG)
        try:
            await asyncio.to_thread(consumer.subscribe, self._topics)
            reading = _Reading(consumer, progress)
            while not stop.is_set():
                reading.resume_due()
                message = await asyncio.to_thread(consumer.poll, _POLL_SECONDS)
                if message is not None:
                    await reading.handle(message)
        finally:
            await asyncio.to_thread(consumer.close)


class _Reading:
    """The partitions of one consumer, and those that wait."""

    def __init__(self, consumer: Consumer, progress: Progress) -> None:
        self._consumer = consumer
        self._progress = progress
        self._paused: list[tuple[float, TopicPartition]] = []

    def resume_due(self) -> None:
        now = time.monotonic()
        for due, partition in self._paused:
            if due <= now:
                self._resume(partition)
        self._paused = [(due, partition) for due, partition in self._paused if due > now]

    async def handle(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise KafkaException(error)
            _LOG.info("%s", error.str())  # The library repairs these by itself.
            return
        verdict = await self._progress.verdict(_delivery(message))
        match verdict:
            case Done() | Parked():
                self._commit(message)
            case Later():
                self._pause(message, verdict.after_seconds)
            case _:
                assert_never(verdict)

    def _commit(self, message: Message) -> None:
        try:
            # Without waiting: a commit that gets lost means a message delivered again, which its consumer knows.
            self._consumer.commit(message=message, asynchronous=True)
        except KafkaException as error:
            _LOG.info("%s", error)

    def _pause(self, message: Message, after_seconds: float) -> None:
        partition = TopicPartition(message.topic() or "", message.partition() or 0, message.offset() or 0)
        try:
            self._consumer.pause([partition])
            self._consumer.seek(partition)
        except KafkaException as error:
            _LOG.info("%s", error)  # Another member of the group has the partition now, and starts at this message.
        else:
            self._paused.append((time.monotonic() + after_seconds, partition))

    def _resume(self, partition: TopicPartition) -> None:
        try:
            self._consumer.resume([partition])
        except KafkaException as error:
            _LOG.info("%s", error)


def _delivery(message: Message) -> Delivery:
    # As pairs, which the library's types do not say; the last of a name counts.
    wire: Any = message.headers() or []
    headers: dict[str, str | bytes] = {name: value or b"" for name, value in wire}
    key: Any = message.key()
    if key is not None:
        headers.setdefault(ORDERING_KEY, key)
    return Delivery(
        payload=bytes(message.value() or b""),
        topic=message.topic() or "",
        id=_text(headers.get(MESSAGE_ID)) or _text(headers.get("ce_id")),
        content_type=_text(headers.get(CONTENT_TYPE)) or _text(headers.get("content-type")) or DEFAULT_CONTENT_TYPE,
        headers=headers,
        partition=str(message.partition()),
        offset=message.offset(),
    )


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
