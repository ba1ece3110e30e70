"""The half that all ASGI frameworks share: the route runs in a task of our own, and what it sends is stored first.

The claim is made inside, by a decorator on the endpoint, where authentication and validation have run. The answer is
taken outside, around the route, where the framework has rendered it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from nebis.aio import AsyncNebis, AsyncOpenAttempt
from nebis.errors import ConfigError, NebisError
from nebis.flows.request import Ending
from nebis.http.body import BodyBuffer, json_of
from nebis.http.exchange import Exchange
from nebis.http.headers import about_body, decoded, encoded
from nebis.http.options import Reference
from nebis.integrations.protection import Admission, Protection
from nebis.integrations.routetable import announce
from nebis.ports.asks import Raised, Returned
from nebis.sync import Nebis, OpenAttempt

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PASSAGE = "nebis"
"""Where the passage of a request is kept: in its scope, as context variables set in a dependency are lost."""
NOT_INSTALLED = (
    "a protected endpoint was called without the part of nebis that goes around it, so nothing was run; "
    "install the middleware, route class or plugin that its how-to page names"
)
# Ways to send bytes that would pass us by unseen.
_PASSING_BY = frozenset(
    {"http.response.pathsend", "http.response.zerocopysend", "http.response.trailers", "http.response.push"}
    | {"http.response.early_hint"}
)

_running: dict[asyncio.Task[None], asyncio.Future[None]] = {}
"""What the caller of each task waits for. It also keeps tasks alive whose callers are gone (F077)."""


class Disconnected(Exception):
    """A client that went away before its request was whole: nothing was claimed, and nobody is there to be told."""


class Inbox:
    """What arrives from the client: given to the application as it comes, and kept, up to a cap, for the claim."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.refusal: NebisError | None = None
        """Why the body was not taken; the framework may have made something else of it."""
        self.tree: object = None
        """The whole body, parsed."""
        self._scope = scope
        self._receive = receive
        self._waiting: deque[Message] = deque()
        self._body: BodyBuffer | None = None
        self._has_begun = False

    def keep(self, limit_bytes: int) -> None:
        """Keep the body from its first byte on."""
        if self._body is None:
            if self._has_begun:
                raise ConfigError([NOT_INSTALLED])
            self._body = BodyBuffer(limit_bytes)

    @property
    def has_more(self) -> bool:
        """Tell whether the application has not been given all of the body."""
        return bool(self._waiting) or self._body is None or not self._body.is_whole

    async def next(self) -> Message:
        """Give the application the next message, whether or not it was read before."""
        return self._waiting.popleft() if self._waiting else await self._arrive()

    async def whole(self) -> bytes:
        """Read the body to its end, under the cap; raise `BodyTooLarge`, or `Disconnected` if it never ends."""
        assert self._body is not None
        while not self._body.is_whole:
            message = await self._arrive()
            self._waiting.append(message)
            if message["type"] == "http.disconnect":
                raise Disconnected
        return self._body.bytes()

    async def _arrive(self) -> Message:
        message = await self._receive()
        self._has_begun = True
        if self._body is not None and message["type"] == "http.request":
            try:
                self._body.add(message.get("body", b""), is_last=not message.get("more_body", False))
                if self._body.is_whole:
                    # Before any parser sees it: what we refuse as ambiguous may also bring one down (F100).
                    headers = about_body(self._scope.get("headers", ()))
                    self.tree = json_of(self._body.bytes(), headers, limit_bytes=self._body.limit_bytes)
            except NebisError as refusal:
                self.refusal = refusal
                raise
        return message


