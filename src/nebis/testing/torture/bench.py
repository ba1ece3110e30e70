"""What a check works with: fresh requests, honest and other ways to send them, and the count of effects."""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Multiset
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from uuid import uuid4

from nebis.testing.torture.check import Failed, require, skip
from nebis.testing.torture.counter import Counter
from nebis.testing.torture.curl import Manner, Names, Sent, line
from nebis.testing.torture.operation import Headers, Operation, placed_text
from nebis.testing.torture.wire import Address, Connection, NoAnswer, Reply, Request, connected, exchange

_COME_BACK: Final = frozenset({425, 429, 503})
"""Answers that ask to try again, whatever an API calls in flight."""
_FRESH_TEXT: Final = "$(uuidgen | tr -d -)"
_FRESH_NUMBER: Final = "$(date +%s%N | cut -c5-17)"


class Caller(Enum):
    """Who asks."""

    FIRST = "first"
    SECOND = "second"
    NOBODY = "nobody"
    IMPOSTOR = "impostor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One intended request: values that no other has, and a key."""

    fresh: Mapping[str, str]
    key: str

    @property
    def unique(self) -> str:
        """Return the text that only this request holds."""
        return self.fresh["unique"]


class Tally:
    """How many effects some drafts had since it was made."""

    def __init__(self, bench: Bench, drafts: Sequence[Draft], before: int) -> None:
        self._bench = bench
        self._drafts = drafts
        self._before = before

    async def since(self, expected: int = 0) -> int:
        """Return how many there were, having waited for those that are expected and then for a stray one."""
        effects = self._bench.operation.effects
        deadline = time.monotonic() + effects.lag_seconds
        # Whoever counts is another process, which sets no event.
        while await self._count() < expected and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        if effects.settle_seconds:
            await asyncio.sleep(effects.settle_seconds)
        return await self._count()

    async def require(self, expected: int, why: str) -> None:
        """Fail the check unless there were exactly that many."""
        seen = await self.since(expected)
        require(seen == expected, f"{why}: {seen} effect{'' if seen == 1 else 's'} instead of {expected}")

    async def _count(self) -> int:
        return await self._bench.count(self._drafts) - self._before


