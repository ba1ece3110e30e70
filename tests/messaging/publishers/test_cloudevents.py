import asyncio
import base64
import json
from typing import Any, Literal
from urllib.parse import unquote

import pytest

from nebis.errors import ConfigError
from nebis.messaging.publishers.cloudevents import CloudEventsPublisher
from nebis.messaging.publishers.function import FunctionPublisher
from nebis.messaging.publishers.webhook import WebhookPublisher
from nebis.ports.messages import Confirmed, Message
from tests.messaging.publishers.benches import Bench
from tests.messaging.publishers.receiver import receiving

REQUIRED = {"specversion", "id", "source", "type"}
SENT = Message(
    id="msg_1",
    topic="payment.created",
    payload=b'{"amount": 5.00, "big": 12345678901234567890.10}',
    content_type="application/json",
    headers=(("Trace-Id", "abc"),),
    ordering_key="Zoë 100%",
)


def wrapped(message: Message, mode: Literal["structured", "binary"] = "structured", **settings: Any) -> Message:
    seen: list[Message] = []

    async def scenario() -> None:
        publisher = CloudEventsPublisher(FunctionPublisher(seen.append), source="/payments", mode=mode, **settings)
        assert await publisher.publish([message]) == [Confirmed()]
        await publisher.reset()
        await publisher.aclose()

    asyncio.run(scenario())
    [made] = seen
    return made


def valid_attributes(attributes: dict[str, str]) -> dict[str, str]:
    """Check what the specification requires of the attributes of every event."""
    assert attributes.keys() >= REQUIRED
    assert attributes["specversion"] == "1.0"
    assert all(isinstance(attributes[name], str) and attributes[name] for name in REQUIRED)
    assert all(name.isalnum() and name == name.lower() and name.isascii() for name in attributes)
    return attributes


def test_a_structured_event_holds_everything_in_one_document() -> None:
    event = wrapped(SENT)

    document = json.loads(event.payload)
    data = document.pop("data")
    assert valid_attributes(document) == {
        "specversion": "1.0",
        "id": "msg_1",
        "source": "/payments",
        "type": "payment.created",
        "datacontenttype": "application/json",
        "partitionkey": "Zoë 100%",
    }
    assert data == json.loads(SENT.payload)
    assert b"12345678901234567890.10" in event.payload
    assert event.content_type == "application/cloudevents+json"
    assert (event.id, event.topic, event.ordering_key) == (SENT.id, SENT.topic, SENT.ordering_key)


@pytest.mark.parametrize(
    ("content_type", "payload"),
    [
        ("application/octet-stream", b"\x00\xff"),
        ("text/plain", b"hello"),
        ("application/json", b"{broken"),
        ("application/json", b"NaN"),
        ("application/json", '{"a": 1}'.encode("utf-16")),
        ("application/json", b"[" * 100_000),
    ],
)
def test_what_is_not_json_goes_into_a_structured_event_as_base64(content_type: str, payload: bytes) -> None:
    event = wrapped(Message(id="m", topic="t", payload=payload, content_type=content_type))

    document = json.loads(event.payload)
    assert base64.b64decode(document.pop("data_base64")) == payload
    assert valid_attributes(document)["datacontenttype"] == content_type
    assert "data" not in document


def test_a_binary_event_leaves_the_payload_alone() -> None:
    event = wrapped(SENT, "binary")

    headers = dict(event.headers)
    attributes = {name.removeprefix("ce-"): unquote(value) for name, value in headers.items() if name.startswith("ce-")}
    assert valid_attributes(attributes)["partitionkey"] == "Zoë 100%"
    assert headers["ce-partitionkey"] == "Zo%C3%AB%20100%25"
    assert (event.payload, event.content_type) == (SENT.payload, SENT.content_type)
    assert headers["Trace-Id"] == "abc"


def test_the_type_may_be_another_than_the_topic() -> None:
    document = json.loads(wrapped(SENT, type_of=lambda message: f"com.example.{message.topic}").payload)

    assert document["type"] == "com.example.payment.created"


def test_an_event_without_a_source_is_none() -> None:
    with pytest.raises(ConfigError, match="source"):
        CloudEventsPublisher(FunctionPublisher(lambda _: None), source="")


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_an_event_arrives_at_every_broker_by_its_binding(
    bench: Bench, topic: str, mode: Literal["structured", "binary"]
) -> None:
    sent = Message(id=f"msg_{topic}", topic=topic, payload=b'{"amount": 5}', content_type="application/json")
    prefix = {"NatsBench": "ce-", "ValkeyBench": "ce-", "RabbitBench": "cloudEvents_", "KafkaBench": "ce_"}

    async def scenario() -> Any:
        await bench.prepare(topic)
        publisher = CloudEventsPublisher(bench.publisher(), source="/payments", mode=mode)
        assert await publisher.publish([sent]) == [Confirmed()]
        await publisher.aclose()
        return await bench.arrived(topic)

    [arrived] = asyncio.run(scenario())
    if mode == "structured":
        attributes = json.loads(arrived.payload)
        assert attributes.pop("data") == {"amount": 5}
    else:
        start = prefix[type(bench).__name__]
        attributes = {
            name.removeprefix(start): value for name, value in arrived.headers.items() if name.startswith(start)
        }
        assert arrived.payload == sent.payload
    assert valid_attributes(attributes)["id"] == arrived.id == sent.id


def test_an_event_arrives_at_a_webhook_by_its_binding() -> None:
    async def scenario(url: str) -> None:
        inner = WebhookPublisher(url, secrets=(), allow_private_targets=True)
        assert await CloudEventsPublisher(inner, source="/payments", mode="binary").publish([SENT]) == [Confirmed()]

    with receiving() as receiver:
        asyncio.run(scenario(receiver.url))
        [request] = receiver.received

    headers = {name.lower(): value for name, value in request.headers}
    attributes = {name.removeprefix("ce-"): unquote(value) for name, value in headers.items() if name.startswith("ce-")}
    assert valid_attributes(attributes)["id"] == headers["idempotency-key"] == "msg_1"
