"""A process of HTTP clients: each keeps one connection, and sends the next request when it has its answer."""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any, cast

from benchmarks.load import REPLAYED_KEYS, Tally, keys_for
from benchmarks.web import KEY_HEADER, PATH, REQUEST_BODY
from benchmarks.worker import answered, run_loop, say

_HEAD = (
    f"POST {PATH} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    f"content-length: {len(REQUEST_BODY)}\r\n{KEY_HEADER}: "
).encode()
_TAIL = b"\r\n\r\n" + REQUEST_BODY


class Client(asyncio.Protocol):
    """One connection. It reads only what it needs to know that an answer is whole."""

    def __init__(self, keys: Iterator[str], tally: Tally, *, deadline: float) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keys = keys
        self._tally = tally
        self._deadline = deadline
        self._received = b""
        self._sent_at = 0.0
        self._begun_at = time.perf_counter()
        self._answers = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or not _is_whole(head.lower(), body):
            return
        now = time.perf_counter()
        status = self._received[9:12]
        if status == b"200":
            self._answers += 1
            self._tally.seconds.append(now - self._sent_at)
        else:
            self._tally.failures.append(f"{status.decode()} {body[:80]!r}")
        self._received = b""
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self._tally.failures.append(f"connection lost: {error}")
            self.ended.set_result(None)

    def _send(self) -> None:
        assert self._transport is not None
        self._sent_at = time.perf_counter()
        key = next(self._keys, None) if self._sent_at < self._deadline else None
        if key is None:
            self._tally.end(self._answers, self._sent_at - self._begun_at)
            self.ended.set_result(None)
            self._transport.close()
        else:
            self._transport.write(_HEAD + key.encode() + _TAIL)


def _is_whole(head: bytes, body: bytes) -> bool:
    _, found, rest = head.partition(b"content-length:")
    if found:
        return len(body) >= int(rest.partition(b"\r\n")[0])
    return body.endswith(b"0\r\n\r\n")


async def _load(port: int, keys: Iterator[str], *, callers: int, seconds: float) -> dict[str, Any]:
    loop, tally = asyncio.get_running_loop(), Tally()
    deadline = time.perf_counter() + seconds
    clients: list[Client] = []
    for _ in range(callers):
        _, client = await loop.create_connection(lambda: Client(keys, tally, deadline=deadline), "127.0.0.1", port)
        clients.append(client)
    await asyncio.gather(*(client.ended for client in clients))
    return tally.sample().as_dict()


async def serve() -> None:
    """Load whichever port each line names, with new keys or with keys that were completed before."""
    known: dict[int, list[str]] = {}
    say({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        port, callers, seconds = order["port"], order["callers"], order["seconds"]
        if order["case"] == "replay" and port not in known:
            known[port] = [str(uuid.uuid4()) for _ in range(REPLAYED_KEYS)]
            await _load(port, iter(known[port]), callers=16, seconds=60)
        keys = keys_for(order["case"], known.get(port, ()), seconds=seconds)
        say(await answered(_load(port, keys, callers=callers, seconds=seconds)))


if __name__ == "__main__":
    run_loop(serve())
