"""What may be staged: everything is checked and serialised at once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from nebis import MisuseError
from nebis.flows.stage import LARGEST_PAYLOAD_BYTES, new_message
from nebis.ports.messages import Message


@dataclass(frozen=True)
class Payment:
    amount: Decimal
    note: str


def made(payload: object = b"", topic: str = "orders", **more: Any) -> Message:
    return new_message(topic, payload, **{"id": "m-1", **more})


@pytest.mark.parametrize(
    ("payload", "body", "content_type"),
    [
        (b"\x00", b"\x00", "application/octet-stream"),
        (bytearray(b"a"), b"a", "application/octet-stream"),
        ("ü", "ü".encode(), "text/plain; charset=utf-8"),
        ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode(), "application/json"),
        (None, b"null", "application/json"),
        (Payment(Decimal("1.50"), "x"), b'{"amount":"1.50","note":"x"}', "application/json"),
        ([UUID(int=1)], b'["00000000-0000-0000-0000-000000000001"]', "application/json"),
    ],
)
def test_a_payload_is_serialised_by_what_it_is(payload: object, body: bytes, content_type: str) -> None:
    message = made(payload)

    assert (message.payload, message.content_type) == (body, content_type)


def test_everything_else_is_kept_as_given() -> None:
    message = made(
        b"x",
        content_type="image/png",
        headers={"Trace": "ü"},
        ordering_key="k",
        available_at=datetime(1970, 1, 1, 1, 0, 1, 5, tzinfo=timezone(timedelta(hours=1))),
    )

    assert message == Message(
        id="m-1",
        topic="orders",
        payload=b"x",
        content_type="image/png",
        headers=(("Trace", "ü"),),
        ordering_key="k",
        available_at=1_000_005,
    )
    assert made(available_at=datetime(1970, 1, 1, tzinfo=UTC)).available_at == 0


def circular() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: made(topic=""), "topic is empty"),
        (lambda: made(topic="x" * 256), "256 characters"),
        (lambda: made(topic="a\nb"), "control character"),
        (lambda: made(id=""), "id of a message is empty"),
        (lambda: made(id=7), "id of a message is empty"),
        (lambda: made(ordering_key=""), "ordering key is empty"),
        (lambda: made(b"x" * (LARGEST_PAYLOAD_BYTES + 1)), "stage a reference"),
        (lambda: made("\ud800"), "surrogate"),
        (lambda: made(["\ud800"]), "surrogate"),
        (lambda: made(object()), "cannot be serialised"),
        (lambda: made({"secret": {1, "x"}}), "cannot be serialised"),
        (lambda: made(float("nan")), "ValueError"),
        (lambda: made(circular()), "ValueError"),
        (lambda: made({("a",): 1}), "TypeError"),
        (lambda: made([Payment(amount="1", note="x")]), "cannot be serialised"),  # type: ignore[arg-type]
        (lambda: made(headers={"a b": "x"}), "HTTP token"),
        (lambda: made(headers={"a": "x\r\nb: y"}), "printable"),
        (lambda: made(headers={"a": 7}), "printable"),
        (lambda: made(headers={"a": "x" * 20_000}), "20001 bytes"),
        (lambda: made(content_type="a\nb"), "content type"),
        (lambda: made(available_at=datetime(2030, 1, 1)), "time zone"),  # noqa: DTZ001 - that is the point.
    ],
)
def test_what_cannot_be_published_is_refused_with_what_to_do(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(MisuseError, match=words) as told:
        make()

    assert "secret" not in str(told.value)
