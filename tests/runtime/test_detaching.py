"""What becomes of a request on an event loop whose caller is cancelled, or whose process ends, at any moment (F075)."""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from nebis.core.record import Record, State
from nebis.core.verbs import Claim, Complete
from nebis.flow import Flow
from nebis.flows.execute import execute
from nebis.flows.request import Finished
from nebis.ports.store import AsyncSessions
from nebis.runtime.async_batcher import AsyncBatcher
from nebis.runtime.async_turn import AsyncTurn
from nebis.runtime.driven_turn import DrivenTurn
from nebis.runtime.entropy import draw
from nebis.runtime.eventloop import AsyncWorld
from tests.flows.specimens import request_of
from tests.runtime.observed import PATIENCE_SECONDS, ObservedStore

T = TypeVar("T")


@pytest.fixture(params=["alone", "among others"], autouse=True)
def is_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a request carries its own verbs to the store, as it does where there is no other."""
    if request.param == "among others":
        monkeypatch.setattr(AsyncBatcher, "is_quiet", False)
    return bool(request.param == "alone")


among_others = pytest.mark.parametrize("is_alone", ["among others"], indirect=True)
"""Where requests wait for batches that others carry."""


class Gate:
    """Connections to a store whose answers are held back while the gate is shut."""

    def __init__(self, sessions: AsyncSessions) -> None:
        self._sessions = sessions
        self.is_asked = asyncio.Event()
        self.opened = asyncio.Event()

    async def run(self, flow: Flow[T]) -> T:
        return await self._sessions.run(flow)

    async def run_unshielded(self, flow: Flow[T]) -> T:
        answers = await self._sessions.run_unshielded(flow)
        self.is_asked.set()
        await self.opened.wait()
        return answers

    async def close(self) -> None:
        await self._sessions.close()


class Play:
    """A world behind a gate, and a handler that remembers its runs and waits until it may end."""

    def __init__(self) -> None:
        self.store = ObservedStore()
        self.request = request_of()
        backend = self.store.asynchronous()
        self.gate = Gate(backend.sessions)
        self.world = AsyncWorld(dataclasses.replace(backend, sessions=self.gate))
        self.runs = 0
        self.started, self.may_end = asyncio.Event(), asyncio.Event()

    async def handler(self, record: Record, turn: AsyncTurn) -> object:
        self.runs += 1
        self.started.set()
        await self.may_end.wait()
        return "done"

    def call(self) -> asyncio.Task[Any]:
        async def caller() -> object:
            return await self.world.run(execute(self.request), self.handler)

        return asyncio.create_task(caller())

    def as_it_is_answered(self, act: Callable[[DrivenTurn[Any]], object]) -> None:
        """Do something in the same breath in which the only turn gets its next answer, right after that."""
        [turn] = self.world.under_way
        usual = turn.set_result

        def answered(answer: Any) -> None:
            usual(answer)
            act(turn)

        turn.set_result = answered  # type: ignore[method-assign]  # Of this turn alone.

    @property
    def stored(self) -> Record:
        drawn = draw()
        return self.store.stored(self.request.claim(drawn.record_id, drawn.nonce).identity)

    @property
    def verbs(self) -> list[type]:
        return [type(verb) for batch in self.store.batches for verb in batch]


def played(scenario: Callable[[Play], Coroutine[Any, Any, None]]) -> Play:
    async def play() -> Play:
        the_play = Play()
        await asyncio.wait_for(scenario(the_play), PATIENCE_SECONDS)
        return the_play

    return asyncio.run(play())


async def cancelled(caller: asyncio.Task[Any]) -> None:
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


def test_an_attempt_goes_on_whose_caller_was_cancelled_while_it_claimed() -> None:
    async def scenario(play: Play) -> None:
        caller = play.call()
        await play.gate.is_asked.wait()
        await cancelled(caller)
        play.gate.opened.set()
        play.may_end.set()
        await play.world.close(PATIENCE_SECONDS)

    play = played(scenario)

    assert play.runs == 1
    assert play.stored.state is State.COMPLETED
    assert play.verbs == [Claim, Complete]


@among_others
def test_an_attempt_goes_on_whose_caller_was_cancelled_as_its_claim_was_answered() -> None:
    async def scenario(play: Play) -> None:
        caller = play.call()
        await play.gate.is_asked.wait()
        play.as_it_is_answered(lambda _: caller.cancel())
        play.gate.opened.set()
        play.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await play.world.close(PATIENCE_SECONDS)

    play = played(scenario)

    assert play.runs == 1
    assert play.stored.state is State.COMPLETED


def test_a_caller_that_is_cancelled_while_it_waits_for_the_outcome_is_only_detached() -> None:
    async def scenario(play: Play) -> None:
        play.gate.opened.set()
        caller = play.call()
        await play.started.wait()
        play.gate.opened.clear()
        play.gate.is_asked.clear()
        play.may_end.set()
        await play.gate.is_asked.wait()
        await cancelled(caller)
        play.gate.opened.set()
        await play.world.close(PATIENCE_SECONDS)

    play = played(scenario)

    assert play.stored.state is State.COMPLETED
    assert play.verbs == [Claim, Complete]


@among_others
def test_a_replay_is_answered_without_a_task() -> None:
    tasks: list[asyncio.Task[None] | None] = []

    async def scenario(play: Play) -> None:
        play.gate.opened.set()
        play.may_end.set()
        await play.call()
        play.gate.opened.clear()
        play.gate.is_asked.clear()
        caller = play.call()
        await play.gate.is_asked.wait()
        tasks.extend(turn.task for turn in play.world.under_way)
        play.gate.opened.set()
        ending = await caller
        assert isinstance(ending, Finished)
        assert ending.is_replay
        await play.world.close()

    assert played(scenario).runs == 1
    assert tasks == [None]


def test_the_end_of_the_process_waits_for_a_claim_and_for_the_attempt_that_it_begins() -> None:
    async def scenario(play: Play) -> None:
        caller = play.call()
        await play.gate.is_asked.wait()
        closing = asyncio.create_task(play.world.close(PATIENCE_SECONDS))
        await asyncio.sleep(0)
        play.gate.opened.set()
        await play.started.wait()
        assert not closing.done()
        play.may_end.set()
        assert isinstance(await caller, Finished)
        await closing

    assert played(scenario).stored.state is State.COMPLETED


def test_a_claim_that_is_not_answered_in_time_is_not_attempted_when_the_process_ends() -> None:
    async def scenario(play: Play) -> None:
        caller = play.call()
        await play.gate.is_asked.wait()
        closing = asyncio.create_task(play.world.close())
        with pytest.raises(asyncio.CancelledError):
            await caller
        play.gate.opened.set()
        await closing
        assert not play.world.under_way

    play = played(scenario)

    assert play.runs == 0
    assert play.stored.state is State.IN_PROGRESS


@among_others
def test_a_claim_that_is_answered_as_the_process_ends_is_not_attempted() -> None:
    async def scenario(play: Play) -> None:
        caller = play.call()
        await play.gate.is_asked.wait()
        # Before the turn hears of its answer, everything is over.
        await play.world._end_all()
        play.gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await play.world.close()

    assert played(scenario).runs == 0


@among_others
def test_an_attempt_that_is_ended_before_its_first_step_leaves_nobody_waiting() -> None:
    async def scenario(play: Play) -> None:
        caller = play.call()
        await play.gate.is_asked.wait()
        is_cancelled = asyncio.Event()

        def cancel_unbegun(turn: DrivenTurn[Any]) -> None:
            # Called right after the task was made, which has not had its turn yet.
            assert turn.task is not None
            turn.task.cancel()
            is_cancelled.set()

        play.as_it_is_answered(cancel_unbegun)
        play.gate.opened.set()
        await is_cancelled.wait()
        await play.world.close()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert not play.world.under_way

    assert played(scenario).runs == 0


def test_a_handler_may_time_itself_and_its_caller_is_not_concerned() -> None:
    async def scenario(play: Play) -> None:
        tasks = []

        async def impatient(record: Record, turn: AsyncTurn) -> object:
            tasks.append(asyncio.current_task())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            return "in time"

        play.gate.opened.set()
        ending = await play.world.run(execute(play.request), impatient)
        assert isinstance(ending, Finished)
        assert ending.outcome.body == play.request.encode("in time")
        assert tasks != [asyncio.current_task()]
        await play.world.close()

    played(scenario)


def test_what_ends_the_process_reaches_the_caller_too() -> None:
    async def scenario(play: Play) -> None:
        async def exits(record: Record, turn: AsyncTurn) -> object:
            raise SystemExit(3)

        play.gate.opened.set()
        await play.world.run(execute(play.request), exits)

    with pytest.raises(SystemExit):
        played(scenario)
