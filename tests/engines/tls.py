"""A front that speaks TLS before a PostgreSQL server whose build cannot."""

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_PAIR = Path(__file__).with_name("front.pem")
_SSL_REQUEST_BYTES = 8
_CHUNK_BYTES = 65536


class TlsFront:
    """Answers the server's side of an SSLRequest, and passes everything behind it on to the server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self._parts, self._server_port, self._port = parts, parts.port, 0
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(_PAIR)
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="tls-front", daemon=True)
        self.connections = 0
        """How many were encrypted so far."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    @property
    def url(self) -> str:
        """The URL that asks for TLS."""
        netloc = f"{self._parts.username}@127.0.0.1:{self._port}"
        return urlunsplit(self._parts._replace(netloc=netloc, query="sslmode=require"))

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        self._ended = asyncio.Event()
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        async with server:
            await self._ended.wait()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(_SSL_REQUEST_BYTES)
        writer.write(b"S")
        await writer.start_tls(self._context)
        self.connections += 1
        behind, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        await asyncio.gather(_pump(reader, to_server), _pump(behind, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # A connection may be cut at any moment, and then the other half is cut too.
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()
