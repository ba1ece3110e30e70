"""What a key must not give away: neither to other tenants, nor to nobody, nor in words."""

from __future__ import annotations

import re
from urllib.parse import quote

from nebis.testing.torture.bench import Bench, Caller, Draft
from nebis.testing.torture.check import Collection, Group, Severity, require, skip
from nebis.testing.torture.wire import Reply, Request

check = Collection(Group.SECURITY)

_SHARED = re.compile(r"\bpublic\b|\bs-maxage=0*[1-9]|\bmax-age=0*[1-9]")


@check(
    "other-tenant",
    "A tenant with another's key gets an answer of its own",
    proves="The same key and body of two tenants are two requests; neither is told what the other was told.",
    faults="SEC01 SEC10",
    severity=Severity.CRITICAL,
)
async def other_tenant(bench: Bench) -> None:
    draft = bench.draft()
    requests = [bench.request(draft, caller=caller) for caller in (Caller.FIRST, Caller.SECOND)]
    tally = await bench.tally(draft)
    first, other = [await bench.succeeded(request, "a tenant") for request in requests]
    require(not first.body or other.body != first.body, "a tenant was told what another tenant was told")
    await tally.require(2, "two tenants with one key")


@check(
    "no-oracle",
    "A tenant cannot find out which keys another has used",
    proves="A key that another tenant has used, with another body, is answered like one that nobody has used.",
    faults="SEC07",
    severity=Severity.MAJOR,
)
async def no_oracle(bench: Bench) -> None:
    draft = bench.draft()
    second = bench.request(draft, variant="changed", caller=Caller.SECOND)
    await bench.succeeded(bench.request(draft))
    used = await bench.settled(second)
    unused = await bench.settled(bench.request(bench.draft(), variant="changed", caller=Caller.SECOND))
    require(used.status == unused.status, f"a used key was answered {used.status}, an unused one {unused.status}")


async def _stays_out(bench: Bench, caller: Caller, what: str) -> None:
    draft = bench.draft()
    request = bench.request(draft, caller=caller)
    first = await bench.succeeded(bench.request(draft))
    tally = await bench.tally(draft)
    reply = await bench.send(request)
    require(reply.status in (401, 403, 404), f"{what} with a used key was answered {reply.status}, not 401 or 403")
    require(not first.body or first.body not in reply.body, f"{what} was told what the tenant was told")
    await tally.require(0, f"{what} with a used key")


@check(
    "nobody",
    "Nobody is told what a tenant was told",
    proves="Authentication comes before the stored answer: a retry without credentials gets none.",
    faults="SEC02 SEC03",
    severity=Severity.CRITICAL,
)
async def nobody(bench: Bench) -> None:
    await _stays_out(bench, Caller.NOBODY, "a request without credentials")


@check(
    "impostor",
    "Wrong credentials are told nothing",
    proves="A retry with credentials that are not valid does not get the stored answer.",
    faults="SEC03",
    severity=Severity.CRITICAL,
)
async def impostor(bench: Bench) -> None:
    await _stays_out(bench, Caller.IMPOSTOR, "a request with wrong credentials")


