"""Clients that hang up, stall, repeat themselves, and reuse their connections."""

from __future__ import annotations

import asyncio

from nebis.testing.torture.bench import Bench, Caller, Draft
from nebis.testing.torture.check import Collection, Group, Severity, require, skip
from nebis.testing.torture.curl import Manner
from nebis.testing.torture.wire import NoAnswer, Request

check = Collection(Group.NETWORK)

MOMENTS_SECONDS = (0.0, 0.001, 0.003, 0.008, 0.02, 0.05)
"""After how long a client hangs up: from before anybody has read its request to after its answer."""


async def _retried(bench: Bench, draft: Draft, request: Request) -> bytes:
    """Retry after a cut, as an honest client does, until there is an answer."""
    reply = await bench.succeeded(request, "the retry after a cut connection")
    again = await bench.succeeded(bench.request(draft), "another retry")
    require(again.body == reply.body, "two retries after a cut connection got different answers")
    return reply.body


@check(
    "hang-up",
    "A client that hangs up finds its answer later",
    proves="Whenever the client hangs up, a retry succeeds and the operation has happened once.",
    faults="F074 F075",
    severity=Severity.CRITICAL,
)
async def hang_up(bench: Bench) -> None:
    for seconds in MOMENTS_SECONDS:
        draft = bench.draft()
        tally = await bench.tally(draft)
        request = bench.request(draft)
        async with bench.connection(request) as connection:
            await connection.send(request)
            await asyncio.sleep(seconds)
        await _retried(bench, draft, request)
        await tally.require(1, f"a client that hung up after {seconds * 1000:g} ms, and its retry")


@check(
    "hang-up-slow",
    "A client that hangs up in the middle finds its answer later",
    proves="A client that is gone while the operation runs does not cancel it half-way.",
    faults="F074 F004",
    severity=Severity.CRITICAL,
)
async def hang_up_slow(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft, variant="slow")
    async with bench.connection(request) as connection:
        await connection.send(request)
        await asyncio.sleep(0.02)
        connection.reset()
    reply = await bench.succeeded(request, "the retry after a cut connection")
    await tally.require(1, "a client that was cut off in the middle, and its retry")
    again = await bench.succeeded(request, "another retry")
    require(again.body == reply.body, "two retries after a cut connection got different answers")


@check(
    "reset",
    "A connection that is reset is no second request",
    proves="After RST a retry gets the one answer.",
    faults="F074",
    severity=Severity.CRITICAL,
)
async def reset(bench: Bench) -> None:
    for seconds in MOMENTS_SECONDS[1:4]:
        draft = bench.draft()
        tally = await bench.tally(draft)
        request = bench.request(draft)
        async with bench.connection(request) as connection:
            await connection.send(request)
            await asyncio.sleep(seconds)
            connection.reset()
        await _retried(bench, draft, request)
        await tally.require(1, "a connection that was reset, and a retry")


@check(
    "cut-answer",
    "A client that loses half of its answer gets all of it later",
    proves="The retry is given the whole answer, and nothing happens again.",
    faults="F008",
    severity=Severity.CRITICAL,
)
async def cut_answer(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft)
    async with bench.connection(request) as connection:
        await connection.send(request)
        async with asyncio.timeout(bench.operation.limits.request_seconds):
            seen = await connection.read_some(10)
        connection.reset()
    require(seen, "the server closed the connection without an answer")
    await _retried(bench, draft, request)
    await tally.require(1, "an answer that was cut, and a retry")


