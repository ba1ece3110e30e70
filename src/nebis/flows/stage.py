"""What may be staged: a message is checked and serialised at once, so that nothing can fail when it is committed."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

from nebis.core.codec import Codec, codec_for
from nebis.errors import ConfigError, MisuseError, ResultUnstorable
from nebis.ports.messages import Message

LONGEST_NAME = 255
"""Of a topic, an id, an ordering key: what every broker that we know takes, and what a consumer can look up."""
LARGEST_PAYLOAD_BYTES = 1_000_000
"""The default limit of NATS and of Kafka, less room for headers. Stage a reference to what is larger."""
LARGEST_HEADERS_BYTES = 16_000

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Headers: TypeAlias = Mapping[str, str]


def new_message(
    topic: str,
    payload: object,
    *,
    id: str,  # noqa: A002 - the word of every broker.
    headers: Headers | None = None,
    content_type: str | None = None,
    ordering_key: str | None = None,
    available_at: datetime | None = None,
) -> Message:
    """Make a message, or raise `MisuseError` for one that could not be stored or published as it is."""
    _require_name("topic", topic)
    _require_name("id of a message", id)
    if ordering_key is not None:
        _require_name("ordering key", ordering_key)
    body, natural_type = _serialised(topic, payload)
    if len(body) > LARGEST_PAYLOAD_BYTES:
        raise MisuseError(
            f"The payload for {topic!r} has {len(body)} bytes, more than {LARGEST_PAYLOAD_BYTES}; "
            "store it elsewhere and stage a reference to it."
        )
    return Message(
        id=id,
        topic=topic,
        payload=body,
        content_type=_checked_value("content type", content_type or natural_type),
        headers=_checked_headers(headers or {}),
        ordering_key=ordering_key,
        available_at=None if available_at is None else _microseconds(available_at),
    )


def _require_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise MisuseError(f"The {what} is empty; give it as text.")
    if len(name) > LONGEST_NAME:
        raise MisuseError(f"The {what} has {len(name)} characters, more than {LONGEST_NAME}; shorten it.")
    if not name.isprintable():
        raise MisuseError(f"The {what} has a control character; use printable text.")


def _serialised(topic: str, payload: object) -> tuple[bytes, str]:
    match payload:
        case bytes() | bytearray() | memoryview():
            return bytes(payload), "application/octet-stream"
        case str():
            return _utf8(topic, payload), "text/plain; charset=utf-8"
        case _:
            return _utf8(topic, _json(topic, payload)), "application/json"


def _utf8(topic: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _unserialisable(topic, "text with a lone surrogate has no UTF-8 form") from None


def _json(topic: str, payload: object) -> str:
    try:
        return json.dumps(payload, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ResultUnstorable as error:
        detail = str(error)
    except ConfigError as error:
        detail = "; ".join(error.faults)
    except (TypeError, ValueError, RecursionError) as error:
        # The text of these may quote the payload (SEC24).
        detail = f"it is no JSON ({type(error).__name__})"
    raise _unserialisable(topic, detail)


def _unserialisable(topic: str, detail: str) -> MisuseError:
    return MisuseError(
        f"The payload for {topic!r} cannot be serialised: {detail}; hand in bytes, text, or what an operation could "
        "return."
    )


def _plain(value: object) -> Any:
    """Return what JSON has no form for as its codec writes it."""
    kind: Any = type(value)
    return json.loads(_codec_of(kind).encode(value))


@lru_cache(maxsize=256)
def _codec_of(kind: Hashable) -> Codec[object]:
    return codec_for(kind)


def _checked_headers(headers: Mapping[Any, object]) -> tuple[tuple[str, str], ...]:
    found = []
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise MisuseError("The name of a header is no HTTP token; use letters, digits and hyphens.")
        found.append((name, _checked_value(f"header {name[:LONGEST_NAME]!r}", value)))
    size = sum(len(name) + len(value.encode()) for name, value in found)
    if size > LARGEST_HEADERS_BYTES:
        raise MisuseError(f"The headers have {size} bytes, more than {LARGEST_HEADERS_BYTES}; put them in the payload.")
    return tuple(found)


def _checked_value(what: str, value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise MisuseError(f"The {what} is no printable text; encode it.")
    return value


def _microseconds(at: datetime) -> int:
    if at.tzinfo is None:
        raise MisuseError("available_at has no time zone, so nobody knows when it is; use datetime.now(UTC) + ...")
    return (at - _EPOCH) // timedelta(microseconds=1)