class Passage:
    """One request on its way through a route."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, protection: Admission | None) -> None:
        self.inbox = Inbox(scope, receive)
        self.protection = protection
        self.tenant = ""
        self.attempt: AsyncOpenAttempt | OpenAttempt | None = None
        """The claim, once it is made and until it is settled."""
        self.answer: Exchange | None = None
        """What is sent in place of anything that the framework renders."""
        self.error: Exception | None = None
        """What the endpoint raised."""
        self.is_own = False
        """Whether what is being sent is what the endpoint returned, and not what a failure after it was turned into."""
        self.is_detached = False
        self._send = send
        self._is_over = False
        self._over: asyncio.Event | None = None
        self._start: Message | None = None
        self._body = bytearray()
        self._has_sent = False
        if protection is not None:
            self.inbox.keep(protection.body_limit_bytes)

    @property
    def protected(self) -> Protection:
        """Return how the endpoint is protected that this request claims for."""
        assert isinstance(self.protection, Protection)
        return self.protection

    async def receive(self) -> Message:
        """Give the route its messages. After the claim no client can hang up on it (F074)."""
        if self.attempt is None or self.inbox.has_more:
            return await self.inbox.next()
        if not self._is_over:
            self._over = self._over or asyncio.Event()
            await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Pass on what an unprotected request sends; gather what a protected one does, and settle at its end."""
        if self.attempt is None and self.answer is None:
            if self.inbox.refusal is None or self.protection is None:
                if not self.is_detached:
                    await self._send(message)
                return
            self.answer = self.protection.refused(self.inbox.refusal)
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            self._gather(message.get("body", b""))
            if not message.get("more_body", False):
                await self._finish()

    def _gather(self, chunk: bytes) -> None:
        """Keep a chunk; of an answer above the cap only as much as shows that it is."""
        if self.answer is None:
            room = self.protected.storage.limit_bytes + 1 - len(self._body)
            self._body += chunk[:room]

    async def _finish(self) -> None:
        if self.attempt is not None and self._start is not None:
            live = Exchange(
                status=self._start["status"], headers=decoded(self._start.get("headers", ())), body=bytes(self._body)
            )
            is_own = self.is_own or self.error is not None
            await self.settle(self.protected.ended(live, error=self.error, is_own=is_own), live)
        await self.send_answer()

    async def settle(self, end: Returned[Any] | Raised, live: Exchange | None) -> None:
        """Store how the attempt ended, and find out what its caller is told; raises what the endpoint raised."""
        attempt, self.attempt = self.attempt, None
        assert attempt is not None
        try:
            ending = await (
                attempt.settle(end) if isinstance(attempt, AsyncOpenAttempt) else asyncio.to_thread(attempt.settle, end)
            )
        except NebisError as error:
            self.answer = self.protected.refused(error)
            return
        await self.tell(ending, live)

    async def tell(self, ending: Ending, live: Exchange | None = None) -> None:
        """Decide what the caller gets, rebuilding an answer that is not stored."""
        answer = self.protected.answer(ending, tenant=self.tenant, live=live)
        self.answer = answer if isinstance(answer, Exchange) else await self._rebuilt(answer)

    async def _rebuilt(self, reference: Reference) -> Exchange:
        """Call the application's function that makes an answer from a resource."""
        protection = self.protected
        assert protection.reconstruct is not None
        rebuild = protection.reconstruct.rebuild
        try:
            value = (
                await rebuild(reference)
                if inspect.iscoroutinefunction(rebuild)
                else await asyncio.to_thread(rebuild, reference)
            )
            return protection.replayed(self.render(value))
        except NebisError as error:
            return protection.refused(error)

    render: Callable[[Any], Exchange]
    """Makes an answer of what an endpoint returns; set by the framework's half."""

    async def send_answer(self) -> None:
        """Send the answer, whole and once. Only then may the route learn that it is over (A1)."""
        if self.answer is not None and not self._has_sent:
            self._has_sent = True
            headers = encoded(self.answer.framed())
            if not self.is_detached:
                await self._send({"type": "http.response.start", "status": self.answer.status, "headers": headers})
            if not self.is_detached:
                await self._send({"type": "http.response.body", "body": self.answer.body})
        self._is_over = True
        if self._over is not None:
            self._over.set()


async def guard(app: App, scope: Scope, receive: Receive, send: Send, protection: Admission | None = None) -> None:
    """Run a route in a task that outlives its caller, and send only what the store confirmed (I11)."""
    if scope["type"] != "http" or PASSAGE in scope:
        await app(scope, receive, send)
        return
    passage = Passage(scope, receive, send, protection)
    # In place: a copy of the scope would hide the route from middleware outside.
    scope[PASSAGE] = passage
    extensions = scope.get("extensions")
    if extensions:
        scope["extensions"] = {name: value for name, value in extensions.items() if name not in _PASSING_BY}
    loop = asyncio.get_running_loop()
    task = loop.create_task(_pass(app, scope, passage))
    # As a shield does, for less: whoever cancels our caller cancels this future, never the task (F075).
    end = _running[task] = loop.create_future()
    task.add_done_callback(_ended)
    try:
        await end
    except asyncio.CancelledError:
        passage.is_detached = True
        raise
    task.result()


def _ended(task: asyncio.Task[None]) -> None:
    end = _running.pop(task)
    if not end.done():
        end.set_result(None)
    if not task.cancelled():
        task.exception()  # Retrieved here too: a detached caller will not ask for it.


async def _pass(app: App, scope: Scope, passage: Passage) -> None:
    try:
        await app(scope, passage.receive, passage.send)
        if passage.attempt is not None:
            raise RuntimeError("The route ended without an answer.")  # noqa: TRY301 - settled like what a route raises.
    except Disconnected:
        return
    except Exception as error:
        if passage.attempt is not None:
            await passage.settle(Raised(error), None)
        elif passage.answer is None and passage.inbox.refusal is not None and passage.protection is not None:
            passage.answer = passage.protection.refused(passage.inbox.refusal)
        if passage.answer is None:
            raise
        await passage.send_answer()
        if not isinstance(error, NebisError):
            raise
    except BaseException:
        # Not released: what was cancelled may have happened. The lease lapses and recovery decides (A5).
        attempt, passage.attempt = passage.attempt, None
        if isinstance(attempt, AsyncOpenAttempt):
            await attempt.abandon()
        elif attempt is not None:
            attempt.abandon()
        raise
    finally:
        # The server's `send` knows the scope, and the passage knows both: a circle that only the collector would find.
        scope.pop(PASSAGE, None)


async def drain() -> None:
    """Wait until every protected route of this loop has ended, also those whose clients are gone."""
    loop = asyncio.get_running_loop()
    running = [task for task in _running if task.get_loop() is loop]
    if running:
        await asyncio.wait(running)


def lifespan(nebis: AsyncNebis | Nebis) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Make the lifespan of an application: the store is open while it runs, and attempts end before it closes.

    At its start the log says which routes are protected and how, and which are not.
    """

    @asynccontextmanager
    async def span(app: Any) -> AsyncIterator[None]:
        if app is not None:
            announce(app)
        if isinstance(nebis, AsyncNebis):
            await nebis.open()
        else:
            await asyncio.to_thread(nebis.open)
        try:
            yield
        finally:
            await drain()
            if isinstance(nebis, AsyncNebis):
                await nebis.close()
            else:
                await asyncio.to_thread(nebis.close)

    return span
