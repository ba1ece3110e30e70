"""A receiver of webhooks: a real HTTP server that notes what came and answers as it is told."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

STALL_SECONDS = 30
"""Longer than any publisher here waits; the end of the test ends it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What to answer with."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


HANG_UP = Reply(status=0)
"""Read the request and close the connection."""
STALL = Reply(status=-1)
"""Read the request and say nothing."""
DRIP = Reply(status=-2)
"""Send one byte of the answer at a time, for ever."""
GARBAGE = Reply(status=-3)
"""Answer with something that is not HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        """Return every value of a header."""
        return [value for other, value in self.headers if other.lower() == name.lower()]


class Receiver:
    """What has come, and what to answer to the next ones; 200 when nothing is said."""

    def __init__(self, port: int, ended: threading.Event) -> None:
        self.url = f"http://127.0.0.1:{port}/hooks"
        self.received: list[Received] = []
        self.replies: SimpleQueue[Reply] = SimpleQueue()
        self.ended = ended

    def answer(self, *replies: Reply) -> None:
        for reply in replies:
            self.replies.put(reply)

    @property
    def keys(self) -> list[str]:
        """The Idempotency-Key of each request."""
        return [value for request in self.received for value in request.values("Idempotency-Key")]


class _Handler(BaseHTTPRequestHandler):
    receiver: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.receiver.received.append(Received(path=self.path, headers=self.headers.items(), body=body))
        reply = Reply() if self.receiver.replies.empty() else self.receiver.replies.get()
        self.close_connection = True
        if reply is STALL:
            self.receiver.ended.wait(STALL_SECONDS)
        elif reply is DRIP:
            self._drip()
        elif reply is GARBAGE:
            self.wfile.write(b"SMTP 250 OK\r\n\r\n")
        elif reply is not HANG_UP:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()

    def _drip(self) -> None:
        try:
            while not self.receiver.ended.wait(0.05):
                self.wfile.write(b"H")
                self.wfile.flush()
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        """Say nothing: what came is in `received`."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    ended = threading.Event()

    class Handler(_Handler):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.receiver = receiver = Receiver(server.server_port, ended)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
