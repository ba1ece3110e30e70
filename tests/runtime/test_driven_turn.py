"""Flows that go on in the breath in which somebody brings an answer: as if each had been awaited by its own caller."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from nebis.core.record import Record, State
from nebis.core.verbs import Claim, Complete
from nebis.errors import Overloaded
from nebis.flow import Flow
from nebis.flows.execute import execute
from nebis.flows.request import Finished
from nebis.ports.asks import Apply, MakeClaim
from nebis.ports.observer import Event
from nebis.ports.store import DefiniteFailure
from nebis.runtime.async_batcher import AsyncBatcher
from nebis.runtime.async_turn import AsyncTurn
from nebis.runtime.eventloop import AsyncWorld
from tests.flows.specimens import request_of
from tests.runtime.observed import ObservedStore

caller: ContextVar[str] = ContextVar("caller", default="nobody")


@pytest.fixture(autouse=True)
def _among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AsyncBatcher, "is_quiet", False)


async def returns(record: Record, turn: AsyncTurn) -> object:
    return caller.get()


async def called_by(name: str, world: AsyncWorld, key: str) -> Any:
    caller.set(name)
    return await world.run(execute(request_of(key=key)), returns)


def test_handler_and_observers_are_called_in_the_context_of_their_caller() -> None:
    seen: list[tuple[str, str]] = []

    def observe(event: Event) -> None:
        seen.append((type(event).__name__, caller.get()))

    async def scenario() -> None:
        world = AsyncWorld(ObservedStore().asynchronous(), [observe])
        # Of one batch: each hears its answer from a task that is neither's.
        endings = await asyncio.gather(called_by("alice", world, "key-1"), called_by("bob", world, "key-2"))
        await world.close()
        assert [ending.outcome.body for ending in endings] == [request_of().encode(name) for name in ("alice", "bob")]

    asyncio.run(scenario())

    assert sorted(seen) == [
        *(("AttemptStarted", "alice"), ("AttemptStarted", "bob")),
        *(("Completed", "alice"), ("Completed", "bob")),
    ]


def test_what_one_flow_makes_of_its_answer_harms_no_neighbour_in_the_batch() -> None:
    class Broken(BaseException):
        pass

    def breaks() -> Flow[None]:
        yield Apply((yield MakeClaim(request_of(key="key-1").claim)))
        raise Broken

    async def scenario() -> None:
        store = ObservedStore()
        world = AsyncWorld(store.asynchronous())
        broken = world.run(breaks(), returns)
        neighbours = [world.run(execute(request_of(key=key)), returns) for key in ("key-2", "key-3")]
        assert all(isinstance(ending, Finished) for ending in await asyncio.gather(*neighbours))
        with pytest.raises(Broken):
            await broken
        assert len(store.batches[0]) == 3
        assert not world.under_way
        await world.close()

    asyncio.run(scenario())


def test_a_claim_that_would_wait_too_long_is_refused_to_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise Overloaded("512 claims wait for the store")

    async def scenario() -> None:
        world = AsyncWorld(ObservedStore().asynchronous())
        monkeypatch.setattr(world, "send", full)
        with pytest.raises(Overloaded):
            await world.run(execute(request_of()), returns)
        assert not world.under_way
        await world.close()

    asyncio.run(scenario())


def test_a_write_that_failed_is_sent_again_by_the_flow_that_asked_for_it() -> None:
    store, request = ObservedStore(), request_of()

    async def scenario() -> None:
        world = AsyncWorld(store.asynchronous())

        async def handler(record: Record, turn: AsyncTurn) -> object:
            store.faults.append(DefiniteFailure("the connection was refused"))
            return "done"

        assert isinstance(await world.run(execute(request), handler), Finished)
        await world.close()

    asyncio.run(scenario())

    assert [type(verb) for batch in store.batches for verb in batch] == [Claim, Complete, Complete]
    assert store.stored(store.batches[0][0].identity).state is State.COMPLETED  # type: ignore[union-attr]


def test_an_answer_that_comes_after_the_end_of_its_turn_changes_nothing_and_harms_no_neighbour() -> None:
    async def scenario() -> None:
        store = ObservedStore()
        world = AsyncWorld(store.asynchronous())
        ended, neighbour = (world.run(execute(request_of(key=key)), returns) for key in ("key-1", "key-2"))
        [turn] = [turn for turn in world.under_way if turn.waiter is ended]
        turn.abandon()
        assert isinstance(await neighbour, Finished)
        assert ended.cancelled()
        assert len(store.batches[0]) == 2
        assert [type(verb) for batch in store.batches[1:] for verb in batch] == [Complete]  # The neighbour's.
        await world.close()

    asyncio.run(scenario())
