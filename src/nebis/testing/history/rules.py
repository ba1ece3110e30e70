"""The twelve rules, each over the history of one key, or of one aggregate, and each in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from nebis.testing.history.events import RowKind, Told, Verdict
from nebis.testing.history.reading import AggregateHistory, KeyHistory

KEY_REUSED = "key-reused"
UNAVAILABLE = frozenset({"store-unavailable", "not-confirmed", "overloaded"})
"""Refusals that say nothing about the key: the store could not be asked."""


def one_effect_for_a_success(key: KeyHistory) -> Iterator[str]:
    """H1."""
    if _has(key, Verdict.OK) and len(key.effects) != 1:
        yield f"a success was acknowledged and the bank shows {len(key.effects)} effects, not 1"


def no_effect_for_a_refusal(key: KeyHistory) -> Iterator[str]:
    """H2."""
    if _has(key, Verdict.FAIL) and key.effects:
        first = next(told for told in key.told if told.verdict is Verdict.FAIL)
        after = sum(effect.at > first.at for effect in key.effects)
        yield (
            f"call {first.call} was told a definite {first.code or 'refusal'} and the bank shows "
            f"{len(key.effects)} effects ({after} of them afterwards)"
        )


def at_most_one_effect_in_doubt(key: KeyHistory) -> Iterator[str]:
    """H3."""
    if not _has(key, Verdict.OK, Verdict.FAIL) and len(key.effects) > 1:
        yield f"nobody was told anything definite and the bank shows {len(key.effects)} effects, not 0 or 1"


def successes_are_equal(key: KeyHistory) -> Iterator[str]:
    """H4."""
    digests = Counter(told.digest for told in key.told if told.verdict is Verdict.OK)
    if len(digests) > 1:
        yield f"successes differ: {len(digests)} different answers over {digests.total()} calls"


def success_stays(key: KeyHistory) -> Iterator[str]:
    """H5."""
    successes = [told for told in key.told if told.verdict is Verdict.OK]
    if not successes:
        return
    first = min(successes, key=lambda told: told.at)
    asked = key.invokes.get(first.call)
    for told in key.told:
        invoked = key.invokes.get(told.call)
        if asked is None or invoked is None or invoked.at <= first.at or told.verdict is Verdict.INFO:
            continue
        is_other = invoked.command != asked.command
        if is_other and (told.verdict, told.code) != (Verdict.REFUSED, KEY_REUSED) and not _is_unavailable(told):
            yield f"call {told.call} sent another command under a completed key and was told {_said(told)}"
        if not is_other and told.verdict is not Verdict.OK and not _is_unavailable(told):
            yield f"call {told.call} came after the first success and was told {_said(told)}"


def success_is_durable(key: KeyHistory) -> Iterator[str]:
    """H6."""
    earliest = min((completed.at for completed in key.completed), default=None)
    for told in key.told:
        if told.verdict is Verdict.OK and (earliest is None or told.at < earliest):
            when = "never held it" if earliest is None else f"held it only at {earliest}"
            yield f"call {told.call} was told a success at {told.at} and the store {when}"


def answer_is_the_tenants(key: KeyHistory) -> Iterator[str]:
    """H7."""
    for told in key.told:
        if told.body_tenant is not None and told.body_tenant != key.place.tenant:
            yield f"call {told.call} got an answer made for another tenant"


def answer_is_the_keys(key: KeyHistory) -> Iterator[str]:
    """H8."""
    nonces = {invoked.nonce for invoked in key.invokes.values()}
    for told in key.told:
        if told.body_nonce is not None and told.body_nonce not in nonces:
            yield f"call {told.call} got an answer to a request that was never sent under this key"


def nothing_is_left(key: KeyHistory) -> Iterator[str]:
    """H9."""
    if len(key.finals) > 1:
        yield f"the store holds {len(key.finals)} records for one key"
    for final in key.finals:
        if final.state == "in_progress":
            yield "its record is still in progress"
        if final.state == "in_doubt" and not final.reason:
            yield "its record is in doubt and nothing says why"


def fences_grow(key: KeyHistory) -> Iterator[str]:
    """H10."""
    highest: int | None = None
    for granted in key.granted:
        if highest is not None and granted.fence <= highest:
            yield f"fence {granted.fence} was granted after fence {highest}"
        highest = granted.fence if highest is None else max(highest, granted.fence)
    for record, times in Counter(completed.record for completed in key.completed).items():
        if times > 1:
            yield f"record {record} was completed {times} times"


def refused_call_did_nothing(key: KeyHistory) -> Iterator[str]:
    """H12."""
    made_for = {effect.attempt for effect in key.effects if effect.attempt is not None}
    for told in key.told:
        if told.verdict is Verdict.REFUSED and told.call in made_for:
            yield f"call {told.call} was told {_said(told)} and yet made an effect"


def every_row_is_published_once(aggregate: AggregateHistory) -> Iterator[str]:
    """H11."""
    wanted = aggregate.rows[RowKind.BUSINESS]
    rows = set(wanted)
    for kind in (RowKind.OUTBOX, RowKind.CONSUMED):
        counted = Counter(aggregate.rows[kind])
        for row in sorted(rows - counted.keys()):
            yield f"business row {row} is missing from {kind}"
        for row in sorted(counted.keys() - rows):
            yield f"{kind} has {row}, which no business row stands behind"
        for row in sorted(row for row, times in counted.items() if times > 1):
            yield f"business row {row} is {counted[row]} times in {kind}"
    happened = aggregate.rows[RowKind.CONSUMED]
    if happened != wanted and sorted(happened) == sorted(wanted):
        yield "its rows took effect out of order"


KEY_RULES: dict[str, Callable[[KeyHistory], Iterator[str]]] = {
    "H1": one_effect_for_a_success,
    "H2": no_effect_for_a_refusal,
    "H3": at_most_one_effect_in_doubt,
    "H4": successes_are_equal,
    "H5": success_stays,
    "H6": success_is_durable,
    "H7": answer_is_the_tenants,
    "H8": answer_is_the_keys,
    "H9": nothing_is_left,
    "H10": fences_grow,
    "H12": refused_call_did_nothing,
}
AGGREGATE_RULES: dict[str, Callable[[AggregateHistory], Iterator[str]]] = {"H11": every_row_is_published_once}


def _has(key: KeyHistory, *verdicts: Verdict) -> bool:
    return any(told.verdict in verdicts for told in key.told)


def _is_unavailable(told: Told) -> bool:
    return told.verdict is Verdict.REFUSED and told.code in UNAVAILABLE


def _said(told: Told) -> str:
    return f"{told.verdict} ({told.code})" if told.code else str(told.verdict)
