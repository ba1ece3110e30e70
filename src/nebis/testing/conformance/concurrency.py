"""Concurrency: several connections, one record, one winner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Barrier, Event
from typing import TypeVar

import pytest

from nebis.core.answers import Answer, Grant, Granted, Locked, Refusal, Refused, Running
from nebis.core.record import Ownership
from nebis.core.verbs import Verb
from nebis.flow import Flow
from nebis.ports.store import DefiniteFailure
from nebis.testing.conformance.harness import Connection, Harness
from nebis.testing.conformance.specimens import LEASE_US, START_US, claim, complete, take_over

T = TypeVar("T")

RACERS = 8
ROUNDS = 5
LAPSED = 40
MOST_ASKS = 20
TRIES = 2_000
OVERTAKING_SECONDS = 0.3
"""How long the overtaking party may take before it counts as blocked by the one that it wants to overtake."""


@contextmanager
def racers(harness: Harness, count: int) -> Iterator[list[Connection]]:
    """Open that many more connections."""
    with ExitStack() as opened:
        connections = [harness.connect() for _ in range(count)]
        for connection in connections:
            opened.callback(connection.close)
        yield connections


def persist(connection: Connection, verbs: Sequence[Verb], now: int) -> list[Answer]:
    """Ask again, as a batcher does, until no member is locked; a definite failure changed nothing and is repeated."""
    answers: dict[int, Answer] = {}
    for _ in range(TRIES):
        left = [number for number in range(len(verbs)) if number not in answers]
        if not left:
            return [answers[number] for number in range(len(verbs))]
        try:
            got = connection.apply(*(verbs[number] for number in left), now=now)
        except DefiniteFailure:
            continue
        answers |= {n: answer for n, answer in zip(left, got, strict=True) if not isinstance(answer, Locked)}
    raise AssertionError(f"Still locked or refused after {TRIES} tries.")


def race(connections: Sequence[Connection], act: Callable[[Connection, int], T]) -> list[T]:
    """Let every connection act at the same moment, each in a thread of its own."""
    start = Barrier(len(connections))

    def run(number: int) -> T:
        start.wait()
        return act(connections[number], number)

    with ThreadPoolExecutor(len(connections)) as pool:
        return list(pool.map(run, range(len(connections))))


@dataclass(slots=True)
class Pause:
    """A halt before one ask of a flow: asks are where others can come in between."""

    before_ask: int
    has_come: bool = False
    come_or_ended: Event = field(default_factory=Event)
    over: Event = field(default_factory=Event)

    def within(self, flow: Flow[T]) -> Flow[T]:
        """Perform the flow with this pause in it."""
        number = 0
        try:
            ask = next(flow)
            while True:
                if number == self.before_ask:
                    self.has_come = True
                    self.come_or_ended.set()
                    self.over.wait()
                number += 1
                try:
                    answer = yield ask
                except BaseException as error:  # noqa: BLE001 - the flow decides what an error means.
                    ask = flow.throw(error)
                else:
                    ask = flow.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            self.come_or_ended.set()


def overtake(
    slow: tuple[Connection, Verb], fast: tuple[Connection, Verb], before_ask: int, now: int
) -> tuple[Answer, Answer] | None:
    """Pause one party before its n-th ask, let the other run to its end or against a lock, then go on.

    Returns both answers, or None if there is no such ask.
    """
    pause = Pause(before_ask)
    (slow_connection, slow_verb), (fast_connection, fast_verb) = slow, fast

    def crawl() -> Answer:
        try:
            flow = pause.within(slow_connection.store.apply([slow_verb], now=now))
            (answer,) = slow_connection.run(flow)
        except DefiniteFailure:
            answer = Locked()
        if isinstance(answer, Locked):
            (answer,) = persist(slow_connection, [slow_verb], now)
        return answer

    with ThreadPoolExecutor(2) as pool:
        crawling = pool.submit(crawl)
        pause.come_or_ended.wait()
        if not pause.has_come:
            crawling.result()
            return None
        overtaking = pool.submit(persist, fast_connection, [fast_verb], now)
        wait([overtaking], timeout=OVERTAKING_SECONDS)
        pause.over.set()
        (overtaker_answer,) = overtaking.result()
        return crawling.result(), overtaker_answer


class TestConcurrency:
    """One atomic act each (I6), on connections of their own."""

    @pytest.mark.parametrize("attempt", range(ROUNDS))
    def test_of_many_claims_of_a_new_key_exactly_one_is_granted(
        self, harness: Harness, store: Connection, attempt: int
    ) -> None:
        key = f"key-{attempt}"
        with racers(harness, RACERS) as connections:
            answers = race(connections, lambda own, n: persist(own, [claim(key, by=f"racer-{n}")], START_US)[0])

        assert Counter(type(answer) for answer in answers) == {Granted: 1, Running: RACERS - 1}
        (winner,) = [answer for answer in answers if isinstance(answer, Granted)]
        assert winner.how is Grant.NEW
        assert store.find(winner.record.identity) == winner.record

    @pytest.mark.parametrize("kind", ["new key", "lapsed record", "completion against takeover"])
    def test_whoever_is_overtaken_between_two_asks_does_not_win_as_well(
        self, harness: Harness, store: Connection, kind: str
    ) -> None:
        with racers(harness, 2) as (slow, fast):
            for before_ask in range(MOST_ASKS):
                key = f"key-{before_ask}"
                slow_verb, fast_verb = _rivals(kind, key, store)

                answers = overtake((slow, slow_verb), (fast, fast_verb), before_ask, START_US + LEASE_US)

                if answers is None:
                    assert before_ask > 0
                    return
                assert sum(not isinstance(answer, Running | Refused) for answer in answers) == 1, answers
        raise AssertionError(f"A single verb takes more than {MOST_ASKS} asks.")

    def test_of_a_herd_at_the_end_of_a_lease_one_takes_over_f061(self, harness: Harness, store: Connection) -> None:
        store.ask(claim("key"), now=START_US)

        with racers(harness, RACERS) as connections:
            answers = race(
                connections, lambda own, n: persist(own, [claim("key", by=f"racer-{n}")], START_US + LEASE_US)[0]
            )

        assert Counter(type(answer) for answer in answers) == {Granted: 1, Running: RACERS - 1}
        found = store.find(claim("key").identity)
        assert found is not None
        assert found.attempts == 2

    def test_of_eight_workers_each_lapsed_record_is_taken_by_one_f059(
        self, harness: Harness, store: Connection
    ) -> None:
        owners = _claimed(store, [f"key-{number}" for number in range(LAPSED)])

        with racers(harness, RACERS) as connections:
            answers = race(
                connections,
                lambda own, n: persist(
                    own, [take_over(left, by=f"worker-{n}") for left in owners], START_US + LEASE_US
                ),
            )

        for number in range(LAPSED):
            of_one_record = [row[number] for row in answers]
            assert sum(isinstance(answer, Granted) for answer in of_one_record) == 1
            refusals = {answer.reason for answer in of_one_record if isinstance(answer, Refused)}
            assert refusals == {Refusal.MOVED_ON}

    @pytest.mark.usefixtures("store")
    def test_batches_in_opposite_order_do_not_wait_for_each_other(self, harness: Harness) -> None:
        keys = [f"key-{number}" for number in range(LAPSED)]

        def act(own: Connection, number: int) -> list[Answer]:
            ordered = keys if number % 2 else keys[::-1]
            return persist(own, [claim(key, by=f"racer-{number}") for key in ordered], START_US)

        with racers(harness, RACERS) as connections:
            answers = race(connections, act)

        granted = Counter(a.record.key for row in answers for a in row if isinstance(a, Granted))
        assert granted == dict.fromkeys(keys, 1)

    @pytest.mark.usefixtures("store")
    def test_of_candidates_for_the_secret_one_is_kept_for_all(self, harness: Harness) -> None:
        with racers(harness, RACERS) as connections:
            states = race(connections, lambda own, n: own.run(own.store.secrets(bytes([n]) * 32)))

        assert len({state.generated for state in states}) == 1

    def test_of_processes_that_start_at_once_one_migrates(self, harness: Harness) -> None:
        blank = harness.blank()
        try:
            with racers(harness, 4) as connections:
                applied = race(connections, lambda own, _: own.run(own.store.migrate()))
            blank.run(blank.store.verify())
        finally:
            blank.close()

        assert sum(bool(names) for names in applied) <= 1


def _claimed(store: Connection, keys: Sequence[str]) -> list[Ownership]:
    answers = store.apply(*(claim(key) for key in keys), now=START_US)
    return [answer.record.ownership for answer in answers if isinstance(answer, Granted)]


def _rivals(kind: str, key: str, store: Connection) -> tuple[Verb, Verb]:
    if kind == "new key":
        return claim(key, by="slow"), claim(key, by="fast")
    (left,) = _claimed(store, [key])
    if kind == "lapsed record":
        return take_over(left, by="slow"), claim(key, by="fast")
    return complete(left), take_over(left, by="fast")
