"""Kafka: an idempotent producer, so that retries of the library itself are written once and in order.

What the library gave up on is sent again by a new producer, which the brokers do not know from the old one: consumers
tell the repetition by its id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from nebis.extras import missing
from nebis.messaging.wire import CONTENT_TYPE, LONGEST_STEP_SECONDS, MESSAGE_ID, headers_of, phrase
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown

try:
    from confluent_kafka import KafkaError, KafkaException, Producer
except ImportError as error:
    raise missing("confluent-kafka", extra="kafka") from error

_LOG = logging.getLogger("nebis.kafka")
_POLL_SECONDS = 0.1

# Sending the same again cannot help.
_PERMANENT = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_RECORD,
    }
)
# Known before anything was sent.
_UNSENT = frozenset(
    {
        KafkaError._PURGE_QUEUE,  # noqa: SLF001 - the library names its local errors so.
        KafkaError._QUEUE_FULL,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)


class KafkaPublisher:
    """Publishes to the topic of a message, with its ordering key as the key that chooses the partition.

    A message is confirmed when all in-sync replicas have it. `settings` are those of librdkafka.
    """

    cloudevents_prefix: ClassVar[str] = "ce_"

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        timeout_seconds: float = 2 * LONGEST_STEP_SECONDS,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 5,
            **(settings or {}),
            "acks": "all",
            "enable.idempotence": True,
            "delivery.timeout.ms": int(timeout_seconds * 1000),
        }
        self._producer: Producer | None = None

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        """Send all and wait, on a thread, for the brokers' word on each."""
        return await asyncio.to_thread(self._publish, messages)

    async def reset(self) -> None:
        """Begin a new epoch (F107): the old producer is dropped with all that it still held."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await asyncio.to_thread(_drop, producer)

    async def aclose(self) -> None:
        """Give up the connections; nothing is ever left to be sent between two publishes."""
        await self.reset()

    def _publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        try:
            if self._producer is None:
                self._producer = Producer(self._settings, logger=_LOG)
        except KafkaException as error:
            return [Refused(reason=phrase(error))] * len(messages)
        producer = self._producer
        results: dict[int, PublishResult] = {}
        for number, message in enumerate(messages):
            try:
                producer.produce(
                    message.topic,
                    value=message.payload,
                    key=message.ordering_key,
                    headers=dict(headers_of(message, {MESSAGE_ID: message.id, CONTENT_TYPE: message.content_type})),
                    on_delivery=_noting(results, number),
                )
            except BufferError:
                results[number] = Refused(reason="the producer's queue is full")
            except KafkaException as error:
                results[number] = _result(error.args[0], was_sent=False)
        # The library answers for each within the delivery timeout; a little longer is for its own threads.
        deadline = time.monotonic() + self._timeout_seconds + 1
        while len(results) < len(messages) and time.monotonic() < deadline:
            producer.poll(_POLL_SECONDS)
        return [results.get(number, Unknown(reason="no word from Kafka in time")) for number in range(len(messages))]


def _noting(results: dict[int, PublishResult], number: int) -> Callable[[KafkaError | None, object], None]:
    def note(error: KafkaError | None, _: object) -> None:
        results[number] = Confirmed() if error is None else _result(error, was_sent=True)

    return note


def _result(error: KafkaError, *, was_sent: bool) -> PublishResult:
    reason = f"{error.name()}: {error.str()}"[:200]
    if error.code() in _PERMANENT:
        return Refused(reason=reason, is_permanent=True)
    if not was_sent or error.code() in _UNSENT:
        return Refused(reason=reason)
    return Unknown(reason=reason)


def _drop(producer: Producer) -> None:
    producer.purge(in_queue=True, in_flight=True, blocking=True)
    producer.flush(1)
