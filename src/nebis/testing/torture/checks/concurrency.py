"""Twins: the same request many times at once."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from nebis.testing.torture.bench import Bench, Caller, Draft
from nebis.testing.torture.check import Collection, Group, Severity, require, skip
from nebis.testing.torture.wire import Reply

check = Collection(Group.CONCURRENCY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Twins that were sent at the same moment, and what came of them."""

    draft: Draft
    replies: list[Reply]
    effects: int
    later: Reply


async def _raced(bench: Bench) -> Race:
    """Race twins once for all checks that ask about it."""

    async def make() -> Race:
        draft = bench.draft()
        tally = await bench.tally(draft)
        request = bench.request(draft, variant=_slow(bench))
        replies = await bench.together([request] * bench.operation.limits.twins)
        later = await bench.settled(request)
        return Race(draft=draft, replies=replies, effects=await tally.since(1), later=later)

    race: Race = await bench.shared("race", make)
    return race


def _slow(bench: Bench) -> str:
    """Prefer the variant that takes its time, where there is one: its twins are sure to meet."""
    return "slow" if "slow" in bench.operation.variants else ""


@check(
    "twins-effect",
    "Of simultaneous twins one happens",
    proves="The claim of a key is one atomic act: fifty requests at the same moment have one effect.",
    faults="F093 F061",
    severity=Severity.CRITICAL,
)
async def twins_effect(bench: Bench) -> None:
    race = await _raced(bench)
    require(race.effects == 1, f"{len(race.replies)} twins had {race.effects} effects instead of 1")


@check(
    "twins-answers",
    "Twins that succeed get the same bytes",
    proves="No twin is told of an outcome that is not the stored one; whoever asks later gets it too.",
    faults="F050",
    severity=Severity.CRITICAL,
)
async def twins_answers(bench: Bench) -> None:
    race = await _raced(bench)
    told = {reply.body for reply in [*race.replies, race.later] if bench.is_success(reply)}
    require(bench.is_success(race.later), f"after the race a retry was answered {race.later.status}")
    require(len(told) == 1, f"the twins that succeeded, and a retry after them, were told {len(told)} different things")


@check(
    "twins-statuses",
    "Twins are answered or told to come back, nothing else",
    proves="A duplicate is no reason for a 5xx or a refusal.",
    faults="F038 F045",
    severity=Severity.MAJOR,
)
async def twins_statuses(bench: Bench) -> None:
    race = await _raced(bench)
    odd = [reply for reply in race.replies if not bench.is_success(reply) and not bench.is_not_yet(reply)]
    require(not odd, f"of {len(race.replies)} twins some were answered {bench.statuses(odd)}")


@check(
    "twins-retry-after",
    "Twins that must come back are told when",
    proves="Every answer that says 'in flight' has a Retry-After.",
    faults="F061 F122",
    severity=Severity.MINOR,
)
async def twins_retry_after(bench: Bench) -> None:
    race = await _raced(bench)
    waiting = [reply for reply in race.replies if reply.status in bench.operation.keys.in_flight_statuses]
    if not waiting:
        skip("no twin was told that the first is in flight")
    bad = [reply for reply in waiting if not _is_moment(reply.header("retry-after"))]
    require(not bad, f"{len(bad)} of {len(waiting)} in-flight answers have no usable Retry-After")


def _is_moment(value: str | None) -> bool:
    if value is None:
        return False
    if value.isdecimal():
        return int(value) <= 24 * 3600
    try:
        parsedate_to_datetime(value)
    except ValueError:
        return False
    return True


@check(
    "staggered",
    "Twins at every moment of the first have one effect",
    proves="There is no moment between the first and its answer at which a duplicate slips through.",
    faults="F093 F006",
    severity=Severity.CRITICAL,
)
async def staggered(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    count = min(20, bench.operation.limits.twins)
    replies = await bench.together([bench.request(draft, variant=_slow(bench))] * count, apart_seconds=0.004)
    told = {reply.body for reply in replies if bench.is_success(reply)}
    await tally.require(1, f"{count} twins, 4 ms apart")
    require(len(told) <= 1, f"{count} twins, 4 ms apart, were told {len(told)} different things")


@check(
    "parallel-keys",
    "Keys do not disturb each other",
    proves="Many keys with twins each, all at once: every key has its one effect and its own answer.",
    faults="F045 F023",
    severity=Severity.CRITICAL,
)
async def parallel_keys(bench: Bench) -> None:
    drafts = [bench.draft() for _ in range(max(2, bench.operation.limits.twins // 5))]
    tally = await bench.tally(*drafts)
    await bench.together([bench.request(draft) for _ in range(3) for draft in drafts])
    told = [(await bench.succeeded(bench.request(draft), "a key among many")).body for draft in drafts]
    await tally.require(len(drafts), f"{len(drafts)} keys with three twins each")
    if all(told):
        require(len(set(told)) == len(told), "two keys were given the same answer")


@check(
    "racing-bodies",
    "Of two bodies that race for one key one happens",
    proves="The body is bound with the claim: another body at the same moment is refused, not run.",
    faults="F105",
    severity=Severity.CRITICAL,
)
async def racing_bodies(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    requests = [bench.request(draft), bench.request(draft, variant="changed")] * 4
    replies = await bench.together(requests)
    sides = {number % 2 for number, reply in enumerate(replies) if bench.is_success(reply)}
    seen = await tally.since(1)
    require(seen == 1, f"two bodies that raced for one key had {seen} effects instead of 1")
    require(len(sides) <= 1, "both of two bodies that raced for one key were told that they succeeded")


@check(
    "racing-tenants",
    "Tenants that race with one key both happen",
    proves="The claim is made of tenant and key together.",
    faults="SEC01 SEC10",
    severity=Severity.CRITICAL,
)
async def racing_tenants(bench: Bench) -> None:
    draft = bench.draft()
    tally = await bench.tally(draft)
    requests = [bench.request(draft, caller=caller) for caller in (Caller.FIRST, Caller.SECOND)]
    await bench.together(requests * 3)
    told = [(await bench.succeeded(request, "a tenant that raced")).body for request in requests]
    await tally.require(2, "two tenants that raced with one key")
    if all(told):
        require(told[0] != told[1], "two tenants that raced with one key were given the same answer")


@check(
    "storm",
    "A storm of keys loses none",
    proves="Under many keys at once every request happens once; one that is turned away can come back.",
    faults="F045 F095",
    severity=Severity.MAJOR,
)
async def storm(bench: Bench) -> None:
    drafts = [bench.draft() for _ in range(bench.operation.limits.storm)]
    tally = await bench.tally(*drafts)
    replies: list[Reply] = []
    for start in range(0, len(drafts), 50):
        replies += await bench.together([bench.request(draft) for draft in drafts[start : start + 50]])
    for draft, reply in zip(drafts, replies, strict=True):
        if not bench.is_success(reply):
            require(bench.is_not_yet(reply), f"one of {len(drafts)} keys was answered {reply.status}")
            await bench.succeeded(bench.request(draft), "one that came back")
    await tally.require(len(drafts), f"{len(drafts)} keys at once")
