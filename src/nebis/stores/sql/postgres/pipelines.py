"""The pipeline that the flows of an event loop share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeAlias

from nebis.stores.sql.asks import Row
from nebis.stores.sql.postgres.conversation import Conversation


class TooLong(Exception):
    """A statement that shall not hold up others; nothing of it was sent."""


class Pipeline(Protocol):
    """A connection that several flows use at once, each statement a transaction of its own."""

    is_open: bool
    """Whether more may be sent."""

    async def rows(self, text: str, values: Iterable[Any], conversation: Conversation) -> list[Row]:
        """Execute a statement behind all others and return its rows, or raise what the driver would.

        Raises `TooLong` where it shall not hold up others. A caller that is cancelled only stops listening.
        """
        ...

    def retire(self) -> None:
        """Take no more, and close once all is answered."""
        ...

    def abandon(self) -> None:
        """Close at once, whatever is under way."""
        ...


class Source(Protocol):
    """Where connections come from; part of `AsyncSource`."""

    async def take(self) -> Any:
        """Return an idle connection or raise `DefiniteFailure`."""
        ...

    def give_back_now(self, connection: Any, *, is_spoilt: bool) -> bool:
        """Take a connection back, or throw a spoilt one away."""
        ...


_New: TypeAlias = Callable[[Any, Callable[[], object]], Pipeline]
"""Makes a pipeline of an idle connection; the callable hears of its end."""
_Home: TypeAlias = tuple[int, asyncio.AbstractEventLoop]


class Pipelines:
    """One pipeline for each event loop in each process, opened when first needed and after each end."""

    def __init__(self, source: Source, new: _New) -> None:
        self._source = source
        self._new = new
        self._open: dict[_Home, Pipeline] = {}
        self._opening: set[_Home] = set()

    async def get(self) -> Pipeline | None:
        """Return the pipeline of this loop, or open one; None while somebody else opens it.

        Raises `DefiniteFailure` where no connection can be had.
        """
        home = (os.getpid(), asyncio.get_running_loop())
        pipeline = self._open.get(home)
        if pipeline is not None and pipeline.is_open:
            return pipeline
        if home in self._opening:
            return None
        self._leave_closed_loops()
        self._opening.add(home)
        try:
            connection = await self._source.take()
        finally:
            self._opening.discard(home)
        ended = partial(self._source.give_back_now, connection, is_spoilt=True)
        pipeline = self._open[home] = self._new(connection, ended)
        return pipeline

    def close(self) -> None:
        """Close the pipeline of this loop."""
        pipeline = self._open.pop((os.getpid(), asyncio.get_running_loop()), None)
        if pipeline is not None:
            pipeline.abandon()

    def _leave_closed_loops(self) -> None:
        for pid, loop in list(self._open):
            if pid == os.getpid() and loop.is_closed():
                with suppress(RuntimeError):  # What it has to say to its loop comes too late.
                    self._open.pop((pid, loop)).abandon()
