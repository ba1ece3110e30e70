import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nebis import Attempt, Local, Nebis
from nebis.errors import ConfigError
from nebis.messaging import Relay
from nebis.messaging.publishers.webhook import WebhookPublisher
from nebis.messaging.signature import verify_signature
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown
from tests.engines.ports import free_port
from tests.messaging.publishers.receiver import DRIP, GARBAGE, HANG_UP, STALL, Receiver, Reply, receiving

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SENT = Message(
    id="msg_1",
    topic="payment.created",
    payload=b'{"amount": 5}',
    content_type="application/json",
    headers=(("Trace-Id", "abc"),),
    ordering_key="acct 1",
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on the loopback interface."""
    with receiving() as made:
        yield made


def publish(url: Any, *messages: Message, **settings: Any) -> list[PublishResult]:
    settings = {"secrets": SECRET, "allow_private_targets": True, "timeout_seconds": 1, **settings}

    async def scenario() -> list[PublishResult]:
        publisher = WebhookPublisher(url, **settings)
        results = await publisher.publish(messages or [SENT])
        await publisher.reset()
        await publisher.aclose()
        return list(results)

    return asyncio.run(scenario())


def publish_one(url: Any, message: Message = SENT, **settings: Any) -> PublishResult:
    [result] = publish(url, message, **settings)
    return result


def test_the_receiver_gets_the_message_with_its_id_as_the_key(receiver: Receiver) -> None:
    assert publish_one(f"{receiver.url}?v=1") == Confirmed()

    [request] = receiver.received
    assert (request.path, request.body) == ("/hooks?v=1", SENT.payload)
    expected = {
        "Idempotency-Key": "msg_1",
        "Content-Type": "application/json",
        "Trace-Id": "abc",
        "Nebis-Topic": "payment.created",
        "Nebis-Ordering-Key": "acct 1",
        "webhook-id": "msg_1",
    }
    assert {name: request.values(name) for name in expected} == {name: [value] for name, value in expected.items()}


def test_the_receiver_sees_one_key_on_every_attempt(receiver: Receiver) -> None:
    receiver.answer(HANG_UP, STALL, GARBAGE, DRIP, Reply(status=500), Reply(status=409), Reply(status=429))

    results = [publish_one(receiver.url) for _ in range(8)]

    assert [type(result) for result in results] == [*[Unknown] * 6, Refused, Confirmed]
    assert receiver.keys == ["msg_1"] * 8


def test_a_receiver_can_verify_every_attempt(receiver: Receiver) -> None:
    receiver.answer(Reply(status=503))

    publish_one(receiver.url)
    publish_one(receiver.url)

    assert [verify_signature(SECRET, dict(seen.headers), seen.body) for seen in receiver.received] == [True, True]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_success_confirms(receiver: Receiver, status: int) -> None:
    receiver.answer(Reply(status=status))

    assert publish_one(receiver.url) == Confirmed()


@pytest.mark.parametrize("status", [400, 401, 404, 410, 413, 422])
def test_other_client_errors_refuse_for_good(receiver: Receiver, status: int) -> None:
    receiver.answer(Reply(status=status))

    assert publish_one(receiver.url) == Refused(reason=f"the receiver answered {status}", is_permanent=True)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(408, Unknown), (409, Unknown), (425, Unknown), (429, Refused), (500, Unknown), (503, Unknown)],
)
def test_what_may_turn_into_a_yes_is_tried_again_when_the_receiver_says(
    receiver: Receiver, status: int, expected: type[Refused | Unknown]
) -> None:
    receiver.answer(Reply(status=status, headers={"Retry-After": "7"}))

    assert publish_one(receiver.url) == expected(reason=f"the receiver answered {status}", retry_after_seconds=7)


def test_a_relay_leaves_the_receiver_alone_for_as_long_as_it_says(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answer(Reply(status=503, headers={"Retry-After": "600"}))
    with Nebis(f"sqlite:///{tmp_path / 'nebis.db'}", housekeeping=False) as nebis:

        @nebis.operation("pay", effects=Local)
        def pay(attempt: Attempt, amount: int) -> int:
            with attempt.transaction() as tx:
                tx.stage("payment.created", amount)
                tx.finish(amount)
            return amount

        pay(key="8f0e3f0c-2b1e-49a5-8d2a-7c9b1e644c57", tenant="acct_1", command=5)
        relay = Relay(nebis, WebhookPublisher(receiver.url, secrets=SECRET, allow_private_targets=True))

        first, then = relay.run_once(), relay.run_once()
        relay.close()

    assert (first.postponed, then.taken) == (1, 0)
    with closing(sqlite3.connect(tmp_path / "nebis.db")) as connection:
        [(wait_us,)] = connection.execute("SELECT available_at - created_at FROM nebis_outbox").fetchall()
    assert 600 <= wait_us / 1_000_000 < 660


def test_a_date_to_retry_after_is_understood(receiver: Receiver) -> None:
    receiver.answer(Reply(status=503, headers={"Retry-After": "Fri, 31 Dec 2999 23:59:59 GMT"}))

    result = publish_one(receiver.url)

    assert isinstance(result, Unknown)
    assert result.retry_after_seconds == 24 * 60 * 60


@pytest.mark.parametrize("value", ["soon", "-5", "1e9", "", "99999999999999999999"])
def test_nonsense_to_retry_after_is_ignored(receiver: Receiver, value: str) -> None:
    receiver.answer(Reply(status=503, headers={"Retry-After": value}))

    assert publish_one(receiver.url) == Unknown(reason="the receiver answered 503")


@pytest.mark.parametrize("reply", [STALL, DRIP], ids=["silence", "one byte at a time"])
def test_a_receiver_cannot_hold_the_publisher_longer_than_its_timeout(receiver: Receiver, reply: Reply) -> None:
    receiver.answer(reply)
    started = time.monotonic()

    result = publish_one(receiver.url, timeout_seconds=0.5)

    assert result == Unknown(reason="the receiver did not answer in time")
    assert time.monotonic() - started < 5


def test_a_receiver_that_is_not_there_never_had_the_message() -> None:
    result = publish_one(f"http://127.0.0.1:{free_port()}/")

    assert isinstance(result, Refused)
    assert not result.is_permanent


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_within_the_origin_is_followed_with_the_same_key(receiver: Receiver, status: int) -> None:
    receiver.answer(Reply(status=status, headers={"Location": "/new?x=1"}))

    assert publish_one(receiver.url) == Confirmed()

    assert [request.path for request in receiver.received] == ["/hooks", "/new?x=1"]
    assert receiver.keys == ["msg_1", "msg_1"]
    assert receiver.received[1].body == SENT.payload


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_origin_is_not_followed(receiver: Receiver, status: int) -> None:
    with receiving() as stranger:
        receiver.answer(Reply(status=status, headers={"Location": stranger.url}))

        result = publish_one(receiver.url)

    assert isinstance(result, Refused)
    assert not result.is_permanent
    assert not stranger.received


@pytest.mark.parametrize(
    "location", ["", "//", "https://127.0.0.1:1/hooks", "file:///etc/passwd", "http://[", "/hooks"]
)
def test_a_redirect_to_nowhere_ends(receiver: Receiver, location: str) -> None:
    receiver.answer(*[Reply(status=308, headers={"Location": location})] * 5)

    assert isinstance(publish_one(receiver.url), Refused)
    assert len(receiver.received) <= 4


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]", "0.0.0.0", "[fe80::1]"],
)
def test_a_private_target_is_refused_unless_it_is_meant(host: str) -> None:
    """SEC32: a customer who chooses the URL must not reach what only we may."""
    started = time.monotonic()

    result = publish_one(f"http://{host}:{free_port()}/", allow_private_targets=False)

    assert isinstance(result, Refused)
    assert "allow_private_targets=True" in result.reason
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://example.com/",
        "http://",
        "http://u:p@127.0.0.1/",
        "http://127.0.0.1:port/",
        "http://127.0.0.1/ü b",
        "http://ü/",
        f"http://{'a' * 70}/",
        "http://a..b/",
    ],
)
def test_a_url_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    result = publish_one(url)

    assert isinstance(result, Refused)
    assert "URL" in result.reason
    assert "u:p" not in result.reason


def test_the_url_may_depend_on_the_message(receiver: Receiver) -> None:
    assert publish_one(lambda message: f"{receiver.url}/{message.topic}") == Confirmed()
    assert publish_one(lambda message: {}[message.topic]) == Refused(
        reason="the function that gives the URL failed (KeyError: 'payment.created')"
    )

    assert [request.path for request in receiver.received] == ["/hooks/payment.created"]


def test_one_bad_message_leaves_the_others_alone(receiver: Receiver) -> None:
    bad = Message(id="msg 2", topic="t", payload=b"")
    split = Message(id="msg_3", topic="t", payload=b"", headers=(("A", "1\r\nB: 2"),))

    results = publish(receiver.url, SENT, bad, split)

    assert results[0] == Confirmed()
    assert [isinstance(result, Refused) and result.is_permanent for result in results[1:]] == [True, True]
    assert receiver.keys == ["msg_1"]


def test_an_id_that_needs_quotes_travels_in_quotes(receiver: Receiver) -> None:
    assert publish_one(receiver.url, Message(id='a;"b', topic="t", payload=b"")) == Confirmed()

    assert receiver.keys == ['"a;\\"b"']


def test_staged_headers_cannot_change_the_request(receiver: Receiver) -> None:
    names = ["Host", "content-length", "Transfer-Encoding", "Connection", "idempotency-key", "Webhook-Signature"]
    forged = Message(id="msg_1", topic="t", payload=b"abc", headers=tuple((name, "forged") for name in names))

    assert publish_one(receiver.url, forged) == Confirmed()

    [request] = receiver.received
    assert request.body == b"abc"
    assert "forged" not in [value for _, value in request.headers]


def test_characters_outside_ascii_arrive_percent_encoded(receiver: Receiver) -> None:
    assert publish_one(receiver.url, Message(id="m", topic="é", payload=b"", ordering_key="ü 1")) == Confirmed()

    [request] = receiver.received
    assert request.values("Nebis-Topic") + request.values("Nebis-Ordering-Key") == ["%C3%A9", "%C3%BC 1"]


def test_a_batch_is_posted_some_at_a_time(receiver: Receiver) -> None:
    batch = [Message(id=f"msg_{number}", topic="t", payload=b"") for number in range(30)]

    assert publish(receiver.url, *batch, concurrency=3) == [Confirmed()] * 30
    assert sorted(receiver.keys) == sorted(sent.id for sent in batch)


def test_a_message_whose_turn_does_not_come_was_never_sent(receiver: Receiver) -> None:
    receiver.answer(STALL)
    other = Message(id="msg_2", topic="t", payload=b"")

    results = publish(receiver.url, SENT, other, concurrency=1, timeout_seconds=0.5)

    assert results[0] == Unknown(reason="the receiver did not answer in time")
    assert isinstance(results[1], Refused)
    assert receiver.keys == ["msg_1"]


def test_without_secrets_nothing_is_signed(receiver: Receiver) -> None:
    assert publish_one(receiver.url, secrets=()) == Confirmed()

    assert receiver.received[0].values("webhook-signature") == []


def test_a_weak_secret_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="shorter than 16 bytes"):
        WebhookPublisher("https://example.com", secrets="short")
