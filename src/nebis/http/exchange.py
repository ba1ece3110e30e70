"""An answer as it is stored and sent again: status, chosen headers, body bytes.

    byte 0        version
    bytes 1-4     length of the head
    head          JSON: status, headers, and how the body comes back
    rest          the body

The whole is the payload of an outcome's envelope, which carries the checksum.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

from nebis.errors import RecordCorrupt, ResultUnstorable
from nebis.http.headers import HeaderPairs, is_name, is_value

_VERSION: Final = 1
_HEAD_START: Final = 5
_beginning: Final = Struct(">BI").unpack_from
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
FRAMING: Final = frozenset({"content-length", "transfer-encoding"})
WITHOUT_BODY: Final = frozenset({204, 304})
HEADS_REMEMBERED: Final = 128
"""Answers of one endpoint mostly have the same head: it is made, read and checked once."""

_NO_HEAD: Final = "the head of its answer has a value that no answer may have"

_compact: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An answer: what a handler said, or what was stored of it."""

    status: int
    headers: HeaderPairs = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def with_headers(self, *pairs: tuple[str, str]) -> Exchange:
        """Return the same answer with these headers in place of any that have their names."""
        names = [name.lower() for name, _ in pairs]
        kept = [pair for pair in self.headers if pair[0].lower() not in names]
        return Exchange(status=self.status, headers=(*kept, *pairs), body=self.body)

    def framed(self) -> HeaderPairs:
        """Return all headers with the length that the body has, and none where a body is not allowed."""
        kept = [pair for pair in self.headers if pair[0].lower() not in FRAMING]
        if self.status in WITHOUT_BODY or self.status < 200:
            return tuple(kept)
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
    raw_names: frozenset[bytes] = field(init=False, repr=False, compare=False)
    """The same headers as bytes, as ASGI has them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "raw_names", frozenset(name.encode("latin-1") for name in self.headers))

    def faults(self) -> list[str]:
        """Return every reason why answers cannot be stored like this."""
        return [
            f"{name} belongs to one connection or one moment and cannot be stored; leave it out of store_headers"
            for name in sorted(self.headers & NEVER_STORED)
        ]


class Stored(NamedTuple):
    """What was read back: an answer, and, where it is rebuilt, what from."""

    exchange: Exchange
    has_body: bool
    reference: str | None
    schema: str | None


def freeze(exchange: Exchange, storage: Storage, *, reference: str | None = None) -> bytes:
    """Render an answer to its stored bytes, or raise `ResultUnstorable`; decided before the first byte is sent."""
    if len(exchange.body) > storage.limit_bytes:
        raise ResultUnstorable(f"it has {len(exchange.body)} bytes, {storage.limit_bytes} are allowed")
    headers = tuple(
        [(lowered, value) for name, value in exchange.headers if (lowered := name.lower()) in storage.headers]
    )
    if reference is None:
        prefix = _usual_prefix(exchange.status, headers, is_whole=storage.has_body)
        return prefix + exchange.body if storage.has_body else prefix
    return prefix_of(exchange.status, headers, is_whole=False, reference=reference, schema=storage.schema or "")


def kept(headers: HeaderPairs) -> HeaderPairs:
    """Return the headers that are stored of an answer: those that may be, and what a cache may do with it."""
    if any(name == "cache-control" for name, _ in headers):
        return headers
    # A shared cache must never answer for us: it does not know whose key it was (SEC16).
    return (*headers, ("cache-control", "no-store"))


def prefix_of(status: int, headers: HeaderPairs, *, is_whole: bool, **rebuilt_from: str) -> bytes:
    """Render all that comes before the body."""
    headers = kept(headers)
    if not all(is_name(name) and is_value(value) for name, value in headers):
        raise ResultUnstorable("one of its headers has a character that no header may have")
    encoded = _compact({"status": status, "headers": headers, "body": is_whole, **rebuilt_from}).encode()
    if len(encoded) > _LARGEST_HEAD_BYTES:
        raise ResultUnstorable(f"its headers have more than {_LARGEST_HEAD_BYTES} bytes")
    return bytes((_VERSION,)) + len(encoded).to_bytes(4, "big") + encoded


# It depends on nothing but its arguments.
_usual_prefix: Final = lru_cache(maxsize=HEADS_REMEMBERED)(prefix_of)


class Head(NamedTuple):
    """A stored head, once it is read and checked."""

    status: int
    headers: HeaderPairs
    has_body: bool
    reference: str | None
    schema: str | None


def thaw(payload: bytes) -> Stored:
    """Read a stored answer back, checking every header again, or raise `RecordCorrupt` (SEC15)."""
    encoded, body = cut(payload)
    status, headers, has_body, reference, schema = head_of(encoded, has_body=bool(body))
    exchange = Exchange(status=status, headers=headers, body=body)
    return Stored(exchange=exchange, has_body=has_body, reference=reference, schema=schema)


def cut(payload: bytes) -> tuple[bytes, bytes]:
    """Return the head of a stored answer, not yet read, and its body; or raise `RecordCorrupt`."""
    size = len(payload)
    version, head_bytes = _beginning(payload) if size >= _HEAD_START else (None, 0)
    if version != _VERSION:
        raise RecordCorrupt("it is no HTTP answer of a version that this release can read")
    body_start = _HEAD_START + head_bytes
    if head_bytes > _LARGEST_HEAD_BYTES or body_start > size:
        raise RecordCorrupt("the head of its answer is truncated")
    return payload[_HEAD_START:body_start], payload[body_start:]


@lru_cache(maxsize=HEADS_REMEMBERED)
def head_of(encoded: bytes, *, has_body: bool) -> Head:
    """Read a stored head, and check that a body may follow if one does; or raise `RecordCorrupt`."""
    try:
        head = json.loads(encoded)
    except (ValueError, RecursionError):
        raise RecordCorrupt("the head of its answer is not JSON") from None
    if not _is_head(head) or (has_body and not head["body"]):
        raise RecordCorrupt(_NO_HEAD)
    headers = tuple((name, value) for name, value in head["headers"])
    return Head(head["status"], headers, head["body"], head.get("reference"), head.get("schema"))


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
    passing = [
        (name, value)
        for name, value in live.headers
        if name.lower() not in storage.headers and name.lower() not in NEVER_STORED
    ]
    kept = stored.exchange
    body = kept.body if stored.has_body else live.body
    return Exchange(status=kept.status, headers=(*kept.headers, *passing), body=body)
