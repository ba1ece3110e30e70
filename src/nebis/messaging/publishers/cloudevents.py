"""CloudEvents 1.0 around any publisher: in one JSON document, or with the attributes as headers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal
from urllib.parse import quote

from nebis.errors import ConfigError
from nebis.ports.messages import Message, Publisher, PublishResult

_STRUCTURED_TYPE = "application/cloudevents+json"

# Everything printable except space, quote and percent goes into a header as it is; the HTTP binding says so.
_HEADER_SAFE = "!#$&'()*+,/:;<=>?@[\\]^`{|}~"


class CloudEventsPublisher:
    """Wraps each message as an event of `source` and hands it on.

    The event's id is the message's, so it stays the same on every try. Its type is the topic unless `type_of` says
    otherwise, and its `partitionkey` the ordering key.
    """

    def __init__(
        self,
        publisher: Publisher,
        *,
        source: str,
        type_of: Callable[[Message], str] = lambda message: message.topic,
        mode: Literal["structured", "binary"] = "structured",
    ) -> None:
        if not source:
            raise ConfigError(["CloudEventsPublisher has no source; name the service, as in source='/payments'"])
        self._publisher = publisher
        self._source = source
        self._type_of = type_of
        self._is_structured = mode == "structured"
        # Each protocol's binding has a prefix of its own.
        self._prefix: str = getattr(publisher, "cloudevents_prefix", "ce-")

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        """Publish each as an event."""
        wrap = self._structured if self._is_structured else self._binary
        return await self._publisher.publish([wrap(message) for message in messages])

    async def reset(self) -> None:
        """Reset the publisher inside."""
        await self._publisher.reset()

    async def aclose(self) -> None:
        """Close the publisher inside."""
        await self._publisher.aclose()

    def _attributes(self, message: Message) -> dict[str, str]:
        attributes = {
            "specversion": "1.0",
            "id": message.id,
            "source": self._source,
            "type": self._type_of(message),
        }
        return attributes if message.ordering_key is None else attributes | {"partitionkey": message.ordering_key}

    def _structured(self, message: Message) -> Message:
        attributes = {**self._attributes(message), "datacontenttype": message.content_type}
        if _is_json(message):
            # Spliced, not parsed and written again: numbers keep every digit.
            head = json.dumps(attributes)
            payload = head[:-1].encode() + b', "data": ' + message.payload + b"}"
        else:
            data = base64.b64encode(message.payload).decode()
            payload = json.dumps({**attributes, "data_base64": data}).encode()
        return replace(message, payload=payload, content_type=_STRUCTURED_TYPE)

    def _binary(self, message: Message) -> Message:
        is_percent_encoded = self._prefix == "ce-"
        headers = tuple(
            (f"{self._prefix}{name}", quote(value, safe=_HEADER_SAFE) if is_percent_encoded else value)
            for name, value in self._attributes(message).items()
        )
        return replace(message, headers=(*message.headers, *headers))


def _is_json(message: Message) -> bool:
    media_type = message.content_type.partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        return False
    try:
        # UTF-8 and nothing else, and no NaN: what is spliced into a document must be of its kind.
        json.loads(message.payload.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
