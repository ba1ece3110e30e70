"""A client that sends exactly the bytes it is told, as slowly as it is told, and hangs up when it is told."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

LARGEST_ANSWER_BYTES: Final = 32 * 1024 * 1024
_LONGEST_LINE_BYTES: Final = 64 * 1024
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: closing sends RST instead of FIN."""


class NoAnswer(Exception):
    """The server did not answer; the message says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens, and below which path."""

    host: str
    port: int
    is_encrypted: bool = False
    base: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read an http or https URL; raise `ValueError` that says what is wrong with it."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not a URL such as http://127.0.0.1:8000")
        is_encrypted = parts.scheme == "https"
        port = parts.port or (443 if is_encrypted else 80)
        return cls(host=parts.hostname, port=port, is_encrypted=is_encrypted, base=parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """Return host and port as a Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_encrypted else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Return it as people write it."""
        return f"{'https' if self.is_encrypted else 'http'}://{self.authority}{self.base}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be sent."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)
    is_chunked: bool = False

    def adding(self, *headers: tuple[str, str]) -> Request:
        """Return the same request with more headers."""
        return replace(self, headers=(*self.headers, *headers))

    def rendered(self, address: Address, *, keeps_open: bool = False) -> tuple[bytes, bytes]:
        """Return head and body as they go over the wire; a value may hold any byte, as latin-1."""
        lines = [f"{self.method} {address.base}{self.path} HTTP/1.1", f"Host: {address.authority}"]
        lines.append(f"Connection: {'keep-alive' if keeps_open else 'close'}")
        lines.extend(f"{name}: {value}" for name, value in self.headers)
        if self.is_chunked:
            lines.append("Transfer-Encoding: chunked")
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(self.body), self.body)
        else:
            body = self.body
            if body or self.method not in ("GET", "HEAD"):
                lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1"), body


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer as it came over the wire."""

    status: int
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str | None:
        """Return the first value of a header, or None."""
        return next((value for given, value in self.headers if given.lower() == name.lower()), None)

    def json(self) -> Any:
        """Return the body as JSON; raise `ValueError` if it is none."""
        return json.loads(self.body)

    def holds(self, text: str) -> bool:
        """Tell whether the text stands anywhere in it, headers included."""
        told = text.encode()
        return told in self.body or any(text in name or text in value for name, value in self.headers)


class Connection:
    """One connection, for one request after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address) -> None:
        self._reader = reader
        self._writer = writer
        self._address = address
        self.is_open = True
        """Whether the server lets another request follow on this connection."""

    async def send(self, request: Request, *, keeps_open: bool = False) -> None:
        """Send a whole request."""
        await self.send_bytes(b"".join(request.rendered(self._address, keeps_open=keeps_open)))

    async def send_bytes(self, data: bytes) -> None:
        """Send exactly that. A server that stopped reading is no error: it may have answered already."""
        with suppress(OSError):
            self._writer.write(data)
            await self._writer.drain()

    def end_sending(self) -> None:
        """Say that nothing follows, and go on listening."""
        with suppress(OSError):
            self._writer.write_eof()

    async def read(self) -> Reply:
        """Read one answer to its end; raise `NoAnswer` if there is none."""
        try:
            return await self._read()
        except (OSError, EOFError, ssl.SSLError) as error:
            raise NoAnswer("the server closed the connection without a whole answer") from error
        except (ValueError, asyncio.LimitOverrunError) as error:
            raise NoAnswer(f"the server answered with something that is not HTTP: {error}") from error

    async def read_some(self, count: int) -> bytes:
        """Read the beginning of an answer."""
        with suppress(OSError):
            return await self._reader.read(count)
        return b""

    async def drain(self) -> None:
        """Read until the server hangs up, so that it is known to have seen the end."""
        while await self.read_some(4096):
            pass

    def reset(self) -> None:
        """Hang up without a good-bye."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with suppress(OSError, ssl.SSLError):
            await self._writer.wait_closed()

    async def _read(self) -> Reply:
        status = 100
        while status < 200:
            version, _, rest = (await self._line()).partition(" ")
            if not version.startswith("HTTP/1."):
                raise ValueError("its first line is no status line")
            status = int(rest[:3])
            headers = [header async for header in self._headers()]
        reply = Reply(status=status, headers=tuple(headers))
        told = (reply.header("connection") or "").lower()
        self.is_open = told == "keep-alive" if version == "HTTP/1.0" else told != "close"
        return replace(reply, body=await self._body(reply))

    async def _line(self) -> str:
        line = await self._reader.readuntil(b"\n")
        return line.rstrip(b"\r\n").decode("latin-1")

    async def _headers(self) -> AsyncIterator[tuple[str, str]]:
        while line := await self._line():
            name, _, value = line.partition(":")
            yield name.strip(), value.strip()

    async def _body(self, reply: Reply) -> bytes:
        if reply.status in (204, 304):
            return b""
        if "chunked" in (reply.header("transfer-encoding") or "").lower():
            return await self._chunks()
        length = reply.header("content-length")
        if length is None:
            self.is_open = False
            return await self._reader.read(LARGEST_ANSWER_BYTES)
        if not 0 <= int(length) <= LARGEST_ANSWER_BYTES:
            raise ValueError(f"its body would have {length} bytes")
        return await self._reader.readexactly(int(length))

    async def _chunks(self) -> bytes:
        body = bytearray()
        while size := int((await self._line()).partition(";")[0], 16):
            if len(body) + size > LARGEST_ANSWER_BYTES:
                raise ValueError("its body does not end")
            body += await self._reader.readexactly(size)
            await self._line()
        while await self._line():
            pass
        return bytes(body)


@asynccontextmanager
async def connected(address: Address, *, within_seconds: float) -> AsyncIterator[Connection]:
    """Open a connection for as long as the block runs; raise `NoAnswer` if nobody listens."""
    context = ssl.create_default_context() if address.is_encrypted else None
    try:
        async with asyncio.timeout(within_seconds):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, limit=_LONGEST_LINE_BYTES
            )
    except TimeoutError:
        raise NoAnswer(f"no connection within {within_seconds:g} s") from None
    except OSError as error:
        raise NoAnswer(f"no connection: {error.strerror or error}") from error
    connection = Connection(reader, writer, address)
    try:
        yield connection
    finally:
        await connection.close()


async def exchange(address: Address, request: Request, *, within_seconds: float) -> Reply:
    """Send one request on a connection of its own and read its answer; raise `NoAnswer` if there is none."""
    async with connected(address, within_seconds=within_seconds) as connection:
        try:
            async with asyncio.timeout(within_seconds):
                await connection.send(request)
                return await connection.read()
        except TimeoutError:
            raise NoAnswer(f"no answer within {within_seconds:g} s") from None
