"""The half that all ASGI frameworks share: the route runs in a task of our own, and what it sends is stored first.

The claim is made inside, by a decorator on the endpoint, where authentication and validation have run. The answer is
taken outside, around the route, where the framework has rendered it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from nebis.aio import AsyncNebis
from nebis.async_attempt import AsyncOpenAttempt
from nebis.core.quick import maker
from nebis.core.strictjson import parse
from nebis.errors import BodyTooLarge, ConfigError, NebisError
from nebis.flows.request import Ending
from nebis.http.body import BodyBuffer
from nebis.http.exchange import Exchange
from nebis.http.headers import HeaderPairs, is_json, picked
from nebis.http.options import Reference
from nebis.http.rawexchange import RawExchange, make_raw, raw
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

_NO_NAMES: Final[Mapping[bytes, str]] = {}

_running: dict[asyncio.Task[None], asyncio.Future[Any]] = {}
"""What the caller of each task waits for. It also keeps tasks alive whose callers are gone (F077)."""
_adopted_by: dict[asyncio.Task[None], AsyncNebis] = {}
"""Whose `close` waits for a task."""


class Disconnected(Exception):
    """A client that went away before its request was whole: nothing was claimed, and nobody is there to be told."""


def _unrendered(_: Any) -> Exchange:
    raise AssertionError("nobody said how an answer is made here")


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Passage:
    """One request on its way through a route.

    What arrives is given to the application as it comes, and kept, up to a cap, for the claim. What the application
    sends is gathered, once there is a claim, and sent on as it was stored.
    """

    _scope: Scope
    _receive: Receive
    _send: Send
    protection: Admission | None
    wanted: Mapping[bytes, str]
    """Which headers are read of this request."""
    headers: HeaderPairs = ()
    """These, once the body is whole."""
    tenant: str = ""
    body: bytes | None = None
    """The body, once it is whole: a key is never bound to a part of a command (F081)."""
    tree: object = None
    """The whole body, parsed."""
    refusal: NebisError | None = None
    """Why the body was not taken; the framework may have made something else of it."""
    attempt: AsyncOpenAttempt | OpenAttempt | None = None
    """The claim, once it is made and until it is settled."""
    answer: RawExchange | Exchange | None = None
    """What is sent in place of anything that the framework renders."""
    error: Exception | None = None
    """What the endpoint raised."""
    is_own: bool = False
    """Whether what is being sent is what the endpoint returned, and not what a failure after it was turned into."""
    end: asyncio.Future[Any] | None = None
    """What the caller waits for while a task of ours runs or a claim is made; cancelled if it is gone."""
    render: Callable[[Any], Exchange] = _unrendered
    """Makes an answer of what an endpoint returns; set by the framework's half."""
    # Most bodies come in one message, and most answers leave in one: only for others is anything gathered.
    _has_begun: bool = False
    _pieces: BodyBuffer | None = None
    _waiting: Message | None = None
    _waiting_more: deque[Message] | None = None
    _start: Message | None = None
    _sent: bytearray | None = None
    _has_sent: bool = False
    _is_over: bool = False
    _over: asyncio.Event | None = None

    @property
    def protected(self) -> Protection:
        """Return how the endpoint is protected that this request claims for."""
        assert isinstance(self.protection, Protection)
        return self.protection

    def protect(self, protection: Admission) -> None:
        """Keep the body from its first byte on, and read what counts for this endpoint too."""
        if self.protection is None:
            self.protection = protection
            if self._has_begun:
                raise ConfigError([NOT_INSTALLED])
        self.wanted = {**self.wanted, **protection.wanted}
        if self.body is not None:
            self.headers = picked(self._scope.get("headers", ()), self.wanted)

    async def receive(self) -> Message:
        """Give the route its messages. After the claim no client can hang up on it (F074)."""
        message = self._waiting
        if message is not None:
            self._waiting = self._waiting_more.popleft() if self._waiting_more else None
            return message
        if self.attempt is None or self.body is None:
            message = await self._receive()
            self._take(message)
            return message
        if not self._is_over:
            self._over = self._over or asyncio.Event()
            await self._over.wait()
        return {"type": "http.disconnect"}

    async def whole(self) -> bytes:
        """Read the body to its end, under the cap; raise `BodyTooLarge`, or `Disconnected` if it never ends."""
        while self.body is None:
            self.keep(await self._receive())
        return self.body

    def keep(self, message: Message) -> None:
        """Take what arrived, and keep it for the route; raise what `whole` does."""
        self._take(message)
        if self._waiting is None:
            self._waiting = message
        elif self._waiting_more is None:
            self._waiting_more = deque((message,))
        else:
            self._waiting_more.append(message)
        if message["type"] == "http.disconnect":
            raise Disconnected

    def _take(self, message: Message) -> None:
        """Keep what arrived of the body; once it is whole, parse it."""
        self._has_begun = True
        if self.protection is None or self.body is not None or message["type"] != "http.request":
            return
        limit_bytes = self.protection.body_limit_bytes
        body: bytes = message.get("body", b"")
        is_last = not message.get("more_body", False)
        try:
            if self._pieces is not None or not is_last:
                self._pieces = self._pieces or BodyBuffer(limit_bytes)
                self._pieces.add(body, is_last=is_last)
                if not is_last:
                    return
                body = self._pieces.bytes()
            elif len(body) > limit_bytes:
                raise BodyTooLarge(limit_bytes)
            self.body = body
            self.headers = picked(self._scope.get("headers", ()), self.wanted)
            # Before any parser sees it: what we refuse as ambiguous may also bring one down (F100).
            self.tree = parse(body, limit_bytes=limit_bytes) if body and is_json(self.headers) else body
        except NebisError as refusal:
            self.refusal = refusal
            raise

    async def send(self, message: Message) -> None:
        """Pass on what an unprotected request sends; gather what a protected one does, and settle at its end."""
        if self.attempt is None and self.answer is None:
            if self.refusal is None or self.protection is None:
                if self.end is None or not self.end.cancelled():
                    await self._send(message)
                return
            self.answer = self.protection.refused(self.refusal)
        kind = message["type"]
        if kind == "http.response.start":
            self._start = message
        elif kind == "http.response.body":
            chunk = message.get("body", b"")
            if message.get("more_body", False):
                self._gather(chunk)
                return
            if self.attempt is not None and self._start is not None:
                protection = self.protected
                if self._sent is None:
                    body = bytes(chunk[: protection.storage.limit_bytes + 1])  # No copy, unless it is above the cap.
                else:
                    self._gather(chunk)
                    body = bytes(self._sent)
                headers = self._start.get("headers", ())
                live = make_raw(self._start["status"], headers if type(headers) is list else list(headers), body)
                end = protection.ended(live, error=self.error, is_own=self.is_own or self.error is not None)
                # Written out, as `settle` would be one coroutine more that every request holds while it waits.
                try:
                    ending = await self._settling(end)
                except NebisError as error:
                    self.answer = protection.refused(error)
                else:
                    if (reference := self.tell(ending, live)) is not None:
                        await self.rebuild(reference)
            await self.send_answer()

    def _gather(self, chunk: bytes) -> None:
        """Keep a chunk; of an answer above the cap only as much as shows that it is."""
        if self.answer is None:
            self._sent = bytearray() if self._sent is None else self._sent
            self._sent += chunk[: self.protected.storage.limit_bytes + 1 - len(self._sent)]

    async def settle(self, end: Returned[Any] | Raised) -> None:
        """Store how the attempt ended, and find out what its caller is told; raises what the endpoint raised."""
        try:
            ending = await self._settling(end)
        except NebisError as error:
            self.answer = self.protected.refused(error)
            return
        if (reference := self.tell(ending)) is not None:
            await self.rebuild(reference)

    def _settling(self, end: Returned[Any] | Raised) -> Awaitable[Ending]:
        attempt, self.attempt = self.attempt, None
        assert attempt is not None
        if isinstance(attempt, AsyncOpenAttempt):
            return attempt.settle(end)
        return asyncio.to_thread(attempt.settle, end)

    def tell(self, ending: Ending, live: RawExchange | None = None) -> Reference | None:
        """Decide what the caller gets; a reference is still to be rebuilt from, as that answer is not stored."""
        protection = self.protection
        assert isinstance(protection, Protection)
        answer = protection.raw_answer(ending, tenant=self.tenant, live=live)
        if isinstance(answer, Reference):
            return answer
        self.answer = answer
        return None

    async def rebuild(self, reference: Reference) -> None:
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
            self.answer = protection.replayed(self.render(value))
        except NebisError as error:
            self.answer = protection.refused(error)

    async def send_answer(self) -> None:
        """Send the answer, whole and once. Only then may the route learn that it is over (A1)."""
        answer, end = self.answer, self.end
        if answer is not None and not self._has_sent:
            self._has_sent = True
            told = answer if isinstance(answer, RawExchange) else raw(answer)
            if end is None or not end.cancelled():
                await self._send({"type": "http.response.start", "status": told.status, "headers": told.headers})
            if end is None or not end.cancelled():
                await self._send({"type": "http.response.body", "body": told.body})
        self._is_over = True
        if self._over is not None:
            self._over.set()


