"""Bodies that cannot be understood, or could be understood in two ways."""

from __future__ import annotations

import json

from nebis.testing.torture.bench import Bench
from nebis.testing.torture.check import Collection, Failed, Group, Severity, require, skip
from nebis.testing.torture.wire import NoAnswer

check = Collection(Group.INPUT)


def _json_only(bench: Bench) -> None:
    if not bench.operation.is_json:
        skip("request.body is a text, so that nothing is known of how it is read")


async def _no_harm(bench: Bench, what: str, body: bytes, *, content_type: str | None = None) -> None:
    """Require that such a body is no reason for a 5xx."""
    draft = bench.draft()
    try:
        reply = await bench.send(bench.request(draft, body=body, content_type=content_type))
    except NoAnswer:
        raise Failed(f"{what} was not answered at all") from None
    require(reply.status < 500, f"{what} was answered {reply.status}")


@check(
    "broken-json",
    "Broken JSON is refused and binds nothing",
    proves="A body that cannot be read has no effect, and the corrected one succeeds under the same key.",
    faults="F081 F086",
    severity=Severity.MAJOR,
)
async def broken_json(bench: Bench) -> None:
    _json_only(bench)
    draft = bench.draft()
    tally = await bench.tally(draft)
    whole = bench.request(draft).body
    await bench.refused(bench.request(draft, body=whole[:-1]), "broken JSON")
    await tally.require(0, "broken JSON")
    await bench.succeeded(bench.request(draft), "the corrected body")
    await tally.require(1, "broken JSON, and the corrected body")


@check(
    "duplicate-names",
    "A name that is given twice is refused",
    proves='{"amount":1,"amount":100} is not read as 1 by one layer and as 100 by another.',
    faults="F097 SEC19",
    severity=Severity.MAJOR,
)
async def duplicate_names(bench: Bench) -> None:
    _json_only(bench)
    draft = bench.draft()
    tally = await bench.tally(draft)
    members = bench.operation.members(draft.fresh)
    changed = json.loads(bench.request(draft, variant="changed").body)
    name = next(name for name in changed if members.get(name) != changed[name])
    twice = json.dumps({name: changed[name]}).encode()[:-1] + b"," + json.dumps(members).encode()[1:]
    await bench.refused(bench.request(draft, body=twice), f"{name} twice with different values")
    await tally.require(0, f"{name} twice with different values")


@check(
    "deep-json",
    "A deep hole is no accident",
    proves="JSON that is nested ten thousand levels deep is refused, and the server lives on.",
    faults="F100 SEC19",
    severity=Severity.MAJOR,
)
async def deep_json(bench: Bench) -> None:
    _json_only(bench)
    await _no_harm(bench, "JSON of ten thousand levels", b"[" * 10_000 + b"]" * 10_000)
    await _no_harm(bench, "a deep hole", b'{"a":' * 10_000)


@check(
    "odd-json",
    "Odd numbers and texts are no accident",
    proves="NaN, an endless number, half of a surrogate pair and bytes that are not UTF-8 are no reason for a 5xx.",
    faults="F098 F099",
    severity=Severity.MAJOR,
)
async def odd_json(bench: Bench) -> None:
    _json_only(bench)
    for what, value in (
        ("NaN", b"NaN"),
        ("a number beyond every double", b"1e400"),
        ("a number of five thousand digits", b"1" * 5000),
        ("half of a surrogate pair", b'"\\ud800"'),
        ("bytes that are not UTF-8", b'"\xff\xfe"'),
    ):
        whole = bench.operation.rendered("", bench.draft().fresh)
        await _no_harm(bench, what, whole[:-1] + b',"torture":' + value + b"}")


@check(
    "not-an-object",
    "A body of another shape is no accident",
    proves="An empty body, null and a list are answered, and not with a 5xx.",
    faults="F091",
    severity=Severity.MAJOR,
)
async def not_an_object(bench: Bench) -> None:
    _json_only(bench)
    for body in (b"", b"null", b"[]", b"17"):
        await _no_harm(bench, f"the body {body.decode() or 'without a byte'}", body)


@check(
    "oversize",
    "A body above its limit is refused and binds nothing",
    proves="The limit is enforced before the key is claimed: a smaller body succeeds under the same key.",
    faults="F079 SEC17",
    severity=Severity.MAJOR,
)
async def oversize(bench: Bench) -> None:
    _json_only(bench)
    largest = bench.operation.largest_bytes
    if largest is None:
        skip("the operation file has no request.largest_bytes")
    draft = bench.draft()
    tally = await bench.tally(draft)
    whole = bench.request(draft).body
    large = whole[:-1] + b" " * (largest + 1 - len(whole)) + b"}"
    await bench.refused(bench.request(draft, body=large), f"a body of {len(large)} bytes")
    await tally.require(0, f"a body of {len(large)} bytes")
    await bench.succeeded(bench.request(draft), "a smaller body")


@check(
    "content-type",
    "Another content type is no second request",
    proves="The same bytes under another type are refused or recognised, and do not happen again.",
    faults="F097 F102",
    severity=Severity.CRITICAL,
)
async def content_type(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    await bench.succeeded(bench.request(draft))
    other = await bench.send(bench.request(draft, content_type="text/plain"))
    require(other.status < 500, f"the same bytes as text/plain were answered {other.status}")
    await tally.require(1, "a request, and the same as text/plain")
