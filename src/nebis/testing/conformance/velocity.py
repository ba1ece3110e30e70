"""Meters: how often fresh keys came lately, never below the truth."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import replace
from random import Random

import pytest

from nebis.core.answers import Granted
from nebis.core.record import Ownership
from nebis.core.velocity import Charge
from nebis.core.verbs import Release
from nebis.testing.conformance.concurrency import race, racers
from nebis.testing.conformance.harness import Connection, Harness
from nebis.testing.conformance.specimens import RETENTION, SECOND_US, START_US, claim, complete, identity_of_key

WINDOW_US = 10 * SECOND_US
RACERS = 4


def meter(limit: int, **changes: object) -> Charge:
    """Return a charge to a meter that no other test has."""
    charge = Charge(bucket=os.urandom(32), window_us=WINDOW_US, limit=limit)
    return replace(charge, **changes)  # type: ignore[arg-type]  # Any field of it.


class TestVelocity:
    """What passes a limit, and for how long nothing does."""

    def test_as_many_pass_as_the_limit_says_and_then_none(self, store: Connection) -> None:
        charge = meter(3)

        answers = [store.run(store.store.charge([charge], identity=None, now=START_US)) for _ in range(5)]

        assert answers[:3] == [None] * 3
        assert all(wait_us is not None and wait_us >= WINDOW_US for wait_us in answers[3:])

    def test_there_is_room_again_after_the_pause_that_was_told_and_not_before(self, store: Connection) -> None:
        charge = meter(2)
        for at in (0, 3 * SECOND_US):
            assert store.run(store.store.charge([charge], identity=None, now=START_US + at)) is None
        now = START_US + 4 * SECOND_US

        wait_us = store.run(store.store.charge([charge], identity=None, now=now))

        assert wait_us is not None
        assert store.run(store.store.charge([charge], identity=None, now=now + wait_us - 1)) is not None
        assert store.run(store.store.charge([charge], identity=None, now=now + wait_us)) is None
        assert store.run(store.store.charge([charge], identity=None, now=now + wait_us)) is not None

    @pytest.mark.parametrize("seed", range(3))
    def test_no_span_of_the_window_ever_holds_more_than_the_limit(self, store: Connection, seed: int) -> None:
        """P16: counts err upward, never downward, and by a tenth of the window at most."""
        random = Random(seed)  # noqa: S311 - a schedule, not a secret.
        charge = meter(4, window_us=1_003)
        now, passed = START_US, deque[int]()
        for _ in range(300):
            now += random.choice((0, 1, 20, 101, 400))
            is_admitted = store.run(store.store.charge([charge], identity=None, now=now)) is None
            within = [at for at in passed if now - at < charge.window_us]
            reach_us = charge.window_us + charge.slot_us + 10
            counted = [at for at in passed if now - at <= reach_us]
            assert not is_admitted or len(within) < charge.limit, f"seed {seed}"
            assert is_admitted or len(counted) >= charge.limit, f"seed {seed}"
            if is_admitted:
                passed.append(now)

    def test_clock_that_steps_back_forgets_nothing(self, store: Connection) -> None:
        """F025."""
        charge = meter(2)
        for at in (0, -50 * WINDOW_US):
            assert store.run(store.store.charge([charge], identity=None, now=START_US + at)) is None

        assert store.run(store.store.charge([charge], identity=None, now=START_US)) is not None

    def test_weights_add_up(self, store: Connection) -> None:
        charge = meter(10, weight=4)

        first = [store.run(store.store.charge([charge], identity=None, now=START_US)) for _ in range(3)]
        rest = store.run(store.store.charge([replace(charge, weight=2)], identity=None, now=START_US))
        never = store.run(store.store.charge([replace(charge, weight=11)], identity=None, now=START_US))

        assert first[:2] == [None, None]
        assert first[2] is not None
        assert rest is None
        assert never is not None

    def test_every_meter_must_have_room(self, store: Connection) -> None:
        wide, narrow = meter(5), meter(1)

        answers = [store.run(store.store.charge([wide, narrow], identity=None, now=START_US)) for _ in range(2)]

        assert answers[0] is None
        assert answers[1] is not None
        assert store.run(store.store.charge([], identity=None, now=START_US)) is None

    def test_key_on_record_is_free(self, store: Connection) -> None:
        """P16: only fresh keys count."""
        charge, identity = meter(1), identity_of_key("key")
        assert store.run(store.store.charge([charge], identity=identity, now=START_US)) is None
        [granted] = store.apply(claim("key"), now=START_US)
        assert isinstance(granted, Granted)

        running = store.run(store.store.charge([charge], identity=identity, now=START_US))
        store.apply(complete(_ownership(granted)), now=START_US)
        replayed = store.run(store.store.charge([charge], identity=identity, now=START_US))
        other = store.run(store.store.charge([charge], identity=identity_of_key("other"), now=START_US))

        assert (running, replayed) == (None, None)
        assert other is not None

    @pytest.mark.parametrize("is_completed", [True, False])
    def test_key_whose_window_is_over_is_fresh_again(self, store: Connection, *, is_completed: bool) -> None:
        charge, identity = meter(1, window_us=10 * RETENTION.outcome_us), identity_of_key("key")
        [granted] = store.apply(claim("key"), now=START_US)
        assert isinstance(granted, Granted)
        owner = _ownership(granted)
        store.apply(complete(owner) if is_completed else Release(ownership=owner), now=START_US)
        over = START_US + RETENTION.outcome_us

        assert store.run(store.store.charge([charge], identity=identity, now=over - 1)) is None
        assert store.run(store.store.charge([charge], identity=None, now=over)) is None
        assert store.run(store.store.charge([charge], identity=identity, now=over)) is not None
        store.run(store.store.sweep(limit=10, now=over))
        assert store.run(store.store.charge([charge], identity=identity, now=over)) is not None

    def test_meter_that_no_longer_matters_is_forgotten(self, store: Connection) -> None:
        charge, lasting = meter(1), meter(1, window_us=100 * WINDOW_US)
        for each in (charge, lasting):
            store.run(store.store.charge([each], identity=None, now=START_US))
        later = START_US + 20 * WINDOW_US

        store.run(store.store.sweep(limit=100_000, now=later))

        # A clock that steps back shows which of the two is gone.
        assert store.run(store.store.charge([charge], identity=None, now=START_US)) is None
        assert store.run(store.store.charge([lasting], identity=None, now=later)) is not None

    def test_of_many_at_once_no_more_pass_than_the_limit_says(self, harness: Harness) -> None:
        """P16: two meters each, named in any order, and nobody waits for ever."""
        charges = [meter(25), meter(1_000)]

        def act(own: Connection, number: int) -> int:
            named = charges if number % 2 else charges[::-1]
            return sum(own.run(own.store.charge(named, identity=None, now=START_US)) is None for _ in range(15))

        with racers(harness, RACERS) as connections:
            passed = race(connections, act)

        assert sum(passed) == 25


def _ownership(granted: Granted) -> Ownership:
    return granted.record.ownership
