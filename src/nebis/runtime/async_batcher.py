"""Group commit on an event loop."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from nebis.core.answers import Answer, Locked
from nebis.core.verbs import Claim, Verb, identity_of
from nebis.ports.store import IndefiniteFailure
from nebis.runtime.gathering import Gathering, Member, blames_a_member, own_copy


class Waiter(Protocol):
    """Whoever is told what became of a verb: a future, or a turn, which goes on at once."""

    def done(self) -> bool:
        """Tell whether there is nobody left to be told."""
        ...

    def set_result(self, answer: Any, /) -> None:
        """Take the answer."""
        ...

    def set_exception(self, error: Exception, /) -> None:
        """Take what went wrong instead."""
        ...


Send: TypeAlias = Callable[[Sequence[Verb]], Awaitable[Sequence[Answer | Locked]]]

_verb: Final[Callable[[Member[Waiter]], Verb]] = operator.itemgetter(0)
_waiter: Final[Callable[[Member[Waiter]], Waiter]] = operator.itemgetter(2)

PATIENCE_SECONDS = 0.005
"""How long a few wait for a batch that is under way to end; several times what one takes unless it is held up."""


class AsyncBatcher:
    """Sends what the callers of one loop ask for in shared batches; each gets an answer of its own."""

    def __init__(self, send: Send, gathering: Gathering[Waiter] | None = None) -> None:
        self._send = send
        self._gathering: Gathering[Waiter] = Gathering() if gathering is None else gathering
        self._lanes_open = 0
        self._was_alone = True
        """Whether the last batch had a single member: then the next has too, as far as anybody can tell."""
        self._carried_this_turn = False
        """Whether somebody carried its own verb in this turn of the loop: then whoever else asks in it is company."""
        self._impatience: asyncio.TimerHandle | None = None
        # The loop itself holds tasks only weakly.
        self._carriers: set[asyncio.Task[None]] = set()

    def apply(self, verb: Verb) -> asyncio.Future[Answer | Locked]:
        """Send a verb with the next batch. Whoever cancels the future stops waiting; the verb is sent all the same."""
        waiter: asyncio.Future[Answer | Locked] = asyncio.get_running_loop().create_future()
        self.send(verb, waiter)
        return waiter

    def send(self, verb: Verb, waiter: Waiter) -> None:
        """Do the same for whoever is told in another way; raises `Overloaded` for a claim that would wait too long."""
        self._gathering.add(verb, waiter)
        if self._lanes_open < self._gathering.usual_lanes:
            if not self._lanes_open or self._gathering.is_worth_a_lane:
                self._open_lane(asyncio.get_running_loop())
            elif self._impatience is None:
                loop = asyncio.get_running_loop()
                self._impatience = loop.call_later(PATIENCE_SECONDS, self._lose_patience, loop)

    @property
    def is_quiet(self) -> bool:
        """Tell whether a verb that came now would probably be sent by itself."""
        return self._was_alone and not self._lanes_open and not self._carried_this_turn

    def carry(self, verb: Verb) -> Awaitable[Answer | Locked]:
        """Send a verb as `apply` does, or by itself where it would be alone anyway.

        Only for a task that no caller can cancel, which then carries its verb itself: to have it carried costs a task,
        a future and two turns of the loop.
        """
        return self._carry_alone(verb) if self.is_quiet else self.apply(verb)

    async def _carry_alone(self, verb: Verb) -> Answer | Locked:
        identity, gathering = identity_of(verb), self._gathering
        # A store in this process may answer at once, so that lanes alone do not tell of company.
        self._carried_this_turn = True
        asyncio.get_running_loop().call_soon(self._begin_turn)
        gathering.occupy(identity)
        self._lanes_open += 1
        is_cut_off = False
        try:
            try:
                [answer] = await self._send([verb])
            except IndefiniteFailure:
                [answer] = await self._send([verb])  # For the reason that `_deliver` has.
        except asyncio.CancelledError:
            is_cut_off = True
            raise
        finally:
            gathering.vacate(identity)
            self._lanes_open -= 1
            if is_cut_off and not isinstance(verb, Claim):
                self.apply(verb)  # The process is ending, and only the writes of owners are still of use then.
            elif gathering.waiting:
                self._open_lane(asyncio.get_running_loop())
        return answer

    def _begin_turn(self) -> None:
        self._carried_this_turn = False

    def _open_lane(self, loop: asyncio.AbstractEventLoop) -> None:
        # A carrier starts when the callers that are ready now have asked, so they share its first batch.
        self._lanes_open += 1
        carrier = loop.create_task(self._carry())
        self._carriers.add(carrier)
        carrier.add_done_callback(self._carriers.discard)

    def _lose_patience(self, loop: asyncio.AbstractEventLoop) -> None:
        self._impatience = None
        if self._gathering.waiting and self._lanes_open < self._gathering.usual_lanes:
            self._open_lane(loop)

    async def close(self) -> None:
        """Wait until everything that was asked for is answered."""
        while self._carriers:
            await asyncio.wait(set(self._carriers))

    async def _carry(self) -> None:
        try:
            while batch := self._gathering.take():
                self._was_alone = len(batch) == 1
                if self._lanes_open < self._gathering.lanes and self._gathering.is_worth_another_lane:
                    self._open_lane(asyncio.get_running_loop())
                try:
                    await self._deliver(batch)
                finally:
                    self._gathering.leave(batch)
                # Those who were answered just now mostly ask for more: their next verbs share a batch.
                await asyncio.sleep(0)
        finally:
            # In the same breath as the look at an empty queue: whoever asks next must find that nobody carries.
            self._lanes_open -= 1

    async def _deliver(self, batch: list[Member[Waiter]]) -> None:
        verbs = list(map(_verb, batch))
        try:
            try:
                answers = await self._send(verbs)
            except IndefiniteFailure:
                # Sent again whole, with the same nonces, before anybody is told anything: mostly it is a connection
                # that broke, and the store recognises what it has already.
                answers = await self._send(verbs)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer of those who wait.
            if len(batch) > 1 and blames_a_member(error):
                self._gathering.put_apart(batch)
            else:
                _fail(batch, error)
            return
        except BaseException:
            _fail(batch, IndefiniteFailure("the process is ending"))
            raise
        for waiter, answer in zip(map(_waiter, batch), answers, strict=True):
            if not waiter.done():
                waiter.set_result(answer)


def _fail(batch: list[Member[Waiter]], error: Exception) -> None:
    for _, _, waiter in batch:
        if not waiter.done():
            waiter.set_exception(own_copy(error))
