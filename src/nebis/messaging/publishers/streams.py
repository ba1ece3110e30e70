"""Valkey and Redis Streams: they do not tell a repetition, so every entry carries its id for the consumer to tell."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from nebis.extras import missing
from nebis.messaging.entry import entry_of
from nebis.messaging.wire import LONGEST_STEP_SECONDS, phrase
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import RedisError, ResponseError
    from redis.exceptions import TimeoutError as RedisTimeoutError
except ImportError as error:
    raise missing("redis", extra="redis") from error

_OUTAGES = (OSError, RedisConnectionError, RedisTimeoutError)


class StreamsPublisher:
    """Appends to the stream that a message's topic names.

    A message is confirmed when the server answered. How much of that survives a crash of the server is decided there
    (`appendfsync always`). With `maximum_length` the oldest entries of a stream give way, read or not.
    """

    cloudevents_prefix: ClassVar[str] = "ce-"

    def __init__(
        self,
        url: str,
        *,
        maximum_length: int | None = None,
        timeout_seconds: float = LONGEST_STEP_SECONDS,
        **settings: Any,
    ) -> None:
        self._maximum_length = maximum_length
        # The library would append once more after a lost answer; the relay does that, and counts it.
        self._client: Redis = Redis.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            **settings,
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
        )

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        """Append all in one round trip, after one that finds out whether the server is there."""
        try:
            # By itself first: what fails here was never sent.
            await self._client.ping()
        except (*_OUTAGES, RedisError) as error:
            return [Refused(reason=f"the server of the streams cannot be reached ({phrase(error)})")] * len(messages)
        pipeline = self._client.pipeline(transaction=False)
        for message in messages:
            pipeline.xadd(message.topic, entry_of(message), maxlen=self._maximum_length, approximate=True)
        try:
            answers = await pipeline.execute(raise_on_error=False)
        except (*_OUTAGES, RedisError) as error:
            return [Unknown(reason=phrase(error))] * len(messages)
        return [_result(answer) for answer in answers]

    async def reset(self) -> None:
        """Leave every connection; the next publish opens one."""
        with suppress(*_OUTAGES, RedisError):
            await self._client.connection_pool.disconnect()

    async def aclose(self) -> None:
        """Close every connection."""
        with suppress(*_OUTAGES, RedisError):
            await self._client.aclose()


def _result(answer: object) -> PublishResult:
    if isinstance(answer, ResponseError):
        return Refused(reason=phrase(answer))
    if isinstance(answer, Exception):
        return Unknown(reason=phrase(answer))
    return Confirmed()