_make_passage: Final = maker(Passage)


def guard(app: App, scope: Scope, receive: Receive, send: Send, protection: Admission | None = None) -> Awaitable[None]:
    """Run a route in a task that outlives its caller, and send only what the store confirmed (I11)."""
    if scope["type"] != "http" or PASSAGE in scope:
        return app(scope, receive, send)
    return run_apart(app, scope, entered(scope, receive, send, protection))


def entered(scope: Scope, receive: Receive, send: Send, protection: Admission | None) -> Passage:
    """Begin the passage of a request; whoever does so ends it by `left`, or hands it to `run_apart`."""
    # In place: a copy of the scope would hide the route from middleware outside.
    wanted = _NO_NAMES if protection is None else protection.wanted
    scope[PASSAGE] = passage = _make_passage(scope, receive, send, protection, wanted)
    extensions = scope.get("extensions")
    if extensions:
        scope["extensions"] = {name: value for name, value in extensions.items() if name not in _PASSING_BY}
    return passage


def left(scope: Scope, passage: Passage) -> None:
    """End the passage of a request.

    The server's `send` knows the scope, and the passage knows both; what was raised knows the passage, by the frames
    that it went through: circles that only the collector would find.
    """
    scope.pop(PASSAGE, None)
    passage.error = passage.refusal = None
    if passage.end is not None and not passage.end.cancelled():
        passage.end = None  # It may get what was raised here, which knows the passage: another such circle.


