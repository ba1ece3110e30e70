"""What is kept of a delivery, whatever is wrong with it; and what of it is plain enough to be read."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

from nebis.delivery import Delivery, Incoming, ParkReason
from nebis.ports.inbox import Letter, Place
from nebis.subject import is_storable

LARGEST_HEADERS_BYTES = 64 * 1024
LARGEST_KEPT_BYTES = 16 * 1024 * 1024
"""Of a parked payload; what the largest brokers let through by default."""
LARGEST_OFFSET = 2**63 - 1


class Refusal(Exception):
    """Why a delivery is unfit, on its way out of the checks."""

    def __init__(self, reason: ParkReason, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(reason)


def letter_of(consumer: str, delivery: Delivery) -> Letter:
    """Return what is kept of a delivery if it is parked."""
    size_bytes = len(delivery.payload)
    return Letter(
        parked_id=_parked_id(consumer, delivery),
        consumer=consumer,
        topic=_storable(delivery.topic),
        message_id=None if delivery.id is None else _storable(delivery.id),
        partition=None if delivery.partition is None else _storable(delivery.partition),
        offset=delivery.offset if _is_offset(delivery.offset) else None,
        content_type=_storable(delivery.content_type),
        headers=_kept_headers(delivery.headers),
        payload=delivery.payload if size_bytes <= LARGEST_KEPT_BYTES else None,
        payload_bytes=size_bytes,
    )


def place_of(consumer: str, delivery: Delivery) -> Place | None:
    """Return where a delivery stands, or None if it does not say."""
    if not _is_offset(delivery.offset) or delivery.offset is None:
        return None
    return Place(consumer=consumer, partition=partition_of(delivery), offset=delivery.offset)


def partition_of(message: Delivery | Incoming[Any]) -> str:
    """Return the name under which the offsets of a message count."""
    return _storable(message.topic if message.partition is None else f"{message.topic}/{message.partition}")


def _is_offset(offset: int | None) -> bool:
    return offset is not None and 0 <= offset <= LARGEST_OFFSET


def _parked_id(consumer: str, delivery: Delivery) -> UUID:
    """Return an id that redeliveries share. Of two messages without any name, equal ones may still be two."""
    if delivery.id is None and delivery.offset is None:
        return uuid4()
    parts = (consumer, delivery.topic, delivery.partition or "", str(delivery.offset), "")
    if delivery.id is not None:
        # A relay may have published it twice, to two places.
        parts = (consumer, "", "", "", delivery.id)
    digest = sha256(b"nebis/parked/1")
    for part in (*(part.encode(errors="surrogatepass") for part in parts), delivery.payload):
        digest.update(len(part).to_bytes(8, "big") + part)
    return UUID(bytes=digest.digest()[:16], version=5)


def read_headers(headers: Mapping[str, str | bytes]) -> dict[str, str]:
    read: dict[str, str] = {}
    size_bytes = 0
    for name, value in headers.items():
        try:
            text = value.decode() if isinstance(value, bytes) else value
            size_bytes += len(name.encode()) + len(text.encode())
        except (UnicodeError, AttributeError):
            raise Refusal(ParkReason.HEADERS_BROKEN, "a header is no UTF-8 text") from None
        if not is_storable(name) or not is_storable(text):
            raise Refusal(ParkReason.HEADERS_BROKEN, "a header has a NUL")
        read[name] = text
    if size_bytes > LARGEST_HEADERS_BYTES:
        raise Refusal(ParkReason.HEADERS_BROKEN, f"they have {size_bytes} bytes, {LARGEST_HEADERS_BYTES} are allowed")
    return read


def _kept_headers(headers: Mapping[str, str | bytes]) -> tuple[tuple[str, str], ...]:
    """Return what of the headers is kept, in a form that every store takes and people can read."""
    kept: list[tuple[str, str]] = []
    left = LARGEST_HEADERS_BYTES
    for name, value in headers.items():
        text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
        pair = (_storable(str(name)), _storable(text, limit=LARGEST_HEADERS_BYTES))
        left -= len(pair[0].encode()) + len(pair[1].encode())
        if left < 0:
            break
        kept.append(pair)
    return tuple(kept)


def _storable(text: str, *, limit: int = 1000) -> str:
    if is_storable(text):
        return text[:limit]
    return "".join(character if is_storable(character) else "\ufffd" for character in text[:limit])
