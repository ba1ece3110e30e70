"""What goes around a route: whoever calls it may leave at any time, and learns how it ended if not."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from nebis import AsyncNebis, Local
from nebis.core.answers import Answer, Locked
from nebis.core.verbs import Verb
from nebis.http import public
from nebis.integrations.asgi import PASSAGE, App, Message, Passage, Receive, Scope, Send, drain
from nebis.integrations.asgi_rules import Protected, rule
from nebis.runtime.async_batcher import AsyncBatcher

KEY = b"0190cf0e-8d4c-7c3e-9a53-2f6f4c1d8e11"


class Client:
    """One request, as a server hands it on."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": "/payments",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"idempotency-key", KEY)],
        }

    async def receive(self) -> Message:
        return {"type": "http.request", "body": b'{"amount": 1}'}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def ask(self, app: App) -> list[Message]:
        await app(self.scope, self.receive, self.send)
        return self.sent


async def answer(send: Send, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})


def protected(nebis: AsyncNebis, app: App) -> Protected:
    return Protected(app, rules=[rule(nebis, "POST /payments", "pay", effects=Local, tenant=public())])


def test_a_caller_who_leaves_is_told_nothing_and_the_route_goes_on() -> None:
    """F075, F077."""
    asyncio.run(_leaving())


async def _leaving() -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()

    async def pay(_scope: Scope, _receive: Receive, send: Send) -> None:
        entered.set()
        await may_end.wait()
        await answer(send, b"paid")

    async with AsyncNebis("memory://") as nebis:
        app, gone = protected(nebis, pay), Client()
        caller = asyncio.create_task(gone.ask(app))
        await entered.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        may_end.set()
        await drain()

        [start, body] = await Client().ask(app)

    assert gone.sent == []
    assert (b"idempotency-replayed", b"true") in start["headers"]
    assert body["body"] == b"paid"


Answers = Sequence[Answer | Locked]


async def _before_the_answer(caller: asyncio.Task[Any], answering: Awaitable[Answers]) -> Answers:
    caller.cancel()
    await asyncio.wait([caller])
    return await answering


async def _with_the_answer(caller: asyncio.Task[Any], answering: Awaitable[Answers]) -> Answers:
    answers = await answering
    caller.cancel()
    return answers


async def _after_the_answer(caller: asyncio.Task[Any], answering: Awaitable[Answers]) -> Answers:
    answers = await answering
    # Its turn comes when the answer is given, and before the caller's own.
    asyncio.get_running_loop().call_soon(caller.cancel)
    return answers


