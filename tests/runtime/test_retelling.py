"""Replays that are told before anything is claimed: a short way to the same answer, or no answer at all."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nebis.core.record import Record
from nebis.core.replaying import Ended
from nebis.errors import StoreUnavailable
from nebis.flow import Flow
from nebis.flows.execute import execute
from nebis.flows.request import Finished
from nebis.ports.observer import Event, Replayed
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked
from nebis.runtime import retelling
from nebis.runtime.async_turn import AsyncTurn
from nebis.runtime.eventloop import AsyncWorld
from tests.flows.specimens import request_of
from tests.runtime.observed import ObservedStore


class ReadStore(ObservedStore):
    """Tells of every read of completed records, and fails where a fault is due."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[list[bytes]] = []
        self.fault: BaseException | None = None

    def ended(self, identities: Sequence[bytes], *, now: int | None = None) -> Flow[dict[bytes, Ended]]:
        self.reads.append(list(identities))
        if self.fault is not None:
            raise self.fault
        return (yield from super().ended(identities, now=now))


async def returns(_record: Record, _turn: AsyncTurn) -> object:
    return "done"


async def completed(world: AsyncWorld, *keys: str) -> list[Any]:
    return await asyncio.gather(*(world.run(execute(request_of(key=key)), returns) for key in keys))


def run(scenario: Callable[[ReadStore, AsyncWorld], Awaitable[None]], *observers: Callable[[Event], None]) -> None:
    async def opened() -> None:
        store = ReadStore()
        world = AsyncWorld(store.asynchronous(), observers)
        await scenario(store, world)
        await world.close()

    asyncio.run(opened())


def test_a_replay_is_what_the_claim_would_have_answered_and_nothing_is_claimed() -> None:
    events: list[Event] = []

    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        await completed(world, "key-1")
        claimed = await world.run(execute(request_of(key="key-1")), returns)
        before = len(store.batches)

        assert await world.retelling.known(request_of(key="key-1")) == claimed
        assert len(store.batches) == before

    run(scenario, events.append)

    one, other = (event for event in events if isinstance(event, Replayed))
    assert one == other


def test_nothing_is_read_of_a_key_that_nobody_saw_end() -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        assert await world.retelling.known(request_of(key="key-1")) is None
        assert store.reads == []

    run(scenario)


def test_another_command_under_the_key_is_left_to_the_state_machine() -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        await completed(world, "key-1")
        assert await world.retelling.known(request_of(key="key-1", command="43 EUR")) is None
        assert len(store.reads) == 1

    run(scenario)


def test_callers_of_one_moment_share_a_read_and_twins_are_read_once() -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        await completed(world, "key-1", "key-2")
        requests = [request_of(key=key) for key in ("key-1", "key-2", "key-1")]
        endings = await asyncio.gather(*(world.retelling.known(request) for request in requests))
        assert all(isinstance(ending, Finished) for ending in endings)
        assert [sorted(read) for read in store.reads] == [sorted({each.claim.identity for each in requests})]

    run(scenario)


def test_a_store_that_can_read_two_batches_at_once_is_given_half_of_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        keys = [f"key-{number}" for number in range(6)]
        await completed(world, *keys)
        monkeypatch.setattr(world.retelling, "_lanes", 2)
        endings = await asyncio.gather(*(world.retelling.known(request_of(key=key)) for key in keys))
        assert all(isinstance(ending, Finished) for ending in endings)
        # This one answers at once, so that the second begins when nothing is under way any more.
        assert [len(read) for read in store.reads] == [3, 2, 1]

    run(scenario)


@pytest.mark.parametrize(
    "fault", [IndefiniteFailure("cut off"), RowLocked("held"), LookupError("a row that nobody can read")]
)
def test_whatever_goes_wrong_sends_everybody_the_usual_way(fault: Exception) -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        await completed(world, "key-1", "key-2")
        store.fault = fault
        requests = [request_of(key=key) for key in ("key-1", "key-2")]
        assert await asyncio.gather(*(world.retelling.known(request) for request in requests)) == [None, None]
        store.fault = None
        assert await world.retelling.known(requests[0]) is not None

    run(scenario)


def test_a_store_that_is_away_is_told_once_and_not_waited_for_again() -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        await completed(world, "key-1", "key-2")
        store.fault = DefiniteFailure("no server is there")
        requests = [request_of(key=key) for key in ("key-1", "key-2")]
        told = await asyncio.gather(*(world.retelling.known(request) for request in requests), return_exceptions=True)
        assert [type(error) for error in told] == [StoreUnavailable, StoreUnavailable]
        assert told[0] is not told[1]

    run(scenario)


def test_a_read_that_is_held_up_does_not_hold_up_who_comes_later() -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        await completed(world, "key-1", "key-2")
        held, sessions = asyncio.Event(), world.backend.sessions

        class Slow:
            async def run_unshielded(self, flow: Flow[Any]) -> Any:
                if len(store.reads) == 0:
                    store.reads.append([])
                    await held.wait()
                return await sessions.run_unshielded(flow)

        world.backend = replace(world.backend, sessions=Slow(), reading_lanes=2)  # type: ignore[arg-type]  # All that is asked of it.
        world.retelling = retelling.Retelling(world)
        first = asyncio.ensure_future(world.retelling.known(request_of(key="key-1")))
        for _ in range(3):
            await asyncio.sleep(0)
        assert await world.retelling.known(request_of(key="key-2")) is not None
        assert not first.done()
        held.set()
        assert await first is not None
        world.backend = replace(world.backend, sessions=sessions)

    run(scenario)


def test_a_caller_that_leaves_harms_no_neighbour() -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        await completed(world, "key-1", "key-2")
        leaving = asyncio.ensure_future(world.retelling.known(request_of(key="key-1")))
        staying = asyncio.ensure_future(world.retelling.known(request_of(key="key-2")))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying is not None
        assert leaving.cancelled()

    run(scenario)


def test_beyond_the_longest_queue_nobody_more_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        await completed(world, "key-1", "key-2")
        monkeypatch.setattr(retelling, "LONGEST_QUEUE", 1)
        first = world.retelling.ask(request_of(key="key-1").claim.identity)
        assert first is not None
        assert world.retelling.ask(request_of(key="key-2").claim.identity) is None
        assert await first is not None

    run(scenario)


def test_a_process_that_is_ending_tells_nothing_new() -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        await completed(world, "key-1")
        world.is_closing = True
        with pytest.raises(StoreUnavailable):
            world.retelling.ask(request_of(key="key-1").claim.identity)

    run(scenario)


def test_what_was_asked_for_is_answered_before_the_world_closes() -> None:
    async def scenario(store: ReadStore, world: AsyncWorld) -> None:
        await completed(world, "key-1")
        asked = world.retelling.ask(request_of(key="key-1").claim.identity)
        assert asked is not None
        await world.close()
        assert asked.done()
        assert asked.result() is not None

    run(scenario)
