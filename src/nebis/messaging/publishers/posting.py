"""One HTTP POST on the standard library's streams: bounded in time and size, to addresses that were looked at first."""

from __future__ import annotations

import asyncio
import email.parser
import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

_LONGEST_HEAD_BYTES = 32_768
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [^\r\n]*)?\r?\n")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class TargetRefused(Exception):
    """A target to which nothing was sent."""


class AnswerBroken(Exception):
    """An answer that is not HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to post to."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> Target:
        """Return the target of a URL; refuse what is none, and passwords, which would end up in logs."""
        try:
            parts: SplitResult = urlsplit(url)
            port = parts.port
        except ValueError:
            raise TargetRefused("the URL of the webhook is malformed; correct it") from None
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise TargetRefused("the URL of the webhook is neither http nor https; correct it")
        if parts.username is not None or parts.password is not None:
            raise TargetRefused("the URL of the webhook holds a password; sign with a secret instead")
        if not parts.hostname.isascii():
            raise TargetRefused("the host in the URL of the webhook is not ASCII; write it as xn--...")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not re.fullmatch(r"[!-~]+", path):
            raise TargetRefused("the URL of the webhook has characters that must be percent-encoded; encode them")
        return cls(scheme=parts.scheme, host=parts.hostname, port=port or _DEFAULT_PORTS[parts.scheme], path=path)

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server said, as far as it matters here."""

    status: int
    headers: Mapping[str, str]
    """With names in lower case."""


class Connection:
    """One connection for one request."""

    def __init__(self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._target = target
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, target: Target, *, tls: ssl.SSLContext, may_be_private: bool) -> Connection:
        """Look the name up once and connect to an address that was looked at: a second lookup could say another."""
        addresses = await _addresses(target)
        if not may_be_private:
            _check_public(addresses)
        last: OSError = OSError("the name has no address")
        for address in addresses:
            try:
                reader, writer = await asyncio.open_connection(
                    address,
                    target.port,
                    limit=_LONGEST_HEAD_BYTES,
                    ssl=tls if target.scheme == "https" else None,
                    server_hostname=target.host if target.scheme == "https" else None,
                )
            except OSError as error:
                last = error
            else:
                return cls(target, reader, writer)
        raise last

    async def post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send the request and read the head of the answer; its body is nobody's business."""
        lines = [
            f"POST {self._target.path} HTTP/1.1",
            f"Host: {self._target.authority}",
            "Connection: close",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._writer.write("\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body)
        try:
            await self._writer.drain()
            while True:
                answer = _parsed(await self._reader.readuntil(b"\r\n\r\n"))
                if answer.status >= 200:
                    return answer
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise AnswerBroken("the connection ended before an answer came") from error

    def close(self) -> None:
        """Drop the connection at once: nothing that may still come matters."""
        self._writer.transport.abort()


async def _addresses(target: Target) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except UnicodeError:  # A name with an empty label, or one longer than names may be.
        raise TargetRefused("the host in the URL of the webhook is no name; correct it") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _check_public(addresses: list[str]) -> None:
    """Refuse a name of which any address is inside: which one is taken would be chance."""
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address):
            # Three ways to write an IPv4 address that an outer check for private ranges does not see.
            teredo = address.teredo
            address = address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None) or address
        if not address.is_global or address.is_multicast:
            raise TargetRefused(
                "the webhook's host is a private address; pass allow_private_targets=True if it is meant to be"
            )


def _parsed(head: bytes) -> Answer:
    status_line, _, rest = head.partition(b"\n")
    match = _STATUS_LINE.fullmatch(status_line + b"\n")
    if match is None:
        raise AnswerBroken("the answer is not HTTP")
    headers = email.parser.BytesHeaderParser().parsebytes(rest)
    return Answer(status=int(match[1]), headers={name.lower(): str(value) for name, value in headers.items()})
