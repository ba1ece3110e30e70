"""A TCP proxy in front of a server, which delays, swallows or cuts what passes through it."""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")

_CHUNK_BYTES = 65536
_LONGEST_PATTERN = 64
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class FaultProxy:
    """A proxy on a free port of the loopback interface, with a thread and an event loop of its own.

    Faults may be switched from any thread. A pattern cuts once: `was_cut` is set, and whoever comes back is served.
    """

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._links: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.latency_seconds = 0.0
        self.cut_before: bytes | None = None
        """Cut when the client sends this; the server never sees it."""
        self.cut_reply_after: bytes | None = None
        """Let the server see this and cut when its reply comes; the client never sees that."""
        self.swallow_at: bytes | None = None
        """Swallow from the moment at which the client sends this, this included."""
        self.was_cut = threading.Event()
        self.was_swallowed = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    @classmethod
    def before(cls, url: str) -> Self:
        """Return a proxy for the server of this URL."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        return cls(parts.hostname, parts.port)

    def url(self, url: str) -> str:
        """Return the same URL by way of this proxy."""
        parts = urlsplit(url)
        userinfo, separator, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{userinfo}{separator}127.0.0.1:{self.port}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def swallow(self) -> None:
        """Pass nothing on, in either direction, and keep the connections open."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def flow(self) -> None:
        """Pass everything on again, also what was held back."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    def swallow_now(self) -> None:
        """Swallow, from within the loop."""
        self._flowing.clear()
        self.was_swallowed.set()

    def reset_all(self) -> None:
        """Reset every connection, in both directions."""
        self._call(self._reset_all())

    def refuse(self) -> None:
        """Accept no more connections."""
        self._call(self._refuse())

    def close(self) -> None:
        """Reset every connection and end the proxy."""
        self.refuse()
        self.reset_all()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _refuse(self) -> None:
        self._server.close()

    async def _reset_all(self) -> None:
        tasks = list(self._links)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = (client,)
        try:
            server_reader, server = await asyncio.open_connection(*self._upstream)
            self._links[task] = (client, server)
            link = _Link(self, client, server)
            await asyncio.gather(link.pump_to_server(client_reader), link.pump_to_client(server_reader))
        except (OSError, asyncio.CancelledError, _CutError):
            pass
        finally:
            for writer in self._links.pop(task):
                _reset(writer)

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        """Write with whatever fault is switched on."""
        if self.latency_seconds:
            await asyncio.sleep(self.latency_seconds)
        await self._flowing.wait()
        writer.write(data)
        await writer.drain()


class _CutError(Exception):
    """The end of a connection by a pattern."""


class _Link:
    """One client's way to the server and back."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._seen = b""
        self._is_marked = False

    async def pump_to_server(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            # What came before is kept, because a pattern may be split between two reads.
            self._seen = self._seen[-_LONGEST_PATTERN:] + data
            if self._contains(self._proxy.cut_before):
                self._proxy.cut_before = None
                self._cut()
            if self._contains(self._proxy.cut_reply_after):
                self._proxy.cut_reply_after = None
                self._is_marked = True
            if self._contains(self._proxy.swallow_at):
                self._proxy.swallow_at = None
                self._proxy.swallow_now()
            await self._proxy.pass_on(data, self._server)
        with suppress(OSError):
            self._server.write_eof()

    async def pump_to_client(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if self._is_marked:
                self._cut()
            await self._proxy.pass_on(data, self._client)
        with suppress(OSError):
            self._client.write_eof()

    def _contains(self, pattern: bytes | None) -> bool:
        return pattern is not None and pattern in self._seen

    def _cut(self) -> None:
        self._proxy.was_cut.set()
        raise _CutError


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None and not writer.transport.is_closing():
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