@check(
    "poisoning",
    "Nobody can use up a tenant's key",
    proves="A request that is turned away leaves the key free, and nothing of it is replayed to the tenant.",
    faults="SEC02 SEC10",
    severity=Severity.MAJOR,
)
async def poisoning(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    await bench.send(bench.request(draft, caller=Caller.NOBODY))
    await tally.require(0, "a request without credentials")
    await bench.succeeded(bench.request(draft), "the tenant after a stranger used its key")
    await tally.require(1, "a stranger, and then the tenant")


def _errors(bench: Bench, draft: Draft) -> dict[str, Request]:
    return {
        "another body": bench.request(draft, variant="changed"),
        "two keys": bench.request(draft, keys=[draft.key, draft.key]),
        "a key that is too long": bench.request(draft, keys=[draft.key.ljust(bench.operation.keys.longest + 1, "k")]),
        "broken JSON": bench.request(draft, body=bench.request(draft).body[:-1]),
    }


async def _refusals(bench: Bench, draft: Draft) -> dict[str, Reply]:
    """Return the refusals, by what is wrong; whatever is not refused is judged by other checks."""
    replies = {what: await bench.send(request) for what, request in _errors(bench, draft).items()}
    return {what: reply for what, reply in replies.items() if reply.status >= 400}


@check(
    "echoed-key",
    "A refusal does not repeat the key",
    proves="Keys, by which answers can be had, do not get into pages, logs and caches by way of errors.",
    faults="SEC05 SEC24",
    severity=Severity.MINOR,
)
async def echoed_key(bench: Bench) -> None:
    draft = bench.draft()
    await bench.succeeded(bench.request(draft))
    for what, reply in (await _refusals(bench, draft)).items():
        require(not reply.holds(draft.key), f"the refusal of {what} repeats the key")


@check(
    "echoed-body",
    "A refusal does not repeat what was asked first",
    proves="Whoever has a key and not the body learns nothing of it from the refusal.",
    faults="SEC05 SEC08",
    severity=Severity.MAJOR,
)
async def echoed_body(bench: Bench) -> None:
    draft, guess = bench.draft(), bench.draft()
    first = await bench.succeeded(bench.request(draft))
    reply = await bench.send(bench.request(guess, keys=[draft.key], variant="changed"))
    if reply.status < 400:
        skip(f"another body under the same key was answered {reply.status}, so that nothing was refused")
    told = [value for value in draft.fresh.values() if reply.holds(value)]
    require(not told, "the refusal of another body repeats values of the first one")
    require(len(first.body) < 8 or first.body not in reply.body, "the refusal of another body holds the first answer")


@check(
    "cookies",
    "A retry is not given the session of the first",
    proves="Set-Cookie and tokens in headers reach the first caller only.",
    faults="SEC14 F087",
    severity=Severity.MAJOR,
)
async def cookies(bench: Bench) -> None:
    draft = bench.draft()
    first = await bench.succeeded(bench.request(draft))
    given = first.header("set-cookie")
    if given is None:
        skip("the operation sets no cookie")
    again = await bench.settled(bench.request(draft))
    require(again.header("set-cookie") != given, "the retry got the cookie of the first answer")


@check(
    "cached",
    "Answers are not offered to shared caches",
    proves="Neither an answer nor its replay says that others may be given it.",
    faults="SEC16",
    severity=Severity.MAJOR,
)
async def cached(bench: Bench) -> None:
    draft = bench.draft()
    first = await bench.succeeded(bench.request(draft))
    again = await bench.settled(bench.request(draft))
    for reply in (first, again):
        told = (reply.header("cache-control") or "").lower()
        is_offered = _SHARED.search(told) and "private" not in told and "no-store" not in told
        require(not is_offered, f"an answer says Cache-Control: {told}")


@check(
    "lookup",
    "Another tenant's id is an unknown id",
    proves="What a tenant made can be looked up by that tenant only; to others it does not exist.",
    faults="SEC01 SEC07",
    severity=Severity.CRITICAL,
)
async def lookup(bench: Bench) -> None:
    operation = bench.operation
    if not operation.lookup_path:
        skip("the operation file has no lookup.path")
    draft = bench.draft()
    strangers = bench.credentials(Caller.SECOND)
    first = await bench.succeeded(bench.request(draft))
    made = _member(first, operation.lookup_id)
    unknown = made[:-4] + ("0000" if not made.endswith("0000") else "1111")

    async def look(headers: tuple[tuple[str, str], ...], asked: str) -> Reply:
        path = operation.lookup_path.replace("{id}", quote(asked, safe=""))
        return await bench.send(Request(method="GET", path=path, headers=headers))

    own = await look(operation.first, made)
    require(own.status < 300, f"the tenant that made it was answered {own.status}")
    others, nowhere = await look(strangers, made), await look(strangers, unknown)
    require(others.status >= 400, f"another tenant was answered {others.status}")
    require(not others.holds(draft.unique), "another tenant was told what was asked for")
    require(others.status == nowhere.status, f"another tenant was answered {others.status}, not {nowhere.status}")


def _member(reply: Reply, path: str) -> str:
    found: object = reply.json()
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    if found is None:
        skip(f"the answer has no member {path}; correct lookup.id")
    return str(found)
