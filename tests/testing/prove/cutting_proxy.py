"""A proxy that knows where one protocol message of PostgreSQL ends and the next begins, and cuts between two."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_CHUNK_BYTES = 65536
_REQUESTS_FOR_ENCRYPTION = (80877103, 80877104)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Direction(StrEnum):
    """Which way a message goes."""

    THERE = "to the server"
    BACK = "to the client"


class CuttingProxy:
    """Counts messages from `arm` on, over all connections, and resets them all after one of these."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._parts = parts
        self._upstream = (parts.hostname or "", parts.port or 0)
        self._turn = threading.Lock()
        self._counted = dict.fromkeys(Direction, 0)
        self._cut_at: tuple[Direction, int] | None = None
        self._sockets: set[socket.socket] = set()
        self.was_cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="cutting-proxy", daemon=True).start()

    @property
    def url(self) -> str:
        """The same database, by way of this proxy."""
        userinfo, separator, _ = self._parts.netloc.rpartition("@")
        return urlunsplit(self._parts._replace(netloc=f"{userinfo}{separator}127.0.0.1:{self.port}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self._reset_all()

    def arm(self, direction: Direction | None = None, number: int = 0) -> None:
        """Count from one again, and cut after that many messages in a direction, if one is named."""
        with self._turn:
            self._counted = dict.fromkeys(Direction, 0)
            self._cut_at = None if direction is None else (direction, number)
            self.was_cut.clear()

    def counted(self) -> dict[Direction, int]:
        """Return how many messages passed since `arm`."""
        with self._turn:
            return dict(self._counted)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
            except OSError:
                return
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._turn:
                self._sockets |= {client, server}
            framing = _Framing()
            for direction, source, target in (
                (Direction.THERE, client, server),
                (Direction.BACK, server, client),
            ):
                pump = threading.Thread(target=self._pump, args=(direction, source, target, framing), daemon=True)
                pump.start()

    def _pump(self, direction: Direction, source: socket.socket, target: socket.socket, framing: "_Framing") -> None:
        try:
            while data := source.recv(_CHUNK_BYTES):
                for message in framing.messages(direction, data):
                    target.sendall(message)
                    if self._is_the_one(direction):
                        self._reset_all()
                        return
        except OSError:
            pass
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _is_the_one(self, direction: Direction) -> bool:
        with self._turn:
            self._counted[direction] += 1
            if self._cut_at != (direction, self._counted[direction]):
                return False
            self._cut_at = None
            self.was_cut.set()
            return True

    def _reset_all(self) -> None:
        """Reset every connection, so that nobody hears anything any more."""
        with self._turn:
            sockets, self._sockets = self._sockets, set()
        for each in sockets:
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class _Framing:
    """Where messages end, on one connection: by their length, but for the first ones."""

    def __init__(self) -> None:
        self._rest = dict.fromkeys(Direction, b"")
        self._is_started = False
        self._bare_answers = 0
        """Single bytes that the server still has to answer to requests for encryption."""

    def messages(self, direction: Direction, data: bytes) -> Iterator[bytes]:
        """Yield every message that is complete now."""
        rest = self._rest[direction] + data
        while size := self._size(direction, rest):
            if len(rest) < size:
                break
            message, rest = rest[:size], rest[size:]
            if direction is Direction.THERE and not self._is_started:
                self._note_start(message)
            yield message
        self._rest[direction] = rest

    def _size(self, direction: Direction, rest: bytes) -> int:
        if not rest:
            return 0
        if direction is Direction.BACK and self._bare_answers:
            self._bare_answers -= 1
            return 1
        header = 0 if direction is Direction.THERE and not self._is_started else 1
        if len(rest) < header + 4:
            return 0
        length: int = struct.unpack_from("!i", rest, header)[0]
        return header + length

    def _note_start(self, message: bytes) -> None:
        code: int = struct.unpack_from("!i", message, 4)[0]
        if code in _REQUESTS_FOR_ENCRYPTION:
            self._bare_answers += 1
        else:
            self._is_started = True
