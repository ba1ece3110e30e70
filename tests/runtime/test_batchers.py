"""Group commit: one suite for both worlds, on senders that fail in every way a store can."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from nebis.core.answers import Answer, Locked
from nebis.core.owning import KEPT
from nebis.core.verbs import Claim, Verb, identity_of
from nebis.errors import Overloaded, RecordCorrupt
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked, Spoilt
from nebis.runtime import async_batcher
from nebis.runtime.async_batcher import AsyncBatcher
from nebis.runtime.blocking_batcher import BlockingBatcher, Waiter, wake_next
from nebis.runtime.gathering import MOST_LANES, WORTH_ANOTHER_LANE, Gathering
from tests.runtime.verbs import claim, completion, renewal

Sender = Callable[[Sequence[Verb]], Sequence[Answer | Locked]]
Told = list[Answer | Locked | BaseException]


class Recorder:
    """A store that writes down every batch, and fails where a test says so."""

    def __init__(self, fail: Callable[[Sequence[Verb]], Exception | None] = lambda verbs: None) -> None:
        self.batches: list[int] = []
        self._fail = fail
        self._lock = threading.Lock()

    def __call__(self, verbs: Sequence[Verb]) -> Sequence[Answer | Locked]:
        assert len({identity_of(verb) for verb in verbs}) == len(verbs)
        with self._lock:
            self.batches.append(len(verbs))
            error = self._fail(verbs)
        if error is not None:
            raise error
        return [KEPT for _ in verbs]


def on_a_loop(send: Sender, verbs: Sequence[Verb]) -> Told:
    async def main() -> Told:
        async def sending(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
            await asyncio.sleep(0)
            return send(batch)

        batcher = AsyncBatcher(sending)
        told = await asyncio.gather(*(batcher.apply(verb) for verb in verbs), return_exceptions=True)
        await batcher.close()
        return told

    return asyncio.run(main())


def on_threads(send: Sender, verbs: Sequence[Verb]) -> Told:
    gate = threading.Event()
    at_the_gate: list[Verb] = []

    def gated(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
        at_the_gate.extend(batch)
        gate.wait(10)
        return send(batch)

    gathering: Gathering[object] = Gathering(is_shared_out=False)
    batcher = BlockingBatcher(gated, gathering)  # type: ignore[arg-type]  # Whoever waits is the batcher's own affair.
    with ThreadPoolExecutor(max_workers=max(1, len(verbs))) as pool:
        futures: list[Future[Answer | Locked]] = [pool.submit(batcher.apply, verb) for verb in verbs]
        while gathering.waiting + len(at_the_gate) < len(verbs):
            threading.Event().wait(0.001)  # Until everybody has asked; nothing says so.
        gate.set()
        told: Told = [future.exception() or future.result() for future in futures]
    batcher.close()
    return told


worlds = pytest.mark.parametrize("run", [on_a_loop, on_threads])
World = Callable[[Sender, Sequence[Verb]], Told]


@worlds
def test_concurrent_callers_share_batches(run: World) -> None:
    recorder = Recorder()

    told = run(recorder, [claim(number) for number in range(20)])

    assert told == [KEPT] * 20
    assert sum(recorder.batches) == 20
    assert len(recorder.batches) <= 4


@worlds
def test_a_single_caller_is_sent_at_once_and_alone(run: World) -> None:
    recorder = Recorder()

    assert run(recorder, [renewal(1)]) == [KEPT]
    assert recorder.batches == [1]


@worlds
@pytest.mark.parametrize("error", [Spoilt("too large"), RowLocked("held"), RecordCorrupt("half a row")])
def test_one_bad_member_harms_nobody_else(run: World, error: Exception) -> None:
    bad = claim(7)
    recorder = Recorder(lambda verbs: error if bad in verbs else None)

    told = run(recorder, [claim(number) for number in range(20)])

    assert type(told[7]) is type(error)
    assert [told[number] for number in range(20) if number != 7] == [KEPT] * 19


@worlds
def test_a_batch_whose_fate_is_unknown_is_sent_again_before_anybody_is_told(run: World) -> None:
    sent: set[frozenset[bytes]] = set()

    def cut_the_first_time(verbs: Sequence[Verb]) -> Exception | None:
        batch = frozenset(identity_of(verb) for verb in verbs)
        is_again = batch in sent
        sent.add(batch)
        return None if is_again else IndefiniteFailure("cut")

    recorder = Recorder(cut_the_first_time)

    assert run(recorder, [claim(number) for number in range(20)]) == [KEPT] * 20
    assert len(recorder.batches) == 2 * len(sent)


@worlds
@pytest.mark.parametrize("error", [IndefiniteFailure("cut"), DefiniteFailure("no connection")])
def test_a_store_that_is_away_is_told_to_everybody_and_not_asked_once_for_each(run: World, error: Exception) -> None:
    recorder = Recorder(lambda verbs: error)

    told = run(recorder, [claim(number) for number in range(20)])

    assert {type(each) for each in told} == {type(error)}
    assert len(recorder.batches) <= 8


@worlds
def test_twins_are_sent_one_after_the_other(run: World) -> None:
    recorder = Recorder()

    assert run(recorder, [claim(1)] * 5) == [KEPT] * 5
    assert recorder.batches == [1] * 5


def test_ten_thousand_callers_are_bounded_and_the_rest_is_told_at_once() -> None:
    recorder = Recorder()

    told = on_a_loop_many(recorder)

    refused = [each for each in told if isinstance(each, Overloaded)]
    assert len(told) == 10_000
    assert len(refused) == 10_000 - 512
    assert all(each == KEPT for each in told if not isinstance(each, Overloaded))
    assert max(recorder.batches) <= 256


def on_a_loop_many(send: Sender) -> Told:
    async def main() -> Told:
        async def sending(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
            await asyncio.sleep(0)
            return send(batch)

        batcher = AsyncBatcher(sending)

        async def ask(number: int) -> Answer | Locked:
            return await batcher.apply(claim(number))

        return await asyncio.gather(*(ask(number) for number in range(10_000)), return_exceptions=True)

    return asyncio.run(main())


def test_a_caller_that_is_cancelled_harms_nobody_and_its_verb_is_sent() -> None:
    recorder = Recorder()

    async def main() -> Answer | Locked:
        release = asyncio.Event()

        async def sending(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
            await release.wait()
            return recorder(batch)

        batcher = AsyncBatcher(sending)
        leaving, staying = batcher.apply(claim(1)), batcher.apply(claim(2))
        await asyncio.sleep(0)
        leaving.cancel()
        release.set()
        answer = await staying
        await batcher.close()
        return answer

    assert asyncio.run(main()) == KEPT
    assert sum(recorder.batches) == 2


class Held:
    """A store that is asked at once and answers when a test says so."""

    def __init__(self) -> None:
        self.batches: list[list[Verb]] = []
        self.answers = asyncio.Event()

    async def __call__(self, batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
        self.batches.append(list(batch))
        await self.answers.wait()
        return [KEPT for _ in batch]


def test_whoever_is_alone_carries_its_verb_itself_in_the_same_breath() -> None:
    async def main() -> None:
        held = Held()
        batcher = AsyncBatcher(held)
        carrying = asyncio.create_task(_awaited(batcher.carry(claim(1))))
        await asyncio.sleep(0)
        assert held.batches == [[claim(1)]]
        assert len(asyncio.all_tasks()) == 2  # This one, and the one that carries.
        held.answers.set()
        assert await carrying == KEPT
        assert batcher.is_quiet

    asyncio.run(main())


def test_whoever_comes_while_one_carries_alone_is_sent_without_it_and_a_twin_after_it() -> None:
    async def main() -> None:
        held = Held()
        batcher = AsyncBatcher(held)
        carrying = asyncio.create_task(_awaited(batcher.carry(claim(1))))
        await asyncio.sleep(0)
        assert not batcher.is_quiet
        others = [batcher.apply(verb) for verb in (claim(1), claim(2), claim(3))]
        for _ in range(5):
            await asyncio.sleep(0)
        assert held.batches == [[claim(1)], [claim(2), claim(3)]]
        held.answers.set()
        assert await asyncio.gather(carrying, *others) == [KEPT] * 4
        assert held.batches[2:] == [[claim(1)]]
        assert await batcher.carry(claim(4)) == KEPT
        await batcher.close()

    asyncio.run(main())


def test_a_store_that_works_on_one_batch_at_a_time_is_given_the_next_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(async_batcher, "PATIENCE_SECONDS", 0.0)

    async def main() -> None:
        held = Held()
        batcher = AsyncBatcher(held, Gathering(lanes=1))
        told = [batcher.apply(claim(number)) for number in range(2)]
        await asyncio.sleep(0)
        told += [batcher.apply(claim(number)) for number in range(2, 8)]
        for _ in range(5):  # Whoever had no patience would open a second lane now.
            await asyncio.sleep(0)
        assert list(map(len, held.batches)) == [2]
        held.answers.set()
        assert await asyncio.gather(*told) == [KEPT] * 8
        assert list(map(len, held.batches)) == [2, 6]
        await batcher.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("callers", "under_way"),
    [
        (MOST_LANES * WORTH_ANOTHER_LANE, [WORTH_ANOTHER_LANE] * MOST_LANES),
        (2 * WORTH_ANOTHER_LANE + 2, [WORTH_ANOTHER_LANE + 1] * 2),
    ],
)
def test_a_crowd_gets_one_lane_more_and_nobody_else(callers: int, under_way: list[int]) -> None:
    async def main() -> None:
        held = Held()
        batcher = AsyncBatcher(held, Gathering(lanes=MOST_LANES))
        told = [batcher.apply(claim(number)) for number in range(callers)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert list(map(len, held.batches)) == under_way
        held.answers.set()
        assert await asyncio.gather(*told) == [KEPT] * callers
        await batcher.close()

    asyncio.run(main())


def test_nobody_carries_alone_right_after_a_batch_of_several() -> None:
    async def main() -> list[int]:
        recorder = Recorder()

        async def sending(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
            await asyncio.sleep(0)
            return recorder(batch)

        batcher = AsyncBatcher(sending)
        await asyncio.gather(*(batcher.apply(claim(number)) for number in range(4)))
        await batcher.close()
        assert not batcher.is_quiet
        await asyncio.gather(*(_awaited(batcher.carry(claim(number))) for number in range(4)))
        await batcher.close()
        return recorder.batches

    assert asyncio.run(main()) == [2, 2, 2, 2]


def test_those_who_come_together_share_batches_though_the_store_answers_the_first_one_at_once() -> None:
    recorder = Recorder()

    async def main() -> None:
        async def sending(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
            return recorder(batch)

        batcher = AsyncBatcher(sending)

        async def carry(number: int) -> None:
            await batcher.carry(claim(number))

        await asyncio.gather(*map(carry, range(9)))

    asyncio.run(main())
    assert recorder.batches == [1, 4, 2, 1, 1]  # Half of those who wait, as there are two lanes.


@pytest.mark.parametrize("failure", [IndefiniteFailure("cut"), DefiniteFailure("no connection"), Spoilt("too large")])
def test_whoever_carries_alone_is_told_what_went_wrong_and_only_the_unknown_is_sent_again(failure: Exception) -> None:
    recorder = Recorder(lambda verbs: failure)

    async def main() -> None:
        async def sending(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
            return recorder(batch)

        batcher = AsyncBatcher(sending)
        with pytest.raises(type(failure)):
            await batcher.carry(claim(1))
        assert not batcher.is_quiet  # Whoever comes in the same turn of the loop is company.
        await asyncio.sleep(0)
        assert batcher.is_quiet

    asyncio.run(main())
    assert recorder.batches == ([1, 1] if isinstance(failure, IndefiniteFailure) else [1])


@pytest.mark.parametrize("verb", [completion(1), claim(1)])
def test_the_write_of_an_owner_that_is_cut_off_is_sent_all_the_same_and_a_claim_is_not(verb: Verb) -> None:
    async def main() -> list[list[Verb]]:
        held = Held()
        batcher = AsyncBatcher(held)
        carrying = asyncio.create_task(_awaited(batcher.carry(verb)))
        await asyncio.sleep(0)
        carrying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await carrying
        held.answers.set()
        await batcher.close()
        return held.batches

    assert asyncio.run(main()) == ([[verb]] if isinstance(verb, Claim) else [[verb], [verb]])


async def _awaited(answer: Awaitable[Answer | Locked]) -> Answer | Locked:
    return await answer


class Interrupted(BaseException):
    """Raised by a signal in the midst of whatever the main thread does, as Ctrl-C and time limits are."""


def test_a_thread_that_is_interrupted_while_it_waits_leaves_nobody_asleep() -> None:
    gate = threading.Event()

    def gated(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
        gate.wait(10)
        return [KEPT for _ in batch]

    # With a single lane all who come behind the first are of one batch, the interrupted one in the midst of it.
    gathering: Gathering[Waiter] = Gathering(lanes=1, is_shared_out=False)
    batcher = BlockingBatcher(gated, gathering)

    def raise_interrupted(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, raise_interrupted)
    try:
        with ThreadPoolExecutor() as pool:
            others = [pool.submit(batcher.apply, claim(1))]
            until(lambda: not gathering.is_quiet)
            others.append(pool.submit(batcher.apply, claim(2)))
            until(lambda: gathering.waiting == 1)

            def join_and_interrupt() -> None:
                until(lambda: gathering.waiting == 2)
                others.append(pool.submit(batcher.apply, claim(4)))
                until(lambda: gathering.waiting == 3)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

            interrupting = pool.submit(join_and_interrupt)
            with pytest.raises(Interrupted):
                batcher.apply(claim(3))
            interrupting.result(10)
            gate.set()

            assert [other.result(10) for other in others] == [KEPT] * 3
    finally:
        gate.set()
        signal.signal(signal.SIGUSR1, before)
    batcher.close()


def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        threading.Event().wait(0.001)  # Nothing says so.


def test_everybody_is_woken_although_some_have_gone_before_and_some_go_as_they_are_woken() -> None:
    waiters = [Waiter() for _ in range(5)]
    others = deque(waiters)
    waiters[0].is_gone = waiters[2].is_gone = True

    for _ in range(5):
        wake_next(others)
        if not waiters[3].is_pending.locked():
            wake_next(others)  # By the fourth, which was interrupted right after it was woken.

    assert not any(waiter.is_pending.locked() for waiter in waiters)


def test_the_next_is_woken_only_when_the_one_before_is_awake() -> None:
    waiters = [Waiter() for _ in range(3)]
    others = deque(waiters)

    wake_next(others)

    assert [waiter.is_pending.locked() for waiter in waiters] == [False, True, True]


def test_threads_that_ask_again_and_again_are_all_answered() -> None:
    recorder = Recorder()
    batcher = BlockingBatcher(recorder)

    def ask(start: int) -> list[Answer | Locked]:
        return [batcher.apply(claim(1000 * start + number)) for number in range(100)]

    with ThreadPoolExecutor(max_workers=16) as pool:
        told = [future.result(60) for future in [pool.submit(ask, start) for start in range(16)]]
    batcher.close()

    assert told == [[KEPT] * 100] * 16
    assert sum(recorder.batches) == 1600


def test_a_few_threads_wait_for_the_batch_under_way_unless_it_takes_long() -> None:
    """As on a loop: nobody waits long for somebody else's locked row."""
    gates: dict[int, threading.Event] = {size: threading.Event() for size in (1, 2, 10)}
    sent: list[int] = []

    def gated(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
        sent.append(len(batch))
        gates[len(batch)].wait(10)
        return [KEPT for _ in batch]

    # With a single carrier, the first of all is on a lane of its own while ten gather behind it.
    gathering: Gathering[Waiter] = Gathering(lanes=1, is_shared_out=False)
    batcher = BlockingBatcher(gated, gathering)
    with ThreadPoolExecutor(max_workers=13) as pool:
        first = pool.submit(batcher.apply, claim(0))
        until(lambda: sent == [1])
        ten = [pool.submit(batcher.apply, claim(number)) for number in range(1, 11)]
        until(lambda: gathering.waiting == 10)
        gathering.lanes = 2  # From now on there is room for another.
        gates[1].set()
        until(lambda: sent == [1, 10])
        few = [pool.submit(batcher.apply, claim(number)) for number in (11, 12)]

        until(lambda: sum(sent) == 13)
        for gate in gates.values():
            gate.set()
        assert [each.result(10) for each in (first, *ten, *few)] == [KEPT] * 13
    batcher.close()


def test_two_batches_are_under_way_at_the_same_time_where_the_store_can() -> None:
    together = threading.Barrier(2)

    def meeting(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
        together.wait(10)
        return [KEPT for _ in batch]

    batcher = BlockingBatcher(meeting)
    with ThreadPoolExecutor(max_workers=2) as pool:
        futures = [pool.submit(batcher.apply, claim(number)) for number in range(2)]

        assert [future.result(20) for future in futures] == [KEPT] * 2
    batcher.close()


def test_whoever_asks_after_closing_is_answered_all_the_same() -> None:
    recorder = Recorder()
    batcher = BlockingBatcher(recorder)
    ask_together(batcher, 8)
    batcher.close()

    assert ask_together(batcher, 8) == [KEPT] * 8


def ask_together(batcher: BlockingBatcher, callers: int) -> list[Answer | Locked]:
    ready = threading.Barrier(callers)

    def ask(number: int) -> Answer | Locked:
        ready.wait(10)
        return batcher.apply(claim(number))

    with ThreadPoolExecutor(max_workers=callers) as pool:
        return [future.result(10) for future in [pool.submit(ask, number) for number in range(callers)]]


def test_closing_answers_whoever_waits_and_ends_the_thread() -> None:
    gate = threading.Event()

    def gated(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
        gate.wait(10)
        return [KEPT for _ in batch]

    gathering: Gathering[Waiter] = Gathering(lanes=1, is_shared_out=False)
    batcher = BlockingBatcher(gated, gathering)
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(batcher.apply, claim(number)) for number in range(4)]
        until(lambda: gathering.waiting == 3)
        closing = pool.submit(batcher.close)
        gate.set()

        assert [future.result(10) for future in futures] == [KEPT] * 4
        assert closing.result(10) is None


def test_a_verb_that_is_asked_for_as_the_last_carrier_leaves_is_carried() -> None:
    async def main() -> int:
        async def sending(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
            return [KEPT for _ in batch]

        batcher = AsyncBatcher(sending)

        async def ask(start: int) -> None:
            for number in range(200):
                await batcher.apply(claim(1000 * start + number))

        await asyncio.wait_for(asyncio.gather(*(ask(start) for start in range(8))), 30)
        return 0

    assert asyncio.run(main()) == 0


def test_a_few_wait_for_the_batch_under_way_unless_it_takes_long() -> None:
    """Another trip for two is dearer than the wait of two; but nobody waits long for somebody else's locked row."""

    async def main() -> None:
        ends: dict[int, asyncio.Event] = {}

        async def sending(batch: Sequence[Verb]) -> Sequence[Answer | Locked]:
            ends[len(batch)] = asyncio.Event()
            await ends[len(batch)].wait()
            return [KEPT for _ in batch]

        batcher = AsyncBatcher(sending, Gathering(is_shared_out=False))
        first = [batcher.apply(claim(number)) for number in range(10)]
        await asyncio.sleep(0)
        assert list(ends) == [10]
        few = [batcher.apply(claim(number)) for number in (10, 11)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert list(ends) == [10]

        async with asyncio.timeout(10):
            while 2 not in ends:  # noqa: ASYNC110 - nothing tells when a batch is sent but the batch itself.
                await asyncio.sleep(0.001)
        ends[2].set()
        assert await asyncio.gather(*few) == [KEPT, KEPT]
        ends[10].set()
        assert await asyncio.gather(*first) == [KEPT] * 10
        await batcher.close()

    asyncio.run(main())
