"""What every source does: read until told to stop, hand each message to the consumer, and only then acknowledge it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable
from typing import ClassVar, Protocol

from nebis.delivery import Delivery, Verdict
from nebis.messaging.wire import phrase
from nebis.runtime.jitter import jittered

log = logging.getLogger("nebis.sources")

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0


class Handles(Protocol):
    """A consumer of either façade."""

    @property
    def name(self) -> str: ...

    def handle(self, delivery: Delivery) -> Verdict | Awaitable[Verdict]:
        """Run the handler once for this message, and say what to tell the broker."""
        ...


class Source(ABC):
    """A queue of a broker.

    A message is acknowledged after the consumer's transaction has committed, or after the consumer has parked it; what
    dies in between is delivered again, and the consumer knows it.
    """

    outages: ClassVar[tuple[type[Exception], ...]]
    """What the library raises when the broker is away."""

    async def run(self, consumer: Handles, stop: asyncio.Event) -> None:
        """Go on until told to stop; what is being handled is finished first. A broker that is away is waited for."""
        pause_seconds = _FIRST_PAUSE_SECONDS
        while not stop.is_set():
            progress = Progress(consumer)
            try:
                await self._read(progress, stop)
            except self.outages as error:
                log.warning("consumer %s lost its broker (%s); connecting again", consumer.name, phrase(error))
                if progress.handled:
                    pause_seconds = _FIRST_PAUSE_SECONDS
                await wait(stop, jittered(pause_seconds))
                pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)

    @abstractmethod
    async def _read(self, progress: Progress, stop: asyncio.Event) -> None:
        """Connect and hand on messages until told to stop; raise an outage when the connection is lost."""


class Progress:
    """A consumer, and how many messages it was given since the last connection."""

    def __init__(self, consumer: Handles) -> None:
        self._consumer = consumer
        self.handled = 0

    async def verdict(self, delivery: Delivery) -> Verdict:
        """Have the message handled, on a thread where the consumer blocks."""
        self.handled += 1
        handle = self._consumer.handle
        verdict = handle(delivery) if inspect.iscoroutinefunction(handle) else await asyncio.to_thread(handle, delivery)
        return await verdict if isinstance(verdict, Awaitable) else verdict


async def all_of(works: Iterable[Awaitable[None]]) -> None:
    """Wait for all to end, and only then raise what one of them raised: nothing goes on behind our back."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome


async def wait(stop: asyncio.Event, seconds: float) -> None:
    """Wait that long, or until told to stop."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


def is_being_cancelled() -> bool:
    """Tell the end of this task from that of a future which a library cancelled together with its connection."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
