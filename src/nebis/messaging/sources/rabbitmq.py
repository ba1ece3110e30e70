"""A queue of RabbitMQ."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, ClassVar, assert_never

from nebis.delivery import Delivery, Done, Later, Parked
from nebis.extras import missing
from nebis.messaging.sources.source import Progress, Source, wait
from nebis.messaging.wire import DEFAULT_CONTENT_TYPE

try:
    import aio_pika
    from aio_pika.abc import AbstractIncomingMessage
    from aio_pika.exceptions import AMQPError, ChannelInvalidStateError
except ImportError as error:
    raise missing("aio-pika", extra="rabbitmq") from error

_LONGEST_HOLD_SECONDS = 60.0
"""A broker takes a message back from a consumer that holds it for half an hour."""


class RabbitSource(Source):
    """Reads `queue`, which must exist, at most `concurrency` messages at a time.

    The protocol has no delay of its own: a message whose time has not come is held here for it, and then goes back to
    the head of its queue. With a `concurrency` of one and a single active consumer the queue's order is kept.
    """

    outages: ClassVar[tuple[type[Exception], ...]] = (OSError, AMQPError, ChannelInvalidStateError, TimeoutError)

    def __init__(self, url: str, *, queue: str, concurrency: int = 10, timeout_seconds: float = 10.0) -> None:
        self._url = url
        self._queue = queue
        self._concurrency = concurrency
        self._timeout_seconds = timeout_seconds

    async def _read(self, progress: Progress, stop: asyncio.Event) -> None:
        async with asyncio.timeout(self._timeout_seconds):
            connection = await aio_pika.connect(self._url)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                channel = await connection.channel()
                await channel.set_qos(prefetch_count=self._concurrency)
                queue = await channel.get_queue(self._queue)
                reading = _Reading(progress, stop)
                tag = await queue.consume(reading.take)
            endings: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(stop.wait()),
                asyncio.ensure_future(channel.closed()),
                reading.failed,
            ]
            try:
                await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
                if not channel.is_closed:
                    await queue.cancel(tag, timeout=self._timeout_seconds)
                await reading.finish()
            finally:
                for ending in endings:
                    ending.cancel()
            if not stop.is_set():
                raise ConnectionError("the channel was closed")
        finally:
            with suppress(*self.outages):
                await asyncio.wait_for(connection.close(), self._timeout_seconds)


class _Reading:
    """The messages of one channel that are under way."""

    def __init__(self, progress: Progress, stop: asyncio.Event) -> None:
        self._progress = progress
        self._stop = stop
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def take(self, message: AbstractIncomingMessage) -> None:
        task = asyncio.create_task(self._handle(message))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def finish(self) -> None:
        """Wait for what is under way, and raise what a consumer raised."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.failed.done():
            self.failed.result()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _handle(self, message: AbstractIncomingMessage) -> None:
        verdict = await self._progress.verdict(_delivery(message))
        match verdict:
            case Done() | Parked():
                await message.ack()
            case Later():
                await wait(self._stop, min(verdict.after_seconds, _LONGEST_HOLD_SECONDS))
                await message.nack(requeue=True)
            case _:
                assert_never(verdict)


def _delivery(message: AbstractIncomingMessage) -> Delivery:
    count = message.headers.get("x-delivery-count")
    if not isinstance(count, int):  # Only quorum queues count.
        count = None if message.redelivered else 0
    return Delivery(
        payload=message.body,
        topic=message.routing_key or "",
        id=message.message_id,
        content_type=message.content_type or DEFAULT_CONTENT_TYPE,
        headers={name: _header(value) for name, value in message.headers.items()},
        redeliveries=count,
    )


def _header(value: Any) -> str | bytes:
    """Return a value of the protocol's many types as text."""
    return value if isinstance(value, str | bytes) else str(value)
