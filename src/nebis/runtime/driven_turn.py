"""One request's turn on an event loop, driven from answer to answer.

The flow of a request mostly waits for batches that others carry. So nothing of its own waits: whoever brings an answer
lets the flow go on to its next ask, in the same breath. Only what has to be awaited runs in a task, the handler above
all. Callers wait for a future, and whoever cancels them cancels that: the flow goes on without them (F075).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import Context, copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from nebis.core.answers import Answer, Locked
from nebis.core.record import Record
from nebis.core.verbs import Suspend, Verb
from nebis.flow import Ask, Flow, go_on
from nebis.flows.request import Ending
from nebis.ports.asks import Apply, Attend, MakeClaim, Tell, TellClaimed, TellCompleted
from nebis.ports.observer import Event
from nebis.runtime.async_turn import AsyncTurn, Performer

if TYPE_CHECKING:
    from nebis.runtime.eventloop import AsyncWorld

T = TypeVar("T")


class DrivenTurn(AsyncTurn, Generic[T]):
    """A turn that takes the answers to what its flow asks: to a batch it is whoever waits."""

    is_driven = True
    at_once: ClassVar[dict[type[Ask[Any]], Performer]]
    """What is done for asks that take no time; tests leave those alone."""
    applies_directly: ClassVar[bool] = True
    """Whether verbs go to the batcher without a performer; not where tests have put performers of their own."""
    _flow: Flow[T]
    waiter: asyncio.Future[T] | None
    """What the caller waits for, until it is told."""
    _is_over: bool = False
    _context: Context
    """The caller's: handlers and observers see it, wherever an answer comes from."""

    def start(self, flow: Flow[T], context: Context | None = None) -> asyncio.Future[T]:
        """Go as far as possible now; return what tells how the flow ended. Without a context it is the caller's."""
        self._flow = flow
        self._is_over = False
        self.waiter = ended = self._world.loop.create_future()
        self._context = copy_context() if context is None else context
        self._world.under_way.add(self)
        self.set_result(None)
        return ended

    def done(self) -> bool:
        """Tell whether nothing is done with an answer any more."""
        return self._is_over

    def set_result(self, answer: Answer | Locked | None) -> None:
        """Go on with an answer, until the flow has to wait."""
        try:
            is_over, asked = go_on(self._flow, answer, self.at_once, self)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the caller, and not for the neighbours in a batch.
            self._tell_error(error)
        else:
            self._wait(is_over, asked)

    def set_exception(self, error: BaseException) -> None:
        """Go on with what went wrong instead."""
        try:
            is_over, asked = go_on(self._flow, None, self.at_once, self, error)
        except BaseException as raised:  # noqa: BLE001 - as above.
            self._tell_error(raised)
        else:
            self._wait(is_over, asked)

    def _wait(self, is_over: bool, asked: Any) -> None:  # noqa: FBT001 - as `go_on` says it.
        """Tell the result, or see to it that somebody brings an answer to what the flow asked for."""
        if is_over:
            self._tell_result(asked)
            return
        try:
            if type(asked) is not Apply or not self._sent(asked.verb):
                # In a task, and with the ask still to be performed: there it is awaited.
                self.task = self._world.loop.create_task(self._rest(asked), context=self._context)
        except BaseException as error:  # noqa: BLE001 - the flow decides; what it does not catch goes on to the caller.
            self.set_exception(error)

    def _sent(self, verb: Verb) -> bool:
        """Let a verb wait among others, if it may; a lone one is carried by a task of its own, for less."""
        world = self._world
        if self.transaction is not None or world.batcher.is_quiet or not self.applies_directly:
            return False
        if type(verb) is Suspend and self._watch is not None:
            verb = self._watch.sends(verb)
        world.send(verb, self)
        return True

    async def _rest(self, asked: Any) -> None:
        """Do the same in a task, from this ask on, until nothing has to be awaited any more."""
        flow, performs, at_once, is_over = self._flow, self.performs, self.at_once, False
        try:
            try:
                while not is_over:
                    try:
                        if type(asked) is Apply and self._sent(asked.verb):
                            self.task = None
                            return
                        answer = performs[type(asked)](self, asked)
                        # Looked at first, as to ask for the attribute makes an object.
                        if type(answer) is CoroutineType or hasattr(answer, "__await__"):
                            answer = await answer
                    except BaseException as error:  # noqa: BLE001 - the flow decides, as with every driver.
                        is_over, asked = go_on(flow, None, at_once, self, error)
                    else:
                        is_over, asked = go_on(flow, answer, at_once, self)
            finally:
                if self.transaction is not None:
                    await self.close()
        except asyncio.CancelledError:
            self.abandon()
            raise
        except BaseException as error:
            # Told to the caller, whatever it is, and the turn is over; what ends the process goes on besides.
            task = self.task
            self._tell_error(error)
            if not isinstance(error, Exception):
                assert task is not None  # It is this one.
                task.add_done_callback(asyncio.Task.exception)  # Else the loop would complain that nobody asked.
                raise
        else:
            self._tell_result(asked)

    def _observed(self, event: Event) -> None:
        # A copy, as the handler's task may be in the other one at this moment.
        self._context.copy().run(super()._observed, event)

    def _tell_result(self, result: T) -> None:
        ended = self._end()
        self.forget()
        if not ended.done():  # A caller that was cancelled waits no longer.
            ended.set_result(result)

    def _tell_error(self, error: BaseException) -> None:
        ended = self._end()
        self.forget()
        if not ended.done():
            ended.set_exception(error)

    def abandon(self) -> None:
        """End as a crash would: nothing more is asked for, and the lease decides."""
        self.forget()
        if not self._is_over:
            self._end().cancel()
            self._flow.close()

    def _end(self) -> asyncio.Future[T]:
        """Let go of everything but the caller. It may get an error that knows this turn: that would be a circle."""
        ended, self.waiter = self.waiter, None
        assert ended is not None  # It ends once.
        self._is_over = True
        self.task = None
        self._world.left(self)
        return ended


DrivenTurn.at_once = {kind: AsyncTurn.performs[kind] for kind in (MakeClaim, Attend, Tell, TellClaimed, TellCompleted)}


class OpeningTurn(DrivenTurn["Record | Ending"]):
    """The turn of a request whose work is done elsewhere: driven until it owns a record, which is then kept alive.

    Whoever took it closes it, also after an error or a cancellation.
    """

    def __init__(self, world: AsyncWorld) -> None:
        AsyncTurn.__init__(self, world, _nobody)

    def _tell_result(self, result: Record | Ending) -> None:
        ended = self._end()
        if not isinstance(result, Record):
            self.forget()
        if not ended.done():
            ended.set_result(result)


def _nobody(_record: Record, _turn: AsyncTurn) -> Awaitable[object]:
    raise AssertionError("this turn has no handler of its own")
