"""A durable consumer of a NATS JetStream stream, read by pulling."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, assert_never

from nebis.delivery import Delivery, Done, Later, Parked
from nebis.extras import missing
from nebis.messaging.sources.source import Progress, Source, all_of, is_being_cancelled
from nebis.messaging.wire import CONTENT_TYPE, DEFAULT_CONTENT_TYPE

try:
    import nats
    import nats.errors
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js.api import AckPolicy, ConsumerConfig, Header
    from nats.js.client import JetStreamContext
except ImportError as error:
    raise missing("nats-py", extra="nats") from error

_FETCH_SECONDS = 1.0
"""How long one request for messages stands, and so how long it takes to notice that we are to stop."""


class NatsSource(Source):
    """Reads `stream` as the durable consumer `durable`, which is created where missing and shared by every process.

    `in_order` lets only one message be under way at a time, among all processes: the next is delivered when this one
    is acknowledged. To keep order per key and still work in parallel, publish to a few subjects, chosen by the key, and
    read each with a source and a durable consumer of its own.
    """

    outages: ClassVar[tuple[type[Exception], ...]] = (OSError, nats.errors.Error, TimeoutError)

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        stream: str,
        durable: str,
        subject: str | None = None,
        in_order: bool = False,
        concurrency: int = 10,
        redeliver_after_seconds: float = 30.0,
        **settings: Any,
    ) -> None:
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        self._stream = stream
        self._durable = durable
        self._subject = subject
        self._concurrency = 1 if in_order else concurrency
        self._in_order = in_order
        self._redeliver_after_seconds = redeliver_after_seconds
        self._settings = settings

    async def _read(self, progress: Progress, stop: asyncio.Event) -> None:
        client = await self._connected()
        try:
            subscription = await self._subscribed(client.jetstream())
            while not stop.is_set():
                messages = await _fetched(subscription, self._concurrency)
                await all_of(self._handle(progress, message) for message in messages)
                if client.is_closed:
                    raise nats.errors.ConnectionClosedError
        finally:
            with suppress(*self.outages):
                await asyncio.wait_for(client.close(), _FETCH_SECONDS)

    async def _connected(self) -> Client:
        async def on_error(_: Exception) -> None:
            """Keep quiet: what matters is raised by the next fetch."""

        return await nats.connect(
            self._servers,
            **{
                "reconnect_time_wait": 0,
                **self._settings,
                "max_reconnect_attempts": 1,
                "allow_reconnect": False,
                "error_cb": on_error,
            },
        )

    async def _subscribed(self, stream: JetStreamContext) -> JetStreamContext.PullSubscription:
        config = ConsumerConfig(
            durable_name=self._durable,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._redeliver_after_seconds,
            filter_subject=self._subject,
            max_ack_pending=1 if self._in_order else None,
        )
        await stream.add_consumer(self._stream, config)
        return await stream.pull_subscribe_bind(stream=self._stream, durable=self._durable)

    async def _handle(self, progress: Progress, message: Msg) -> None:
        verdict = await progress.verdict(self._delivery(message))
        match verdict:
            case Done() | Parked():
                await message.ack()
            case Later():
                await message.nak(delay=verdict.after_seconds)
            case _:
                assert_never(verdict)

    def _delivery(self, message: Msg) -> Delivery:
        headers = message.headers or {}
        metadata = message.metadata
        # Where only some subjects are read, the numbers of the stream have gaps that mean nothing.
        is_whole = self._subject is None
        return Delivery(
            payload=message.data,
            topic=message.subject,
            id=headers.get(Header.MSG_ID) or headers.get("ce-id"),
            content_type=headers.get(CONTENT_TYPE, DEFAULT_CONTENT_TYPE),
            headers=headers,
            partition=metadata.stream if is_whole else None,
            offset=metadata.sequence.stream if is_whole else None,
            redeliveries=metadata.num_delivered - 1,
        )


async def _fetched(subscription: JetStreamContext.PullSubscription, limit: int) -> list[Msg]:
    try:
        return await subscription.fetch(limit, timeout=_FETCH_SECONDS)
    except nats.errors.TimeoutError:
        return []
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise
        raise nats.errors.ConnectionClosedError from None