class Bench:
    """One API under test, for one check after another."""

    def __init__(self, operation: Operation, target: Address) -> None:
        self.operation = operation
        self.target = target
        self._counter = Counter(operation, target)
        self._fresh: dict[str, str] = {}
        self._sent: list[Sent] = []
        self._shared: dict[str, Any] = {}

    def begin(self) -> None:
        """Forget what the last check sent."""
        self._fresh.clear()
        self._sent.clear()

    @property
    def reproduction(self) -> str:
        """Return a line for a shell that sends what this check sent."""
        return line(self.target, self._sent, Names(fresh=self._fresh, secrets=self.operation.secrets))

    def draft(self, make_key: Callable[[str], str] = str) -> Draft:
        """Make a request that nobody made before; its key is made of a text that nobody else has."""
        unique, key = uuid4().hex, uuid4().hex
        number = str(uuid4().int % 10**13 + 10**12)
        self._fresh |= {key: _FRESH_TEXT, unique: _FRESH_TEXT, number: _FRESH_NUMBER}
        return Draft(fresh={"unique": unique, "number": number}, key=make_key(key))

    def request(
        self,
        draft: Draft,
        *,
        variant: str = "",
        caller: Caller = Caller.FIRST,
        keys: Sequence[str] | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        method: str | None = None,
        path: str | None = None,
        is_chunked: bool = False,
    ) -> Request:
        """Write down a request of a draft, or something close to it."""
        operation = self.operation
        if variant and variant not in operation.variants:
            skip(f"the operation file has no variants.{variant}")
        type_ = operation.content_type if content_type is None else content_type
        return Request(
            method=method or operation.method,
            path=placed_text(operation.path if path is None else path, draft.fresh),
            headers=(
                *self.credentials(caller),
                *operation.headers,
                *((("Content-Type", type_),) if type_ else ()),
                *((operation.keys.header, key) for key in ([draft.key] if keys is None else keys)),
            ),
            body=operation.rendered(variant, draft.fresh) if body is None else body,
            is_chunked=is_chunked,
        )

    def credentials(self, caller: Caller) -> Headers:
        """Return the headers by which somebody is known; skip the check where the file names nobody."""
        operation = self.operation
        if caller is Caller.FIRST:
            return operation.first
        if caller is Caller.SECOND:
            return operation.second or skip("the operation file has no tenants.second")
        if not operation.first:
            skip("the operation file has no tenants.first, so that nobody has to authenticate")
        if caller is Caller.NOBODY:
            return ()
        return tuple((name, f"{value[:-4]}zzzzzzzz") for name, value in operation.first)

    async def send(self, request: Request) -> Reply:
        """Send a request as an honest client does."""
        self._sent.append(Sent(request, Manner.PLAIN))
        return await exchange(self.target, request, within_seconds=self.operation.limits.request_seconds)

    async def settled(self, request: Request) -> Reply:
        """Send a request as a patient client does: again, while it is told to come back."""
        deadline = time.monotonic() + self.operation.limits.settled_seconds
        self._sent.append(Sent(request, Manner.PLAIN))
        pause_seconds = 0.02
        while True:
            reply = await exchange(self.target, request, within_seconds=self.operation.limits.request_seconds)
            if not self.is_not_yet(reply) or time.monotonic() > deadline:
                return reply
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, 0.5)

    def is_not_yet(self, reply: Reply) -> bool:
        """Tell whether the answer asks to come back with the same key."""
        return reply.status in self.operation.keys.in_flight_statuses or reply.status in _COME_BACK

    def is_success(self, reply: Reply) -> bool:
        """Tell whether the operation was done."""
        return reply.status in self.operation.success

    async def succeeded(self, request: Request, what: str = "the first request") -> Reply:
        """Send a request that must succeed."""
        reply = await self.settled(request)
        require(self.is_success(reply), f"{what} was answered {reply.status}, not {self._successes()}")
        return reply

    async def refused(self, request: Request, what: str) -> Reply | None:
        """Send a request that must be refused; None if the server hung up instead, which also refuses it."""
        try:
            reply = await self.send(request)
        except NoAnswer:
            await self._require_alive(what)
            return None
        require(400 <= reply.status < 500, f"{what} was answered {reply.status}, not refused with 4xx")
        return reply

    async def together(self, requests: Sequence[Request], *, apart_seconds: float = 0.0) -> list[Reply]:
        """Send requests at the same moment, or that far apart, each on a connection that is open by then."""
        ready = asyncio.Barrier(len(requests))
        self._sent += [Sent(request, Manner.TOGETHER) for request in requests]

        async def one(number: int, request: Request) -> Reply:
            async with self.connection() as connection:
                await ready.wait()
                await asyncio.sleep(number * apart_seconds)
                await connection.send(request)
                return await connection.read()

        limits = self.operation.limits
        patience_seconds = limits.request_seconds + limits.settled_seconds
        try:
            async with asyncio.timeout(patience_seconds):
                return await asyncio.gather(*(one(number, request) for number, request in enumerate(requests)))
        except TimeoutError:
            raise NoAnswer(f"not all twins were answered within {patience_seconds:g} s") from None

    @asynccontextmanager
    async def connection(self, *requests: Request, manner: Manner = Manner.CUT) -> AsyncIterator[Connection]:
        """Open a connection for what no honest client does with these requests."""
        self._sent += [Sent(request, manner) for request in requests]
        async with connected(self.target, within_seconds=self.operation.limits.request_seconds) as connection:
            yield connection

    async def tally(self, *drafts: Draft) -> Tally:
        """Begin to count the effects of these drafts."""
        return Tally(self, drafts, await self.count(drafts))

    async def count(self, drafts: Sequence[Draft]) -> int:
        """Return how often drafts had their effect; where the count is of everything, everything counts."""
        if not self.operation.effects.is_per_request:
            return await self._counter.count({})
        return sum([await self._counter.count(draft.fresh) for draft in drafts])

    async def shared(self, name: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """Return what an earlier check found out, with the line that showed it, or find it out now."""
        if name not in self._shared:
            self._shared[name] = (await make(), dict(self._fresh), list(self._sent))
        found, fresh, sent = self._shared[name]
        self._fresh, self._sent = dict(fresh), list(sent)
        return found

    def statuses(self, replies: Sequence[Reply]) -> str:
        """Say which statuses came how often."""
        counted = sorted(Multiset(reply.status for reply in replies).items())
        return ", ".join(f"{times} x {status}" for status, times in counted)

    async def _require_alive(self, what: str) -> None:
        """Tell a server that hangs up on what it refuses from one that died of it."""
        try:
            async with self.connection():
                pass
        except NoAnswer as error:
            raise Failed(f"after {what} the server is gone: {error}") from error

    def _successes(self) -> str:
        return " or ".join(str(status) for status in self.operation.success)
