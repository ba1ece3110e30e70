"""The body of a request: read under a cap, to its clean end, and parsed without guessing."""

from __future__ import annotations

from nebis.core.strictjson import Json, parse
from nebis.errors import BodyTooLarge
from nebis.http.headers import HeaderPairs, is_json


class BodyBuffer:
    """A body while it arrives; it holds no more than its cap (F079)."""

    __slots__ = ("_chunks", "_size", "is_whole", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.is_whole = False
        """Set at the clean end only: a key is never bound to a part of a command (F081)."""
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes, *, is_last: bool) -> None:
        """Take what arrived, or raise `BodyTooLarge`."""
        self._size += len(chunk)
        if self._size > self.limit_bytes:
            self._chunks.clear()
            raise BodyTooLarge(self.limit_bytes)
        self._chunks.append(chunk)
        self.is_whole = is_last

    def bytes(self) -> bytes:
        """Return everything that arrived."""
        return b"".join(self._chunks)


def json_of(raw: bytes, headers: HeaderPairs, *, limit_bytes: int) -> Json | bytes:
    """Return the body as a JSON tree if it says that it is JSON, or as bytes, which count whole.

    Raises `BodyRefused` for JSON that two readers could understand differently, even where a model has accepted it.
    """
    if len(raw) > limit_bytes:
        raise BodyTooLarge(limit_bytes)
    return parse(raw, limit_bytes=limit_bytes) if raw and is_json(headers) else raw