@pytest.mark.parametrize("leaves", [_before_the_answer, _with_the_answer, _after_the_answer])
def test_a_caller_who_leaves_while_its_key_is_claimed_is_told_nothing_and_the_route_goes_on(
    leaves: Callable[[asyncio.Task[Any], Awaitable[Answers]], Awaitable[Answers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F075: nobody can tell it from one who leaves a moment later."""
    asyncio.run(_leaving_early(leaves, monkeypatch))


async def _leaving_early(
    leaves: Callable[[asyncio.Task[Any], Awaitable[Answers]], Awaitable[Answers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pay(_scope: Scope, _receive: Receive, send: Send) -> None:
        await answer(send, b"paid")

    monkeypatch.setattr(AsyncBatcher, "is_quiet", False)
    async with AsyncNebis("memory://") as nebis:
        app, gone = protected(nebis, pay), Client()
        world, _ = await nebis.opened()
        usual = world.batcher._send
        caller: asyncio.Task[Any] = asyncio.create_task(gone.ask(app))

        async def sent(verbs: Sequence[Verb]) -> Answers:
            monkeypatch.setattr(world.batcher, "_send", usual)
            return await leaves(caller, usual(verbs))

        monkeypatch.setattr(world.batcher, "_send", sent)
        with pytest.raises(asyncio.CancelledError):
            await caller
        await drain()

        [start, body] = await Client().ask(app)

    assert gone.sent == []
    assert (b"idempotency-replayed", b"true") in start["headers"]
    assert body["body"] == b"paid"


def test_what_a_route_raises_reaches_its_caller() -> None:
    asyncio.run(_raising())


async def _raising() -> None:
    async def pay(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise LookupError("no such account")

    async with AsyncNebis("memory://") as nebis:
        with pytest.raises(LookupError, match="no such account"):
            await Client().ask(protected(nebis, pay))
        await drain()


def test_a_request_leaves_nothing_for_the_garbage_collector() -> None:
    """A server's `send` knows the scope, so a passage left in it would be part of a circle, with all that it holds."""
    gc.disable()
    try:
        asyncio.run(_leaving_nothing())
    finally:
        gc.enable()


async def _leaving_nothing() -> None:
    passages: list[weakref.ref[Passage]] = []

    class Server(Client):
        async def send(self, message: Message) -> None:
            passages.append(weakref.ref(self.scope[PASSAGE]))
            await super().send(message)

    async def pay(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await answer(send, b"paid")

    async with AsyncNebis("memory://") as nebis:
        app = protected(nebis, pay)
        for _ in ("first", "replay"):
            await Server().ask(app)
        await drain()

    assert [passage() for passage in passages] == [None] * 4


def test_a_body_and_an_answer_in_pieces_are_put_together() -> None:
    asyncio.run(_in_pieces())


async def _in_pieces() -> None:
    class Slow(Client):
        def __init__(self) -> None:
            super().__init__()
            self.left = [b'{"amo', b"unt", b'": 1}']

        async def receive(self) -> Message:
            return {"type": "http.request", "body": self.left.pop(0), "more_body": bool(self.left)}

    got: list[bytes] = []

    async def pay(_scope: Scope, receive: Receive, send: Send) -> None:
        more = True
        while more:
            message = await receive()
            got.append(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 201, "headers": iter([(b"X-Once", b"1")])})
        for piece in (b"pa", b"i"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"d"})

    async with AsyncNebis("memory://") as nebis:
        app = protected(nebis, pay)
        first = await Slow().ask(app)
        [start, body] = await Client().ask(app)

    assert got == [b'{"amo', b"unt", b'": 1}']
    assert first[0]["headers"] == [(b"cache-control", b"no-store"), (b"x-once", b"1"), (b"content-length", b"4")]
    assert (start["status"], body["body"], first[1]["body"]) == (201, b"paid", b"paid")
    assert (b"idempotency-replayed", b"true") in start["headers"]


def test_a_cancelled_route_cancels_its_caller_and_no_other() -> None:
    """A5."""
    asyncio.run(_cancelling())


async def _cancelling() -> None:
    async def pay(_scope: Scope, _receive: Receive, _send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async with AsyncNebis("memory://") as nebis:
        with pytest.raises(asyncio.CancelledError):
            await Client().ask(protected(nebis, pay))
        await drain()


def test_an_answer_on_its_way_to_the_store_is_stored_whoever_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_cancelling_late(monkeypatch))


async def _cancelling_late(monkeypatch: pytest.MonkeyPatch) -> None:
    routes: list[asyncio.Task[Any] | None] = []

    async def pay(_scope: Scope, _receive: Receive, send: Send) -> None:
        routes.append(asyncio.current_task())
        monkeypatch.setattr(world.batcher, "_send", sent)
        await answer(send, b"paid")

    async def sent(verbs: Sequence[Verb]) -> Answers:
        [route] = routes
        assert route is not None
        return await _before_the_answer(route, usual(verbs))

    async with AsyncNebis("memory://") as nebis:
        app, client = protected(nebis, pay), Client()
        world, _ = await nebis.opened()
        usual = world.batcher._send
        with pytest.raises(asyncio.CancelledError):
            await client.ask(app)
        monkeypatch.setattr(world.batcher, "_send", usual)
        await world._wait_for_all(grace_seconds=10.0)

        [start, body] = await Client().ask(app)

    assert client.sent == []
    assert (b"idempotency-replayed", b"true") in start["headers"]
    assert body["body"] == b"paid"


def test_a_route_hears_of_its_clients_end_once_the_answer_is_sent() -> None:
    """F074, A1."""
    asyncio.run(_hearing())


async def _hearing() -> None:
    heard: list[tuple[str, int]] = []

    async with AsyncNebis("memory://") as nebis:
        client = Client()

        async def pay(_scope: Scope, receive: Receive, send: Send) -> None:
            async def listen() -> None:
                heard.append(((await receive())["type"], len(client.sent)))

            await receive()
            listening = asyncio.create_task(listen())
            await asyncio.sleep(0)
            await answer(send, b"paid")
            await listening

        await client.ask(protected(nebis, pay))

    assert heard == [("http.disconnect", 2)]
