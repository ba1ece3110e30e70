"""A message as an entry of a Valkey or Redis stream: five fields, the same for whoever writes and reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from nebis.ports.messages import Message

Fields: TypeAlias = dict[
    bytes | bytearray | memoryview | str | int | float, bytes | bytearray | memoryview | str | int | float
]

ID = b"id"
CONTENT_TYPE = b"content_type"
ORDERING_KEY = b"ordering_key"
HEADERS = b"headers"
PAYLOAD = b"payload"


def entry_of(message: Message) -> Fields:
    """Return the fields of a message."""
    fields: Fields = {ID: message.id, CONTENT_TYPE: message.content_type, PAYLOAD: message.payload}
    if message.ordering_key is not None:
        fields[ORDERING_KEY] = message.ordering_key
    if message.headers:
        fields[HEADERS] = json.dumps(dict(message.headers))
    return fields


def headers_in(fields: Mapping[bytes, bytes]) -> dict[str, str | bytes]:
    """Return the headers of an entry; those that somebody else wrote otherwise are one header, as it stands."""
    raw = fields.get(HEADERS)
    if raw is None:
        return {}
    try:
        headers = json.loads(raw)
    except ValueError:
        headers = None
    if not isinstance(headers, dict):
        return {"headers": raw}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in headers.items()}
