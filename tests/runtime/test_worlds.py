"""The blocking and the asyncio world, on a real store."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Unpack

import pytest

from nebis import ClaimLost, Declared, Disposition, Retryable, Wait
from nebis.core.answers import Running
from nebis.core.record import Outcome, OutcomeKind, Record, State
from nebis.core.verbs import Claim, Complete, Renew, Verb
from nebis.declaration import PolicyOptions
from nebis.flows.execute import execute
from nebis.flows.request import Failed, Finished, Request
from nebis.ports.observer import AttemptStarted, Completed, Event, OwnershipLost, Suspended
from nebis.ports.store import IndefiniteFailure
from nebis.runtime import heartbeat as heartbeat_module
from nebis.runtime.async_turn import AsyncTurn
from nebis.runtime.blocking import BlockingTurn, BlockingWorld
from nebis.runtime.entropy import draw
from nebis.runtime.eventloop import AsyncWorld
from nebis.testing.conformance.specimens import intend
from tests.flows.specimens import LEASE_US, NOW, declaration, request_of
from tests.runtime.observed import PATIENCE_SECONDS, MovedClock, ObservedStore, lost, renews


def brisk(**options: Unpack[PolicyOptions]) -> Request:
    """Make a request whose claim is renewed every few milliseconds."""
    options["renewal"] = timedelta(milliseconds=20)
    return request_of(declaration(**options))


def identity_of(request: Request) -> bytes:
    drawn = draw()
    return request.claim(drawn.record_id, drawn.nonce).identity


def completes(record: Record, request: Request, value: str) -> Complete:
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=request.encode(value))
    return Complete(ownership=record.ownership, outcome=outcome, retention=request.policy.kept)


def body(ending: object) -> bytes:
    assert isinstance(ending, Finished)
    return ending.outcome.body


async def happened(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE_SECONDS)


class Stranger(threading.Thread):
    """Another process that takes a record over once its lease is over, and completes it."""

    def __init__(self, store: ObservedStore, clock: MovedClock, request: Request) -> None:
        super().__init__()
        self._store, self._clock, self._request = store, clock, request

    def run(self) -> None:
        self._clock.now += LEASE_US + 1
        self._store.applied(completes(self._store.claimed(self._request), self._request, "the winner's"))


def test_blocking_handler_learns_that_it_was_overtaken_and_answers_with_the_winners_bytes() -> None:
    """F050."""
    clock = MovedClock(NOW)
    store, request, told = ObservedStore(clock), brisk(), list[Event]()
    world = BlockingWorld(store.blocking(), [told.append])
    was_lost = []

    def handler(record: Record, turn: BlockingTurn) -> object:
        assert not turn.is_lost
        # Renewals stand still meanwhile, as in a process that is stopped.
        store.locked = {record.identity}
        clock.now += LEASE_US + 1
        store.locked = set()
        successor = store.claimed(request)
        store.applied(completes(successor, request, "the winner's"))
        store.wait_for(renews(record.identity))
        assert turn._watch is not None
        assert lost(turn._watch).wait(PATIENCE_SECONDS)
        was_lost.append(turn.is_lost)
        return "the loser's"

    ending = world.run(execute(request), handler)
    world.close()

    assert body(ending) == request.encode("the winner's")
    assert was_lost == [True]
    assert isinstance(told[0], AttemptStarted)
    assert isinstance(told[-1], OwnershipLost)
    assert not any(isinstance(event, Completed) for event in told)


class SlowRenewal:
    """A store in which a renewal is under way while its owner suspends, and lands only then."""

    def __init__(self) -> None:
        self.clock = MovedClock(NOW)
        self.store = ObservedStore(self.clock)
        self.store.fault_of = self._before
        self.request = request_of(declaration(Declared, renewal=timedelta(milliseconds=20)))
        self.is_under_way, self._is_suspended = threading.Event(), threading.Event()

    def _before(self, verbs: Sequence[Verb]) -> None:
        if isinstance(verbs[0], Renew):
            self.is_under_way.set()
            assert self._is_suspended.wait(PATIENCE_SECONDS)

    def hear(self, event: Event) -> None:
        if isinstance(event, Suspended):
            self._is_suspended.set()

    def lease_left_us(self) -> int:
        assert self._is_suspended.is_set()
        return self.store.stored(identity_of(self.request)).lease_until - self.clock.now


def test_renewal_that_lands_after_the_attempt_was_suspended_keeps_nobody_waiting() -> None:
    slow = SlowRenewal()
    world = BlockingWorld(slow.store.blocking(), [slow.hear])

    def handler(record: Record, _: BlockingTurn) -> object:
        slow.store.applied(intend(record.ownership))
        assert slow.is_under_way.wait(PATIENCE_SECONDS)
        raise Retryable("the bank is down")

    ending = world.run(execute(slow.request), handler)
    world.close()

    assert isinstance(ending, Failed)
    assert slow.lease_left_us() <= 0


def test_renewal_that_lands_after_an_asyncio_attempt_was_suspended_keeps_nobody_waiting() -> None:
    slow = SlowRenewal()

    async def handler(record: Record, _: AsyncTurn) -> object:
        slow.store.applied(intend(record.ownership))
        await happened(slow.is_under_way)
        raise Retryable("the bank is down")

    async def scenario() -> object:
        world = AsyncWorld(slow.store.asynchronous(), [slow.hear])
        ending = await world.run(execute(slow.request), handler)
        await world.close()
        return ending

    assert isinstance(asyncio.run(scenario()), Failed)
    assert slow.lease_left_us() <= 0


@pytest.mark.parametrize("death", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupted_handler_releases_nothing(death: type[BaseException]) -> None:
    """F076: an interrupted effect may have happened; the lease decides."""
    store, request = ObservedStore(), brisk()
    world = BlockingWorld(store.blocking())

    def handler(record: Record, turn: BlockingTurn) -> object:
        raise death

    with pytest.raises(death):
        world.run(execute(request), handler)
    world.close()

    assert store.stored(identity_of(request)).state is State.IN_PROGRESS


def test_observer_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    store, request, told = ObservedStore(), brisk(), list[Event]()

    def broken(event: Event) -> None:
        raise RuntimeError("the metrics are down")

    world = BlockingWorld(store.blocking(), [broken, told.append])
    ending = world.run(execute(request), lambda _, __: "done")
    world.close()

    assert body(ending) == request.encode("done")
    assert [type(event) for event in told] == [AttemptStarted, Completed]
    assert "an observer failed on Completed" in caplog.text


def test_two_waiters_do_not_wake_each_other() -> None:
    """A claim is no news: they ask the store at the pace of their polls, and hear of the end at once."""
    store = ObservedStore()
    request = brisk(in_flight=Wait(longest=timedelta(seconds=30)))
    world = BlockingWorld(store.blocking())
    waiting = threading.Semaphore(0)
    owner = store.claimed(request)

    def wait() -> object:
        waiting.release()
        return world.run(execute(request), lambda _, __: "never")

    with ThreadPoolExecutor(2) as pool:
        endings = [pool.submit(wait) for _ in range(2)]
        for _ in endings:
            waiting.acquire()
        store.wait_for(lambda batch: isinstance(batch[0], Claim), times=6)
        world.apply(completes(owner, request, "done"))
        bodies = {body(ending.result(PATIENCE_SECONDS)) for ending in endings}
    world.close()

    assert bodies == {request.encode("done")}
    # Each poll doubles its pause up to half a second; waking each other they would have asked thousands of times.
    assert len([batch for batch in store.batches if isinstance(batch[0], Claim)]) < 100


def test_waiters_above_the_limit_are_told_to_come_back() -> None:
    """SEC36."""
    store = ObservedStore()
    request = brisk(in_flight=Wait(longest=timedelta(seconds=30)), waiters_limit=1)
    world = BlockingWorld(store.blocking())
    owner = store.claimed(request)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.run, execute(request), lambda _, __: "never")
        store.wait_for(lambda batch: isinstance(batch[0], Claim), times=3)
        endings = [world.run(execute(request), lambda _, __: "never") for _ in range(20)]
        world.apply(completes(owner, request, "done"))
        assert body(first.result(PATIENCE_SECONDS)) == request.encode("done")
    world.close()

    assert sum(isinstance(ending, Running) for ending in endings) >= 1


def test_write_that_was_never_confirmed_lands_once_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_module, "RETRY_SECONDS", 0.01)
    store = ObservedStore()
    request = brisk(confirm=timedelta(milliseconds=50))
    world = BlockingWorld(store.blocking())
    is_down = threading.Event()
    is_down.set()
    store.fault_of = lambda verbs: (
        IndefiniteFailure("down") if is_down.is_set() and isinstance(verbs[0], Complete) else None
    )

    with pytest.raises(Exception, match="did not confirm"):
        world.run(execute(request), lambda _, __: "done")
    is_down.clear()
    store.wait_for(lambda batch: isinstance(batch[0], Complete))

    assert body(world.run(execute(request), lambda _, __: "again")) == request.encode("done")
    world.close()


def test_cancelled_caller_is_only_detached() -> None:
    """F075: a client that hangs up cancels neither the effect nor its commit."""
    store, request = ObservedStore(), brisk()

    async def scenario() -> None:
        world = AsyncWorld(store.asynchronous())
        started, may_end = asyncio.Event(), asyncio.Event()

        async def handler(record: Record, turn: AsyncTurn) -> object:
            started.set()
            await may_end.wait()
            return "done"

        caller = asyncio.ensure_future(world.run(execute(request), handler))
        await started.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        may_end.set()
        await world.close()

    asyncio.run(scenario())

    assert store.stored(identity_of(request)).outcome == request.encode("done")


def test_detached_attempt_that_fails_is_not_reported_as_a_lost_exception(caplog: pytest.LogCaptureFixture) -> None:
    store = ObservedStore()
    request = brisk(confirm=timedelta(milliseconds=10))
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        world = AsyncWorld(store.asynchronous())
        started, may_end = asyncio.Event(), asyncio.Event()

        async def handler(record: Record, turn: AsyncTurn) -> object:
            started.set()
            await may_end.wait()
            raise LookupError("nobody listens")

        caller = asyncio.ensure_future(world.run(execute(request), handler))
        await started.wait()
        caller.cancel()
        may_end.set()
        await world.close()

    asyncio.run(scenario())

    assert store.stored(identity_of(request)).state is State.AVAILABLE
    assert "never retrieved" not in caplog.text


def test_handler_is_cancelled_once_another_attempt_took_over() -> None:
    clock = MovedClock(NOW)
    store, request = ObservedStore(clock), brisk()
    ended = []

    async def scenario() -> object:
        world = AsyncWorld(store.asynchronous())

        async def handler(record: Record, turn: AsyncTurn) -> object:
            stranger = Stranger(store, clock, request)
            stranger.start()
            try:
                await asyncio.Event().wait()
            finally:
                stranger.join()
                ended.append(turn.is_lost)
            return "never"

        ending = await asyncio.wait_for(world.run(execute(request), handler), PATIENCE_SECONDS)
        await world.close()
        return ending

    assert body(asyncio.run(scenario())) == request.encode("the winner's")
    assert ended == [True]


def test_handler_that_ignores_its_cancellation_still_answers_with_the_winners_bytes() -> None:
    clock = MovedClock(NOW)
    store, request = ObservedStore(clock), brisk()

    async def scenario() -> object:
        world = AsyncWorld(store.asynchronous())

        async def handler(record: Record, turn: AsyncTurn) -> object:
            Stranger(store, clock, request).run()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "the loser's"
            return "never"

        ending = await asyncio.wait_for(world.run(execute(request), handler), PATIENCE_SECONDS)
        await world.close()
        return ending

    assert body(asyncio.run(scenario())) == request.encode("the winner's")


def test_renewals_that_fail_cancel_nobody() -> None:
    """F016: the handler goes on; the guard of its last write decides."""
    store, request = ObservedStore(), brisk()

    async def scenario() -> object:
        world = AsyncWorld(store.asynchronous())

        async def handler(record: Record, turn: AsyncTurn) -> object:
            store.fault_of = lambda verbs: IndefiniteFailure("down") if renews(record.identity)(verbs) else None
            await asyncio.to_thread(store.wait_for, renews(record.identity), 3)
            assert not turn.is_lost
            return "done"

        ending = await world.run(execute(request), handler)
        await world.close()
        return ending

    assert body(asyncio.run(scenario())) == request.encode("done")


def test_blocked_event_loop_does_not_end_a_lease() -> None:
    """F051: the handler blocks the loop until the claim has outlived its first lease on the real clock."""
    store = ObservedStore()
    request = brisk(
        lease=timedelta(milliseconds=300),
        effect_timeout=timedelta(milliseconds=100),
    )

    async def scenario() -> object:
        world = AsyncWorld(store.asynchronous())

        async def handler(record: Record, turn: AsyncTurn) -> object:
            while store.stored(record.identity).lease_until < record.lease_until + request.policy.lease_us:
                store.wait_for(renews(record.identity))
            assert not turn.is_lost
            return "done"

        ending = await world.run(execute(request), handler)
        await world.close()
        return ending

    assert body(asyncio.run(scenario())) == request.encode("done")


def test_attempt_cancelled_with_its_loop_releases_nothing() -> None:
    """F077: a loop that is torn down leaves the record to its lease."""
    store, request = ObservedStore(), brisk()

    async def scenario() -> None:
        world = AsyncWorld(store.asynchronous())
        started = asyncio.Event()

        async def handler(record: Record, turn: AsyncTurn) -> object:
            started.set()
            await asyncio.Event().wait()
            return "never"

        caller = asyncio.ensure_future(world.run(execute(request), handler))
        await started.wait()
        [task] = [turn.task for turn in world.under_way]
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await world.close()

    asyncio.run(scenario())

    assert store.stored(identity_of(request)).state is State.IN_PROGRESS


def test_asyncio_waiter_is_woken_by_the_end_of_its_twin() -> None:
    store = ObservedStore()
    request = brisk(in_flight=Wait(longest=timedelta(seconds=30)))
    owner = store.claimed(request)

    async def scenario() -> object:
        world = AsyncWorld(store.asynchronous())

        async def never(record: Record, turn: AsyncTurn) -> object:
            raise AssertionError("a waiter must not run")

        waiter = asyncio.ensure_future(world.run(execute(request), never))
        await asyncio.to_thread(store.wait_for, lambda batch: isinstance(batch[0], Claim), 3)
        await world.apply(completes(owner, request, "done"))
        ending = await waiter
        await world.close()
        return ending

    assert body(asyncio.run(scenario())) == request.encode("done")


def test_asyncio_waiter_above_the_limit_is_told_to_come_back() -> None:
    """SEC36."""
    store = ObservedStore()
    request = brisk(in_flight=Wait(longest=timedelta(seconds=30)), waiters_limit=2)
    owner = store.claimed(request)

    async def scenario() -> list[object]:
        world = AsyncWorld(store.asynchronous())

        async def never(record: Record, turn: AsyncTurn) -> object:
            raise AssertionError("a waiter must not run")

        waiters = [asyncio.ensure_future(world.run(execute(request), never)) for _ in range(20)]
        done, _ = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        assert done
        await world.apply(completes(owner, request, "done"))
        endings: list[object] = list(await asyncio.gather(*waiters))
        await world.close()
        return endings

    endings = asyncio.run(scenario())

    assert sum(isinstance(ending, Running) for ending in endings) >= 1
    assert sum(isinstance(ending, Finished) for ending in endings) >= 2


def test_claim_lost_is_told_to_the_hook_as_what_it_is() -> None:
    """An application that counts lost claims sees them in its own hook."""
    seen = list[Exception]()

    def hook(error: Exception) -> Disposition:
        seen.append(error)
        return Disposition.BY_MODE

    clock = MovedClock(NOW)
    store = ObservedStore(clock)
    request = replace(brisk(), classify=hook)

    async def scenario() -> object:
        world = AsyncWorld(store.asynchronous())

        async def handler(record: Record, turn: AsyncTurn) -> object:
            Stranger(store, clock, request).run()
            await asyncio.Event().wait()
            return "never"

        ending = await asyncio.wait_for(world.run(execute(request), handler), PATIENCE_SECONDS)
        await world.close()
        return ending

    assert body(asyncio.run(scenario())) == request.encode("the winner's")
    assert [type(error) for error in seen] == [ClaimLost]
