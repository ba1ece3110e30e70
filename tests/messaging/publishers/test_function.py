import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nebis.errors import Rejected, Retryable
from nebis.messaging.publishers.function import FunctionPublisher
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown

BATCH = [Message(id=f"msg_{number}", topic="t", payload=b"") for number in range(3)]


def publish(function: Callable[[Message], Any]) -> list[PublishResult]:
    async def scenario() -> list[PublishResult]:
        publisher = FunctionPublisher(function)
        results = await publisher.publish(BATCH)
        await publisher.reset()
        await publisher.aclose()
        return list(results)

    return asyncio.run(scenario())


def test_a_plain_function_gets_each_message_off_the_event_loop() -> None:
    seen = []

    results = publish(lambda message: seen.append((message.id, threading.current_thread() is threading.main_thread())))

    assert results == [Confirmed()] * 3
    assert seen == [(message.id, False) for message in BATCH]


def test_a_coroutine_function_runs_on_the_event_loop() -> None:
    seen = []

    async def send(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append((message.id, threading.current_thread() is threading.main_thread()))

    assert publish(send) == [Confirmed()] * 3
    assert seen == [(message.id, True) for message in BATCH]


def test_an_object_whose_call_is_a_coroutine_is_awaited() -> None:
    class Sender:
        sent = 0

        async def __call__(self, message: Message) -> None:
            self.sent += 1

    sender = Sender()

    assert publish(sender) == [Confirmed()] * 3
    assert sender.sent == 3


@pytest.mark.parametrize("answer", [Confirmed(), Refused(reason="no"), Unknown(reason="who knows")])
def test_a_function_may_say_what_became_of_a_message(answer: PublishResult) -> None:
    assert publish(lambda _: answer) == [answer] * 3


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Retryable("busy"), Refused(reason="busy")),
        (Rejected("no such account"), Refused(reason="no such account", is_permanent=True)),
        (OSError("reset"), Unknown(reason="OSError: reset")),
        (ValueError(), Unknown(reason="ValueError")),
    ],
)
def test_an_error_says_whether_the_message_may_have_been_sent(error: Exception, expected: PublishResult) -> None:
    def send(message: Message) -> None:
        if message.id == "msg_1":
            raise error

    assert publish(send) == [Confirmed(), expected, Confirmed()]
