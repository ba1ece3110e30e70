"""The stored form of a message."""

from __future__ import annotations

import typing
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

from nebis.core.codec import Codec, codec_for
from nebis.delivery import Incoming
from nebis.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Envelope:
    """A message as it is stored with its record."""

    payload: str
    topic: str
    id: str | None
    content_type: str
    headers: dict[str, str]
    partition: str | None
    offset: int | None


_ENVELOPE = codec_for(_Envelope)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingCodec(Codec[Incoming[Any]]):
    """The stored form of a message, whose payload is read by the type that its handler declares."""

    body: Codec[Any] | None
    """None where the handler takes the bytes as they are."""

    def payload(self, raw: bytes) -> Any:
        """Read a payload as a broker delivered it, or raise `RecordCorrupt`."""
        return raw if self.body is None else self.body.decode(raw)

    def encode(self, value: Incoming[Any]) -> bytes:
        """Return the message as it is stored."""
        kept = b64encode(value.payload) if self.body is None else self.body.encode(value.payload)
        return _ENVELOPE.encode(
            _Envelope(
                payload=kept.decode(),
                topic=value.topic,
                id=value.id,
                content_type=value.content_type,
                headers=dict(value.headers),
                partition=value.partition,
                offset=value.offset,
            )
        )

    def decode(self, data: bytes) -> Incoming[Any]:
        """Return the message that was encoded, or raise `RecordCorrupt`."""
        kept = _ENVELOPE.decode(data)
        raw = kept.payload.encode()
        return Incoming(
            payload=b64decode(raw) if self.body is None else self.body.decode(raw),
            topic=kept.topic,
            id=kept.id,
            content_type=kept.content_type,
            headers=kept.headers,
            partition=kept.partition,
            offset=kept.offset,
        )


def incoming_codec(annotation: object, *, where: str = "") -> IncomingCodec:
    """Choose the codec of an annotation `Incoming[T]`, or raise `ConfigError`."""
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is not Incoming or len(arguments) != 1:
        raise ConfigError([f"{where} must be annotated Incoming[T], where T is the type of the payload"])
    body = None if arguments[0] is bytes else codec_for(arguments[0], where=where)
    name = "bytes" if body is None else body.name
    return IncomingCodec(name=f"Incoming[{name}]", shape=_ENVELOPE.shape, body=body)
