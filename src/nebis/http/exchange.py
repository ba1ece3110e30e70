"""An answer as it is stored and sent again: status, chosen headers, body bytes.

    byte 0        version
    bytes 1-4     length of the head
    head          JSON: status, headers, and how the body comes back
    rest          the body

The whole is the payload of an outcome's envelope, which carries the checksum.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Final

from nebis.errors import RecordCorrupt, ResultUnstorable
from nebis.http.headers import HeaderPairs, is_name, is_value

_VERSION: Final = 1
_HEAD_START: Final = 5
_LARGEST_HEAD_BYTES: Final = 64 * 1024
"""More header bytes than any server accepts; it also bounds what a damaged length can make us read."""

# What a client needs to understand the body, to cache it or not, and to find what was made.
USUALLY_STORED: Final = frozenset(
    {"content-type", "content-language", "content-disposition", "content-encoding", "content-location", "location"}
    | {"etag", "last-modified", "cache-control", "vary", "link", "retry-after", "deprecation", "sunset"}
)
# These belong to one connection or one moment, and framing is made anew (F087): nobody can ask for them.
NEVER_STORED: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"}
    | {"trailers", "transfer-encoding", "upgrade", "content-length", "date", "server"}
)
_WITHOUT_BODY: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An answer: what a handler said, or what was stored of it."""

    status: int
    headers: HeaderPairs = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def with_headers(self, *pairs: tuple[str, str]) -> Exchange:
        """Return the same answer with these headers in place of any that have their names."""
        names = {name.lower() for name, _ in pairs}
        kept = tuple(pair for pair in self.headers if pair[0].lower() not in names)
        return replace(self, headers=(*kept, *pairs))

    def framed(self) -> HeaderPairs:
        """Return all headers with the length that the body has, and none where a body is not allowed."""
        kept = tuple(pair for pair in self.headers if pair[0].lower() not in ("content-length", "transfer-encoding"))
        if self.status in _WITHOUT_BODY or self.status < 200:
            return kept
        return (*kept, ("content-length", str(len(self.body))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What of an answer is stored."""

    headers: frozenset[str] = USUALLY_STORED
    """In lower case. Cookies, credentials and tokens are not among them unless the application names them (SEC14)."""
    has_body: bool = True
    schema: str | None = None
    """Set where answers are rebuilt from a resource: the version of the answer's shape when it was stored."""
    limit_bytes: int

    def faults(self) -> list[str]:
        """Return every reason why answers cannot be stored like this."""
        return [
            f"{name} belongs to one connection or one moment and cannot be stored; leave it out of store_headers"
            for name in sorted(self.headers & NEVER_STORED)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What was read back: an answer, and, where it is rebuilt, what from."""

    exchange: Exchange
    has_body: bool
    reference: str | None
    schema: str | None


def freeze(exchange: Exchange, storage: Storage, *, reference: str | None = None) -> bytes:
    """Render an answer to its stored bytes, or raise `ResultUnstorable`; decided before the first byte is sent."""
    if len(exchange.body) > storage.limit_bytes:
        raise ResultUnstorable(f"it has {len(exchange.body)} bytes, {storage.limit_bytes} are allowed")
    headers = [(name.lower(), value) for name, value in exchange.headers if name.lower() in storage.headers]
    if "cache-control" not in {name for name, _ in headers}:
        # A shared cache must never answer for us: it does not know whose key it was (SEC16).
        headers.append(("cache-control", "no-store"))
    if not all(is_name(name) and is_value(value) for name, value in headers):
        raise ResultUnstorable("one of its headers has a character that no header may have")
    is_whole = storage.has_body and reference is None
    head: dict[str, Any] = {"status": exchange.status, "headers": headers, "body": is_whole}
    if reference is not None:
        head |= {"reference": reference, "schema": storage.schema or ""}
    encoded = json.dumps(head, separators=(",", ":")).encode()
    if len(encoded) > _LARGEST_HEAD_BYTES:
        raise ResultUnstorable(f"its headers have more than {_LARGEST_HEAD_BYTES} bytes")
    return bytes((_VERSION,)) + len(encoded).to_bytes(4, "big") + encoded + (exchange.body if is_whole else b"")


def thaw(payload: bytes) -> Stored:
    """Read a stored answer back, checking every header again, or raise `RecordCorrupt` (SEC15)."""
    if len(payload) < _HEAD_START or payload[0] != _VERSION:
        raise RecordCorrupt("it is no HTTP answer of a version that this release can read")
    length = int.from_bytes(payload[1:_HEAD_START], "big")
    if length > _LARGEST_HEAD_BYTES or _HEAD_START + length > len(payload):
        raise RecordCorrupt("the head of its answer is truncated")
    try:
        head = json.loads(payload[_HEAD_START : _HEAD_START + length])
    except (ValueError, RecursionError):
        raise RecordCorrupt("the head of its answer is not JSON") from None
    body = payload[_HEAD_START + length :]
    if not _is_head(head) or (body and not head["body"]):
        raise RecordCorrupt("the head of its answer has a value that no answer may have")
    headers = tuple((name, value) for name, value in head["headers"])
    return Stored(
        exchange=Exchange(status=head["status"], headers=headers, body=body),
        has_body=head["body"],
        reference=head.get("reference"),
        schema=head.get("schema"),
    )


def _is_head(head: Any) -> bool:
    return (
        isinstance(head, dict)
        and type(head.get("status")) is int
        and 200 <= head["status"] <= 599
        and isinstance(head.get("body"), bool)
        and isinstance(head.get("headers"), list)
        and all(_is_header(pair) for pair in head["headers"])
        and all(isinstance(head.get(name, ""), str) for name in ("reference", "schema"))
    )


def _is_header(pair: Any) -> bool:
    is_pair = isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
    return is_pair and is_name(pair[0]) and is_value(pair[1])


def first_told(live: Exchange, stored: Stored, storage: Storage) -> Exchange:
    """Return what the first caller gets: the stored answer, and around it what was meant for that caller alone."""
    passing = tuple(
        (name, value)
        for name, value in live.headers
        if name.lower() not in storage.headers and name.lower() not in NEVER_STORED
    )
    exchange = stored.exchange if stored.has_body else replace(stored.exchange, body=live.body)
    return replace(exchange, headers=(*exchange.headers, *passing))
