"""What a key means: once, and the same answer again."""

from __future__ import annotations

import json

from nebis.testing.torture.bench import Bench
from nebis.testing.torture.check import Collection, Group, Severity, require, skip

check = Collection(Group.SEMANTICS)

RETRIES = 3


@check(
    "replay-effect",
    "A retry does not happen again",
    proves="Three retries with the same key and body add no effect to the first.",
    faults="F007 F093",
    severity=Severity.CRITICAL,
)
async def replay_effect(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    for _ in range(1 + RETRIES):
        await bench.settled(bench.request(draft))
    await tally.require(1, f"one request and {RETRIES} retries")


@check(
    "replay-status",
    "A retry gets the status of the first answer",
    proves="A client that lost the first answer learns from the second that it succeeded.",
    faults="F007",
    severity=Severity.MAJOR,
)
async def replay_status(bench: Bench) -> None:
    draft = bench.draft()
    first = await bench.succeeded(bench.request(draft))
    again = await bench.settled(bench.request(draft))
    require(again.status == first.status, f"the first was answered {first.status}, its retry {again.status}")


@check(
    "replay-bytes",
    "A retry gets the bytes of the first answer",
    proves="The stored answer is sent again byte for byte, with its type; it is not made anew.",
    faults="F007 F050 F088",
    severity=Severity.CRITICAL,
)
async def replay_bytes(bench: Bench) -> None:
    draft = bench.draft()
    first = await bench.succeeded(bench.request(draft))
    again = await bench.settled(bench.request(draft))
    if not bench.is_success(again):
        skip(f"the retry was answered {again.status}, so that there is nothing to compare")
    require(again.body == first.body, "the body of the retry differs from the first")
    types = [reply.header("content-type") for reply in (first, again)]
    require(types[0] == types[1], f"the first had the type {types[0]}, its retry {types[1]}")


@check(
    "replay-marked",
    "A retry is told that its answer is one given before",
    proves="The header of keys.replayed_header is on the retry and not on the first answer.",
    faults="F007",
    severity=Severity.MINOR,
)
async def replay_marked(bench: Bench) -> None:
    name = bench.operation.keys.replayed_header
    if not name:
        skip("the operation file has no keys.replayed_header")
    draft = bench.draft()
    first = await bench.succeeded(bench.request(draft))
    again = await bench.settled(bench.request(draft))
    require(first.header(name) in (None, "false"), f"the first answer already has {name}")
    require(again.header(name) not in (None, "false"), f"the retry has no {name}")


@check(
    "reuse-refused",
    "The same key with another body is refused",
    proves="A key that is used for something else by mistake is told so, not answered with another's success.",
    faults="F097 F105",
    severity=Severity.MAJOR,
)
async def reuse_refused(bench: Bench) -> None:
    draft = bench.draft()
    await bench.succeeded(bench.request(draft))
    other = await bench.send(bench.request(draft, variant="changed"))
    allowed = bench.operation.keys.reused_statuses
    wanted = " or ".join(str(status) for status in allowed)
    require(other.status in allowed, f"another body under the same key was answered {other.status}, not {wanted}")


@check(
    "reuse-effect",
    "The same key with another body does nothing",
    proves="Neither does the other body happen, nor does it disturb the answer that is stored.",
    faults="F105",
    severity=Severity.CRITICAL,
)
async def reuse_effect(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    first = await bench.succeeded(bench.request(draft))
    await bench.send(bench.request(draft, variant="changed"))
    await tally.require(1, "one request, and another body under its key")
    again = await bench.settled(bench.request(draft))
    require(again.status == first.status, f"after that the first request was answered {again.status}")
    await tally.require(1, "and the first request once more")


@check(
    "missing-key",
    "A request without a key is refused",
    proves="Where a key is required nobody can forget it without being told.",
    faults="F091",
    severity=Severity.MAJOR,
)
async def missing_key(bench: Bench) -> None:
    if not bench.operation.keys.is_required:
        skip("the operation file says that a key is not required")
    draft = bench.draft()
    tally = await bench.tally(draft)
    await bench.refused(bench.request(draft, keys=()), "a request without a key")
    await tally.require(0, "a request without a key")


@check(
    "another-key",
    "Another key is another request",
    proves="Requests are told apart by their keys and not by their bodies.",
    faults="F101",
    severity=Severity.CRITICAL,
)
async def another_key(bench: Bench) -> None:
    draft, other = bench.draft(), bench.draft()
    tally = await bench.tally(draft)
    first = await bench.succeeded(bench.request(draft))
    second = await bench.settled(bench.request(draft, keys=[other.key]))
    if not bench.is_success(second):
        skip(f"the API answers {second.status} to the same body under another key, by a rule of its own")
    await tally.require(2, "two requests with two keys")
    require(not first.body or second.body != first.body, "two requests with two keys got the same answer")


@check(
    "spelling",
    "The same JSON spelled otherwise is the same request",
    proves="Order of members and white space do not make a retry another request.",
    faults="F102 F120",
    severity=Severity.MINOR,
)
async def spelling(bench: Bench) -> None:
    if not bench.operation.is_json:
        skip("request.body is a text, which may be spelled in one way only")
    draft = bench.draft()
    tally = await bench.tally(draft)
    first = await bench.succeeded(bench.request(draft))
    members = bench.operation.members(draft.fresh)
    spelled = json.dumps(dict(reversed(members.items())), indent=2).encode()
    again = await bench.settled(bench.request(draft, body=spelled))
    require(again.status == first.status, f"the same members in another order were answered {again.status}")
    require(again.body == first.body, "the same members in another order got another body")
    await tally.require(1, "one request in two spellings")


@check(
    "rejection",
    "A rejection is replayed too",
    proves="What was declined once stays declined under its key, with the same words and without an effect.",
    faults="F085",
    severity=Severity.MAJOR,
)
async def rejection(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft, variant="rejected")
    first, again = await bench.send(request), await bench.send(request)
    wanted = bench.operation.rejected_statuses
    require(first.status in wanted, f"the rejected variant was answered {first.status}")
    require(again.status == first.status, f"the rejection was answered {first.status}, its retry {again.status}")
    require(again.body == first.body, "the retry of a rejection got another body")
    await tally.require(0, "a rejection and its retry")


@check(
    "passing-failure",
    "A failure that passes does not stay in the key",
    proves="After a 5xx that did nothing the same key succeeds, once; it does not answer 5xx for ever.",
    faults="F085 F086",
    severity=Severity.MAJOR,
)
async def passing_failure(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft, variant="fails_once")
    first = await bench.send(request)
    require(first.status >= 500, f"variants.fails_once was answered {first.status}, not 5xx")
    again = await bench.settled(request)
    require(bench.is_success(again), f"after a failure that passed, the same key is answered {again.status}")
    await tally.require(1, "a failure without an effect, and a retry")


@check(
    "late-failure",
    "A failure after the effect does not make it happen again",
    proves="A 5xx that came after the effect does not free the key for a second one.",
    faults="F004 F076 F085",
    severity=Severity.CRITICAL,
)
async def late_failure(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    request = bench.request(draft, variant="fails_late")
    for _ in range(1 + RETRIES):
        await bench.send(request)
    seen = await tally.since()
    require(seen <= 1, f"a request that failed after its effect, and {RETRIES} retries: {seen} effects")


@check(
    "safe-method",
    "A safe method is not answered from the key",
    proves="GET with the same key reads, and does not get the answer that was stored for the operation.",
    faults="F092",
    severity=Severity.MAJOR,
)
async def safe_method(bench: Bench) -> None:
    draft = bench.draft()
    first = await bench.succeeded(bench.request(draft))
    if not first.body:
        skip("the operation answers without a body, so that a leak could not be seen")
    read = await bench.send(bench.request(draft, method="GET", body=b"", content_type=""))
    require(read.body != first.body, "GET with the same key got the answer of the operation")


@check(
    "other-operation",
    "The same key at another operation is not answered from the first",
    proves="A key belongs to one operation: the other path runs, or refuses, and never replays.",
    faults="F101",
    severity=Severity.CRITICAL,
)
async def other_operation(bench: Bench) -> None:
    if not bench.operation.other_path:
        skip("the operation file has no other.path")
    draft = bench.draft()
    first = await bench.succeeded(bench.request(draft))
    if not first.body:
        skip("the operation answers without a body, so that a replay could not be seen")
    other = await bench.settled(bench.request(draft, path=bench.operation.other_path))
    require(other.body != first.body, f"{bench.operation.other_path} answered with what the first operation said")
