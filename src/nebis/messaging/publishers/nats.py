"""NATS JetStream: the server drops a message whose `Nats-Msg-Id` it has seen within the stream's duplicate window."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from nebis.extras import missing
from nebis.messaging.wire import CONTENT_TYPE, LONGEST_STEP_SECONDS, ORDERING_KEY, headers_of, phrase, refusal_of
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown

try:
    import nats
    import nats.errors
    import nats.js.errors
    from nats.aio.client import Client
    from nats.js.api import Header
except ImportError as error:
    raise missing("nats-py", extra="nats") from error

_TOO_LARGE_FOR_STREAM = 10054


class NatsPublisher:
    """Publishes to the subject that a message's topic names; a stream must take that subject.

    A message is confirmed when the stream acknowledged it. Other settings of the client, such as credentials, are
    passed on as they are.
    """

    cloudevents_prefix: ClassVar[str] = "ce-"

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        stream: str | None = None,
        timeout_seconds: float = LONGEST_STEP_SECONDS,
        **settings: Any,
    ) -> None:
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        self._stream = stream
        self._timeout_seconds = timeout_seconds
        self._settings = settings
        self._client: Client | None = None
        self._lost = asyncio.Event()

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        """Send all at once and wait for the stream's word on each."""
        try:
            client = await self._connected()
        except (OSError, nats.errors.Error) as error:
            return [Refused(reason=f"NATS cannot be reached ({phrase(error)})")] * len(messages)
        sends = [asyncio.create_task(self._send(client, message)) for message in messages]
        lost = asyncio.create_task(_set(self._lost))
        try:
            # The library lets a request wait for its timeout after the connection that would carry the answer is gone.
            await asyncio.wait({asyncio.create_task(_all(sends)), lost}, return_when=asyncio.FIRST_COMPLETED)
            return [send.result() if send.done() else Unknown(reason="the connection was lost") for send in sends]
        finally:
            for task in (*sends, lost):
                task.cancel()

    async def reset(self) -> None:
        """Connect anew, and leave behind what the old connection may still hold back."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(OSError, nats.errors.Error, TimeoutError):
                await asyncio.wait_for(client.close(), self._timeout_seconds)

    async def aclose(self) -> None:
        """Close the connection."""
        await self.reset()

    async def _connected(self) -> Client:
        if self._client is not None and self._client.is_connected:
            return self._client
        await self.reset()
        self._lost = lost = asyncio.Event()

        async def on_closed() -> None:
            lost.set()

        async def on_error(_: Exception) -> None:
            """Keep quiet: what went wrong is in the result of every message."""

        self._client = await asyncio.wait_for(
            nats.connect(
                self._servers,
                **{
                    "connect_timeout": self._timeout_seconds,
                    "reconnect_time_wait": 0,
                    **self._settings,
                    # Each server is dialled twice at most. A client that connects again by itself sends what it held
                    # back long after we have answered that its fate is unknown.
                    "max_reconnect_attempts": 1,
                    "allow_reconnect": False,
                    "closed_cb": on_closed,
                    "error_cb": on_error,
                },
            ),
            self._timeout_seconds,
        )
        return self._client

    async def _send(self, client: Client, message: Message) -> PublishResult:
        headers = headers_of(
            message,
            {Header.MSG_ID: message.id, CONTENT_TYPE: message.content_type, ORDERING_KEY: message.ordering_key},
        )
        if refusal := refusal_of(headers) or _refusal_of_subject(message.topic):
            return refusal
        try:
            await client.jetstream().publish(
                message.topic, message.payload, timeout=self._timeout_seconds, stream=self._stream, headers=headers
            )
        except nats.errors.MaxPayloadError:
            return Refused(reason="the payload is larger than the server takes", is_permanent=True)
        except nats.js.errors.NoStreamResponseError:
            return Refused(reason=f"no stream takes {message.topic!r}; create one, or correct the topic")
        except nats.js.errors.APIError as error:
            return Refused(reason=phrase(error), is_permanent=error.err_code == _TOO_LARGE_FOR_STREAM)
        except (OSError, nats.errors.Error, TimeoutError) as error:
            return Unknown(reason=phrase(error))
        return Confirmed()


async def _all(tasks: Sequence[asyncio.Task[PublishResult]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _refusal_of_subject(topic: str) -> Refused | None:
    tokens = topic.split(".")
    if topic.split() == [topic] and all(token and token not in ("*", ">") for token in tokens):
        return None
    return Refused(reason="the topic is no NATS subject (words joined by dots, no wildcards)", is_permanent=True)
