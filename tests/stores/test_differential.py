"""The comparison sees: each planted fault is found by the tour, by the random walk, or by both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import Phase

from nebis.core.answers import Answer, Granted, Kept, Locked, Refused, Running
from nebis.core.record import Record
from nebis.core.verbs import Claim, Complete, Renew, Suspend, Verb, Withdraw, identity_of
from nebis.flow import Flow
from nebis.ports.store import Swept
from nebis.stores.memory import MemoryStore, open_blocking
from nebis.testing.conformance import Connection, Harness, connection_of
from nebis.testing.conformance.differential import compare_at_random
from nebis.testing.conformance.stage import Stage
from nebis.testing.conformance.tour import covering, tour
from nebis.testing.conformance.twin import Twin

Fault = Callable[["FaultyStore", Verb, Record | None, Answer], Answer]


class FaultyStore(MemoryStore):
    """A memory store that does one thing differently after each verb."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault

    def apply(self, verbs: Sequence[Verb], *, now: int | None = None) -> Flow[list[Answer | Locked]]:
        before = [self._records.get(identity_of(verb)) for verb in verbs]
        answers = yield from super().apply(verbs, now=now)
        return [
            answer if isinstance(answer, Locked) else self.fault(self, verb, record, answer)
            for verb, record, answer in zip(verbs, before, answers, strict=True)
        ]

    def change(self, identity: bytes, **changes: object) -> None:
        if identity in self._records:
            self._records[identity] = replace(self._records[identity], **changes)  # type: ignore[arg-type]


def grants_twice(store: FaultyStore, verb: Verb, before: Record | None, answer: Answer) -> Answer:
    return Granted(record=answer.record, how="new") if isinstance(answer, Running) else answer  # type: ignore[arg-type]


def renews_for_anybody(store: FaultyStore, verb: Verb, before: Record | None, answer: Answer) -> Answer:
    return Kept() if isinstance(verb, Renew) and isinstance(answer, Refused) and answer.reason == "fenced" else answer


def reuses_fences(store: FaultyStore, verb: Verb, before: Record | None, answer: Answer) -> Answer:
    if isinstance(verb, Withdraw):
        store._newest_fence = 0
    return answer


def forgets_that_a_call_may_land(store: FaultyStore, verb: Verb, before: Record | None, answer: Answer) -> Answer:
    if isinstance(verb, Suspend) and before is not None:
        store.change(before.identity, effects=before.effects)
    return answer


def keeps_the_command(store: FaultyStore, verb: Verb, before: Record | None, answer: Answer) -> Answer:
    if isinstance(verb, Complete) and before is not None and answer == Kept():
        store.change(before.identity, command=before.command)
    return answer


def forgets_the_mark(store: FaultyStore, verb: Verb, before: Record | None, answer: Answer) -> Answer:
    if isinstance(verb, Claim) and isinstance(answer, Running):
        store.change(verb.identity, is_awaited=False)
    return answer


def hides_repetition(store: FaultyStore, verb: Verb, before: Record | None, answer: Answer) -> Answer:
    return Kept() if isinstance(answer, Kept) else answer


def hides_what_it_found(store: FaultyStore, verb: Verb, before: Record | None, answer: Answer) -> Answer:
    return replace(answer, found=None) if isinstance(answer, Refused) else answer


FAULTS = [
    grants_twice,
    renews_for_anybody,
    reuses_fences,
    forgets_that_a_call_may_land,
    keeps_the_command,
    forgets_the_mark,
    hides_repetition,
    hides_what_it_found,
]


class FaultyHarness(Harness):
    def __init__(self, make: Callable[[], MemoryStore]) -> None:
        self._make = make
        self._store = make()

    def fresh(self) -> Connection:
        self._store = self._make()
        return self.connect()

    def connect(self) -> Connection:
        return connection_of(open_blocking(self._store))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_tour_sees(fault: Fault) -> None:
    twin = Twin(FaultyHarness(lambda: FaultyStore(fault)).fresh())

    with pytest.raises(AssertionError):
        tour(twin, covering(1))


@pytest.mark.parametrize("fault", [grants_twice, renews_for_anybody, hides_repetition, hides_what_it_found])
def test_the_random_walk_sees(fault: Fault) -> None:
    with pytest.raises(AssertionError):
        compare_at_random(
            FaultyHarness(lambda: FaultyStore(fault)), examples=200, derandomize=True, phases=[Phase.generate]
        )


class GreedySweeps(MemoryStore):
    """A store whose sweeps take one record more than they may."""

    def sweep(self, *, limit: int, now: int | None = None) -> Flow[Swept]:
        return (yield from super().sweep(limit=limit + 1, now=now))


class ForgetfulSweeps(MemoryStore):
    """A store whose sweeps remove what they should turn into a tombstone."""

    def sweep(self, *, limit: int, now: int | None = None) -> Flow[Swept]:
        swept = yield from super().sweep(limit=limit, now=now)
        self._records.clear()
        return swept


@pytest.mark.parametrize("kind", [GreedySweeps, ForgetfulSweeps])
def test_a_sweep_that_takes_too_much_is_seen(kind: Callable[[], MemoryStore]) -> None:
    twin = Twin(FaultyHarness(kind).fresh())
    stages = [Stage(twin, key=key) for key in "ab"]
    for stage in stages:
        stage.enter("completed past its window")

    with pytest.raises(AssertionError, match="sweep"):
        twin.sweep(limit=1, now=stages[0].now)


def test_the_walk_finds_nothing_where_nothing_is_wrong() -> None:
    compare_at_random(FaultyHarness(MemoryStore), examples=20)


def test_a_difference_is_told_field_by_field() -> None:
    twin = Twin(FaultyHarness(lambda: FaultyStore(keeps_the_command)).fresh())

    with pytest.raises(AssertionError, match=r"Complete left another record(.|\n)*command: expected None, got b'"):
        tour(twin, covering(1))
