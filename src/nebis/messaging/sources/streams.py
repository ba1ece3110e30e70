"""A consumer group of a Valkey or Redis stream."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import Any, ClassVar, TypeAlias, assert_never

from nebis.delivery import Delivery, Done, Later, Parked
from nebis.extras import missing
from nebis.messaging.entry import CONTENT_TYPE, ID, ORDERING_KEY, PAYLOAD, headers_in
from nebis.messaging.sources.source import Progress, Source, all_of
from nebis.messaging.wire import DEFAULT_CONTENT_TYPE
from nebis.messaging.wire import ORDERING_KEY as ORDERING_KEY_HEADER

try:
    from redis.asyncio import Redis
    from redis.exceptions import RedisError, ResponseError
except ImportError as error:
    raise missing("redis", extra="redis") from error

Entry: TypeAlias = tuple[bytes, dict[bytes, bytes]]

_BLOCK_SECONDS = 1.0
"""How long one read waits for entries, and so how long it takes to notice that we are to stop."""


class StreamsSource(Source):
    """Reads `stream` for `group`, which is created where it is missing and shared by every process.

    An entry that was not acknowledged, because its reader died or its consumer said later, is taken over by whoever
    sees it first after `redeliver_after_seconds`.
    """

    outages: ClassVar[tuple[type[Exception], ...]] = (OSError, RedisError)

    def __init__(
        self,
        url: str,
        *,
        stream: str,
        group: str,
        reader: str | None = None,
        concurrency: int = 10,
        redeliver_after_seconds: float = 30.0,
        timeout_seconds: float = 5.0,
        **settings: Any,
    ) -> None:
        self._url = url
        self._stream = stream
        self._group = group
        self._reader = reader or f"{socket.gethostname()}:{os.getpid()}"
        self._concurrency = concurrency
        self._redeliver_after_seconds = redeliver_after_seconds
        self._settings = {
            "socket_connect_timeout": timeout_seconds,
            "socket_timeout": timeout_seconds + _BLOCK_SECONDS,
            **settings,
            "decode_responses": False,
        }

    async def _read(self, progress: Progress, stop: asyncio.Event) -> None:
        # Typed loosely: the library's answers depend on the protocol and on settings.
        client: Any = Redis.from_url(self._url, **self._settings)
        try:
            await self._create_group(client)
            claim_at = 0.0
            while not stop.is_set():
                if time.monotonic() >= claim_at:
                    left_behind = await self._claimed(client)
                    await self._handle_all(client, progress, left_behind, redeliveries=None)
                    # A full answer means that there may be more.
                    is_full = len(left_behind) >= self._concurrency
                    claim_at = time.monotonic() + (0 if is_full else self._redeliver_after_seconds / 2)
                entries = await self._next(client)
                await self._handle_all(client, progress, entries, redeliveries=0)
        finally:
            await client.aclose()

    async def _create_group(self, client: Any) -> None:
        try:
            # From the beginning: what was published before the first consumer came is for it too.
            await client.xgroup_create(self._stream, self._group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _claimed(self, client: Any) -> list[Entry]:
        idle_milliseconds = int(self._redeliver_after_seconds * 1000)
        answer = await client.xautoclaim(
            self._stream, self._group, self._reader, idle_milliseconds, start_id="0-0", count=self._concurrency
        )
        # An entry that was trimmed away before anybody read it comes without fields.
        return [(entry_id, fields) for entry_id, fields in answer[1] if fields]

    async def _next(self, client: Any) -> list[Entry]:
        answer = await client.xreadgroup(
            self._group,
            self._reader,
            {self._stream: ">"},
            count=self._concurrency,
            block=int(_BLOCK_SECONDS * 1000),
        )
        streams = answer.items() if isinstance(answer, dict) else answer or ()
        return [entry for _, entries in streams for entry in entries]

    async def _handle_all(
        self, client: Any, progress: Progress, entries: list[Entry], *, redeliveries: int | None
    ) -> None:
        await all_of(self._handle(client, progress, entry, redeliveries) for entry in entries)

    async def _handle(self, client: Any, progress: Progress, entry: Entry, redeliveries: int | None) -> None:
        entry_id, fields = entry
        verdict = await progress.verdict(self._delivery(fields, redeliveries))
        match verdict:
            case Done() | Parked():
                await client.xack(self._stream, self._group, entry_id)
            case Later():
                return  # Still pending, and taken over when it has been idle for long enough.
            case _:
                assert_never(verdict)

    def _delivery(self, fields: dict[bytes, bytes], redeliveries: int | None) -> Delivery:
        headers = headers_in(fields)
        if ORDERING_KEY in fields:
            headers[ORDERING_KEY_HEADER] = fields[ORDERING_KEY]
        return Delivery(
            payload=fields.get(PAYLOAD, b""),
            topic=self._stream,
            id=_text(fields.get(ID)),
            content_type=_text(fields.get(CONTENT_TYPE)) or DEFAULT_CONTENT_TYPE,
            headers=headers,
            redeliveries=redeliveries,
        )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
