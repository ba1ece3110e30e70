"""RabbitMQ: persistent messages, confirmed by the broker, and returned by it where no queue takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from nebis.extras import missing
from nebis.messaging.wire import LONGEST_STEP_SECONDS, ORDERING_KEY, headers_of, phrase
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown

try:
    import aio_pika
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
    from aio_pika.exceptions import AMQPError, DeliveryError, PublishError
except ImportError as error:
    raise missing("aio-pika", extra="rabbitmq") from error

# The protocol counts these in one byte.
_LONGEST_SHORT_STRING_BYTES = 255

_OUTAGES = (OSError, AMQPError, TimeoutError, RuntimeError)
"""The library raises RuntimeError where a connection closed under an operation."""


class RabbitPublisher:
    """Publishes to an exchange with the topic as routing key; the default exchange takes it for the name of a queue.

    A message is confirmed when every queue that takes it has it on disk. One that no queue takes is refused.
    """

    cloudevents_prefix: ClassVar[str] = "cloudEvents_"

    def __init__(
        self, url: str, *, exchange: str = "", timeout_seconds: float = LONGEST_STEP_SECONDS, **settings: Any
    ) -> None:
        self._url = url
        self._exchange_name = exchange
        self._timeout_seconds = timeout_seconds
        self._settings = settings
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._exchange: AbstractExchange | None = None

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        """Send all on one channel and wait for the broker's word on each."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                exchange = await self._opened()
        except _OUTAGES as error:
            return [Refused(reason=f"RabbitMQ cannot be used ({phrase(error)})")] * len(messages)
        return await asyncio.gather(*(self._send(exchange, message) for message in messages))

    async def reset(self) -> None:
        """Connect anew: a channel forgets what it had not confirmed."""
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            with suppress(*_OUTAGES):
                await asyncio.wait_for(connection.close(), self._timeout_seconds)

    async def aclose(self) -> None:
        """Close the connection."""
        await self.reset()

    async def _opened(self) -> AbstractExchange:
        if self._exchange is not None and self._channel is not None and not self._channel.is_closed:
            return self._exchange
        await self.reset()
        # Not the connection that repairs itself: it publishes again on its own, and nobody counts that.
        self._connection = await aio_pika.connect(self._url, **self._settings)
        self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        if self._exchange_name:
            self._exchange = await self._channel.get_exchange(self._exchange_name)
        else:
            self._exchange = self._channel.default_exchange
        return self._exchange

    async def _send(self, exchange: AbstractExchange, message: Message) -> PublishResult:
        for what, text in (("topic", message.topic), ("id", message.id), ("content type", message.content_type)):
            if len(text.encode()) > _LONGEST_SHORT_STRING_BYTES:
                return Refused(reason=f"the {what} is longer than 255 bytes", is_permanent=True)
        envelope = aio_pika.Message(
            message.payload,
            message_id=message.id,
            content_type=message.content_type,
            headers=dict(headers_of(message, {ORDERING_KEY: message.ordering_key})),
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        try:
            await exchange.publish(envelope, message.topic, mandatory=True, timeout=self._timeout_seconds)
        except PublishError:
            return Refused(reason=f"no queue takes {message.topic!r}; bind one, or correct the topic")
        except DeliveryError as error:
            return Refused(reason=phrase(error))
        except (*_OUTAGES, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            return Unknown(reason=phrase(error))
        return Confirmed()


def _is_cancelled() -> bool:
    """Tell the end of this task from that of a future which the library cancelled with its connection."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
