"""A client that sends exactly the bytes it is told, also those that no library would."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came over the wire."""

    status: int
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the one value of a header, or None."""
        found = [value for given, value in self.headers if given.lower() == name.lower()]
        assert len(found) <= 1, f"{name} came {len(found)} times"
        return found[0] if found else None

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Return the code of a problem, having checked that it is one."""
        assert self.header("content-type") == "application/problem+json", self
        assert self.header("cache-control") == "no-store"
        problem = self.json()
        assert problem["status"] == self.status
        return str(problem["type"]).rpartition(":")[2]

    @property
    def is_replay(self) -> bool:
        """Tell whether the answer says that it was given before."""
        return self.header("idempotency-replayed") == "true"


@dataclass(frozen=True, slots=True)
class Client:
    """One caller of a service; each request has a connection of its own."""

    address: tuple[str, int]
    caller: str | None = "acct-1"

    def post(
        self,
        path: str,
        command: object = None,
        *,
        key: str | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        headers: Sequence[tuple[str, str]] = (),
        query: str = "",
        method: str = "POST",
    ) -> Reply:
        """Send one request and read its answer."""
        raw = json.dumps(command).encode() if body is None else body
        with self.connect() as connection:
            connection.sendall(
                self.request(method, path + query, raw, key=key, content_type=content_type, headers=headers)
            )
            return read(connection)

    def get(self, path: str) -> Reply:
        """Read a resource."""
        return self.post(path, body=b"", method="GET")

    def connect(self) -> socket.socket:
        """Open a connection."""
        connection = socket.create_connection(self.address, timeout=TIMEOUT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def request(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        key: str | None,
        content_type: str = "application/json",
        headers: Sequence[tuple[str, str]] = (),
        is_chunked: bool = False,
    ) -> bytes:
        """Write a request down as it goes over the wire."""
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        if self.caller is not None:
            lines.append(f"Authorization: Bearer {self.caller}")
        if key is not None:
            lines.append(f"Idempotency-Key: {key}")
        if content_type:
            lines.append(f"Content-Type: {content_type}")
        lines.append("Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}")
        lines.extend(f"{name}: {value}" for name, value in headers)
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Line:
    """One connection that is kept open over many requests, each of another caller."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS)

    def post(self, path: str, command: object, *, key: str, caller: str) -> Reply:
        """Send one request and read its answer."""
        headers = {"Authorization": f"Bearer {caller}", "Idempotency-Key": key, "Content-Type": "application/json"}
        self._connection.request("POST", path, json.dumps(command).encode(), headers)
        response = self._connection.getresponse()
        return Reply(status=response.status, headers=tuple(response.getheaders()), body=response.read())

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def read(connection: socket.socket) -> Reply:
    """Read one answer to its end."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    with response:
        return Reply(status=response.status, headers=tuple(response.getheaders()), body=response.read())


def new_key() -> str:
    """Make a key that no other request of this run has."""
    return str(uuid4())
