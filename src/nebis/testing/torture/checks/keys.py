"""Keys that are none, keys at their limits, and keys that look alike."""

from __future__ import annotations

from nebis.testing.torture.bench import Bench
from nebis.testing.torture.check import Collection, Group, Severity, require, skip

check = Collection(Group.INPUT)


async def _refuses(bench: Bench, what: str, *keys: str) -> None:
    """Require that a request with such keys is refused and does nothing."""
    draft = bench.draft()
    tally = await bench.tally(draft)
    await bench.refused(bench.request(draft, keys=keys), what)
    await tally.require(0, what)


@check(
    "empty-key",
    "An empty key is no key",
    proves="A client that sends the header without a value is told, and does not share a key with others like it.",
    faults="F091 SEC05",
    severity=Severity.CRITICAL,
)
async def empty_key(bench: Bench) -> None:
    if not bench.operation.keys.is_required:
        skip("the operation file says that a key is not required")
    await _refuses(bench, "an empty key", "")


@check(
    "longest-key",
    "A key of the greatest length works",
    proves="keys.longest characters are accepted, and a retry is recognised.",
    faults="F091",
    severity=Severity.MAJOR,
)
async def longest_key(bench: Bench) -> None:
    longest = bench.operation.keys.longest
    draft = bench.draft(lambda text: text.ljust(longest, "k")[:longest])
    tally = await bench.tally(draft)
    first = await bench.succeeded(bench.request(draft), f"a key of {longest} characters")
    again = await bench.settled(bench.request(draft))
    require(again.body == first.body, f"the retry with a key of {longest} characters got another answer")
    await tally.require(1, f"a key of {longest} characters, and a retry")


@check(
    "truncated-key",
    "Long keys that differ at their end are two keys",
    proves="No layer cuts a key: the last character counts.",
    faults="F091 F039",
    severity=Severity.CRITICAL,
)
async def truncated_key(bench: Bench) -> None:
    longest = bench.operation.keys.longest
    if longest < 40:
        skip("keys.longest is too short for two keys that differ at their end only")
    one, two = bench.draft(lambda text: text.ljust(longest - 1, "k") + "1"), bench.draft()
    tally = await bench.tally(one, two)
    await bench.succeeded(bench.request(one))
    await bench.succeeded(bench.request(two, keys=[one.key[:-1] + "2"]), "a key that differs in its last character")
    await tally.require(2, "two keys that differ in their last character")


@check(
    "long-key",
    "A key beyond the greatest length is refused",
    proves="A key that is too long is refused before anything happens, and is not cut.",
    faults="F091 SEC37",
    severity=Severity.MAJOR,
)
async def long_key(bench: Bench) -> None:
    longest = bench.operation.keys.longest
    for length in (longest + 1, longest + 4000):
        await _refuses(bench, f"a key of {length} characters", "k" * length)


@check(
    "control-characters",
    "A key with control characters is refused",
    proves="What could split a header or a log line is not taken for a key.",
    faults="F091 SEC05 SEC24",
    severity=Severity.MAJOR,
)
async def control_characters(bench: Bench) -> None:
    for number in (0x00, 0x01, 0x0B, 0x7F):
        await _refuses(bench, f"a key with the character {number:#04x}", f"torture{chr(number)}key")


@check(
    "non-ascii",
    "A key with other than ASCII characters is refused",
    proves="Two layers that decode a header differently do not disagree on what the key is.",
    faults="F091 F099",
    severity=Severity.MINOR,
)
async def non_ascii(bench: Bench) -> None:
    for key in ("cl\xe9-torture", "cle\u0301-torture".encode().decode("latin-1")):
        await _refuses(bench, "a key with other than ASCII characters", key)


@check(
    "two-headers",
    "Two keys are none",
    proves="A request with two key headers is refused, so that no proxy chooses one of them.",
    faults="F090",
    severity=Severity.MAJOR,
)
async def two_headers(bench: Bench) -> None:
    one, two = bench.draft(), bench.draft()
    await _refuses(bench, "a request with two keys", one.key, two.key)
    await _refuses(bench, "a request with the same key twice", one.key, one.key)


@check(
    "list-of-keys",
    "A list of keys is none",
    proves="A comma, by which proxies join two headers, does not pass for a part of a key.",
    faults="F090",
    severity=Severity.MINOR,
)
async def list_of_keys(bench: Bench) -> None:
    one, two = bench.draft(), bench.draft()
    await _refuses(bench, "a list of two keys", f"{one.key}, {two.key}")


@check(
    "quoted-key",
    "A key in quotes is the same key",
    proves='"k", as the IETF draft writes it, and k, as most clients do, do not both happen.',
    faults="F091",
    severity=Severity.MAJOR,
)
async def quoted_key(bench: Bench) -> None:
    if not bench.operation.keys.accepts_quotes:
        skip("the operation file says that keys are not quoted")
    draft = bench.draft()
    tally = await bench.tally(draft)
    first = await bench.succeeded(bench.request(draft))
    quoted = await bench.settled(bench.request(draft, keys=[f'"{draft.key}"']))
    await tally.require(1, "a key, and the same in quotes")
    require(
        quoted.body == first.body or 400 <= quoted.status < 500,
        f"the same key in quotes was answered {quoted.status} and otherwise",
    )


@check(
    "case",
    "Keys that differ in case are two keys",
    proves="No column folds a key: the answer of one is never given to the other.",
    faults="F039",
    severity=Severity.CRITICAL,
)
async def case(bench: Bench) -> None:
    one, two = bench.draft(lambda text: f"key-{text}"), bench.draft()
    tally = await bench.tally(one, two)
    await bench.succeeded(bench.request(one))
    await bench.succeeded(bench.request(two, keys=[one.key.replace("key", "KEY")]), "a key in other case")
    await tally.require(2, "two keys that differ in case")