def run_apart(app: App, scope: Scope, passage: Passage, nebis: AsyncNebis | None = None) -> asyncio.Future[None]:
    """Run a route in a task that outlives its caller; return what tells how it ended.

    As a shield does, for less: whoever cancels our caller cancels that future, never the task (F075).
    """
    passage.end = end = asyncio.get_running_loop().create_future()
    start_apart(app, scope, passage, nebis)
    return end


def start_apart(
    app: App, scope: Scope, passage: Passage, nebis: AsyncNebis | None, context: Context | None = None
) -> None:
    """Do so for a caller that waits for the end of its passage already."""
    end = passage.end
    assert end is not None
    task = end.get_loop().create_task(_pass(app, scope, passage), context=context)
    _running[task] = end
    if nebis is not None:  # As `adopt` does, with one callback for both.
        _adopted_by[task] = nebis
        nebis.adopted.add(task)
    task.add_done_callback(_ended, context=context)


def _ended(task: asyncio.Task[None]) -> None:
    """Tell the caller how the task ended, if it still waits."""
    end, nebis = _running.pop(task), _adopted_by.pop(task, None)
    if nebis is not None:
        nebis.adopted.discard(task)
    is_waiting = not end.done()
    if task.cancelled():
        end.cancel()
        return
    error = task.exception()
    if not is_waiting:
        return
    if error is None:
        end.set_result(None)
    else:
        end.set_exception(error)
        end.exception()  # Retrieved here too: a caller who is cancelled by now will not ask for it.


async def _pass(app: App, scope: Scope, passage: Passage) -> None:
    try:
        await app(scope, passage.receive, passage.send)
        if passage.attempt is not None:
            raise RuntimeError("The route ended without an answer.")  # noqa: TRY301 - settled like what a route raises.
    except Disconnected:
        return
    except Exception as error:
        if passage.attempt is not None:
            await _settle_failure(passage, error)
        elif passage.answer is None and passage.refusal is not None and passage.protection is not None:
            passage.answer = passage.protection.refused(passage.refusal)
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
        left(scope, passage)


async def _settle_failure(passage: Passage, error: Exception) -> None:
    """Store that a route raised. What nobody can make an answer of stays what it was, for whoever raises it again."""
    trace = error.__traceback__
    try:
        await passage.settle(Raised(error))
    except Exception as told:
        if told is not error:
            raise
        error.__traceback__ = trace  # Without the frames that it was carried through and that hold it: a circle.


async def drain() -> None:
    """Wait until every protected route of this loop has ended, also those whose clients are gone."""
    loop = asyncio.get_running_loop()
    running = [task for task in list(_running) if task.get_loop() is loop]
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