@check(
    "half-body",
    "Half of a body binds nothing",
    proves="A body that breaks off has no effect and leaves the key free for the whole one.",
    faults="F081",
    severity=Severity.CRITICAL,
)
async def half_body(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft)
    head, body = request.rendered(bench.target)
    if len(body) < 2:
        skip("the operation has no body that could break off")
    async with bench.connection(request) as connection:
        await connection.send_bytes(head + body[: len(body) // 2])
        connection.end_sending()
        async with asyncio.timeout(bench.operation.limits.request_seconds):
            await connection.drain()
    await tally.require(0, "half of a body")
    await bench.succeeded(request, "the whole body after a half")
    await tally.require(1, "half of a body, and the whole")


@check(
    "half-head",
    "Half of a head does nothing",
    proves="A request that breaks off after its key has no effect and leaves the key free.",
    faults="F081",
    severity=Severity.MAJOR,
)
async def half_head(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft)
    head, _ = request.rendered(bench.target)
    async with bench.connection(request) as connection:
        await connection.send_bytes(head[:-4])
        connection.reset()
    await bench.succeeded(request, "the whole request after half a head")
    await tally.require(1, "half of a head, and the whole request")


@check(
    "slow-body",
    "A client that sends slowly does not hold its key",
    proves="The key is claimed once the body is there: a faster twin is not kept waiting by a slow one.",
    faults="F080",
    severity=Severity.MAJOR,
)
async def slow_body(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft)
    head, body = request.rendered(bench.target)
    if len(body) < 2:
        skip("the operation has no body that could be slow")
    async with bench.connection(request, manner=Manner.PLAIN) as connection:
        await connection.send_bytes(head + body[:-1])
        fast = await bench.send(request)
        await connection.send_bytes(body[-1:])
        async with asyncio.timeout(bench.operation.limits.request_seconds):
            slow = await connection.read()
    require(bench.is_success(fast), f"while a slow twin was sending, a fast one was answered {fast.status}")
    require(slow.body == fast.body, "the slow twin got another answer than the fast one")
    await tally.require(1, "a slow client and its fast twin")


@check(
    "half-close",
    "A client that only listens gets its answer",
    proves="A client that ends its side after the request has one effect; a retry is answered.",
    faults="F074",
    severity=Severity.MAJOR,
)
async def half_close(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft)
    async with bench.connection(request) as connection:
        await connection.send(request)
        connection.end_sending()
        async with asyncio.timeout(bench.operation.limits.request_seconds):
            await connection.drain()
    await _retried(bench, draft, request)
    await tally.require(1, "a client that ended its side, and a retry")


@check(
    "retry-storm",
    "An impatient client has one effect",
    proves="Retries on fresh connections, each before the last was answered, add nothing.",
    faults="F093 F061",
    severity=Severity.CRITICAL,
)
async def retry_storm(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft)
    for _ in range(10):
        async with bench.connection(request) as connection:
            await connection.send(request)
            await asyncio.sleep(0.001)
            connection.reset()
    await _retried(bench, draft, request)
    await tally.require(1, "ten impatient tries, and a retry")


@check(
    "keep-alive",
    "A retry on the same connection is a retry",
    proves="The first answer is given again on a connection that is kept open, and on another one.",
    faults="F093",
    severity=Severity.CRITICAL,
)
async def keep_alive(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft)
    told = []
    async with bench.connection(request, manner=Manner.PLAIN) as connection:
        async with asyncio.timeout(bench.operation.limits.request_seconds):
            for _ in range(3):
                await connection.send(request, keeps_open=True)
                told.append((await connection.read()).body)
                if not connection.is_open:
                    skip("the server closes each connection after one answer")
    elsewhere = await bench.succeeded(request, "the retry on another connection")
    require(len({*told, elsewhere.body}) == 1, "the retries got different answers")
    await tally.require(1, "three requests on one connection, and one on another")


@check(
    "shared-connection",
    "Tenants on one connection do not mix",
    proves="A connection that a proxy shares between callers does not carry an answer from one to the other.",
    faults="F023 SEC01",
    severity=Severity.CRITICAL,
)
async def shared_connection(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    requests = [bench.request(draft, caller=caller) for caller in (Caller.FIRST, Caller.SECOND)] * 2
    told = []
    async with bench.connection(*requests, manner=Manner.PLAIN) as connection:
        async with asyncio.timeout(bench.operation.limits.request_seconds):
            for request in requests:
                await connection.send(request, keeps_open=True)
                told.append((await connection.read()).body)
                if not connection.is_open:
                    skip("the server closes each connection after one answer")
    require(told[:2] == told[2:], "the retries on a shared connection got other answers than the first ones")
    require(told[0] != told[1] or not told[0], "on a shared connection one tenant was told what the other was told")
    await tally.require(2, "two tenants on one connection")


@check(
    "pipelined",
    "A request that is sent twice in one breath happens once",
    proves="Two copies in the same packet are one request.",
    faults="F093",
    severity=Severity.CRITICAL,
)
async def pipelined(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft)
    async with bench.connection(request, manner=Manner.TOGETHER) as connection:
        whole = b"".join(request.rendered(bench.target, keeps_open=True))
        last = b"".join(request.rendered(bench.target))
        await connection.send_bytes(whole + last)
        try:
            async with asyncio.timeout(bench.operation.limits.request_seconds):
                await connection.read()
                await connection.drain()
        except (NoAnswer, TimeoutError):
            pass  # A server may refuse to be told two things at once; what counts is what happened.
    await bench.succeeded(request, "the retry after two copies in one breath")
    await tally.require(1, "two copies in one breath, and a retry")


@check(
    "chunked",
    "A body without a length is the same body",
    proves="How a body is framed on its way does not make it another request.",
    faults="F102",
    severity=Severity.MAJOR,
)
async def chunked(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    first = await bench.succeeded(bench.request(draft))
    again = await bench.settled(bench.request(draft, is_chunked=True))
    await tally.require(1, "a body with a length, and the same without")
    if again.status in (411, 501):
        skip(f"the server does not take bodies without a length ({again.status})")
    require(again.status == first.status, f"the same body without a length was answered {again.status}")
    require(again.body == first.body, "the same body without a length got another answer")
