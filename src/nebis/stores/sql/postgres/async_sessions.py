"""Asyncio sessions: flows on connections of our own or borrowed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from nebis.flow import Ask, Flow, drive_async
from nebis.stores.sql.asks import Row
from nebis.stores.sql.postgres.async_connections import AsyncDriver, AsyncSource
from nebis.stores.sql.postgres.conversation import Conversation, Execute, conversations
from nebis.stores.sql.postgres.pipelines import Pipeline, Pipelines, TooLong
from nebis.stores.sql.postgres.settings import Settings

T = TypeVar("T")
C = TypeVar("C")


class AsyncSqlSessions(Generic[C]):
    """Runs flows on the connections of one source, each in a task that no caller can cancel (F017)."""

    def __init__(
        self,
        driver: AsyncDriver[C],
        source: AsyncSource[C],
        settings: Settings,
        *,
        pipelines: Pipelines | None = None,
    ) -> None:
        """Take where connections come from; with `pipelines`, brief statements go over a shared one."""
        self._driver = driver
        self._source = source
        self._pipelines = pipelines
        self._new_conversation = conversations(driver, settings, is_pinned=source.is_pinned)
        # The loop itself holds tasks only weakly, and a detached one has nobody else.
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, flow: Flow[T]) -> T:
        """Perform a store flow on one connection. Cancelling the caller detaches it and lets the flow finish."""
        task = asyncio.get_running_loop().create_task(self.run_unshielded(flow))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    async def run_unshielded(self, flow: Flow[T]) -> T:
        """Perform a store flow on one connection, which is never used again if somebody cancels this task after all."""
        if self._pipelines is not None:
            return await self._run_brief(flow, self._pipelines)
        source, driver, conversation = self._source, self._driver, self._new_conversation()
        # Mostly there is nothing to wait for, and each coroutine inside another is paid at every step.
        connection = source.take_now()
        if connection is None:
            connection = await source.take()
        try:
            listening = driver.listen_to_warnings(connection, conversation)
            try:
                return await drive_async(conversation.hold(flow), partial(driver.perform, connection))
            finally:
                driver.stop_listening(connection, listening)
        finally:
            if not source.give_back_now(connection, is_spoilt=conversation.is_spoilt):
                await source.give_back(connection, is_spoilt=conversation.is_spoilt)

    async def _run_brief(self, flow: Flow[T], pipelines: Pipelines) -> T:
        """Perform a store flow on the shared pipeline as long as that will do, then on one connection."""
        place = _Place(self._driver, self._source, pipelines, self._new_conversation())
        try:
            return await drive_async(place.conversation.hold(flow), place.perform)
        finally:
            await place.leave()

    async def close(self) -> None:
        """Wait for detached flows, then close every connection that is ours."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        if self._pipelines is not None:
            self._pipelines.close()
        await self._source.close()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieved: a detached flow has nobody left to tell, and the loop would complain.


class _Place(Generic[C]):
    """Where a flow is performed: on the shared pipeline as long as that will do, then on a connection of its own."""

    __slots__ = ("_connection", "_driver", "_listening", "_pipeline", "_pipelines", "_source", "conversation")

    def __init__(
        self, driver: AsyncDriver[C], source: AsyncSource[C], pipelines: Pipelines, conversation: Conversation
    ) -> None:
        self._driver = driver
        self._source = source
        self._pipelines = pipelines
        self.conversation = conversation
        self._pipeline: Pipeline | None = None
        self._connection: C | None = None
        self._listening: Any = None

    def perform(self, ask: Ask[Any]) -> Awaitable[Any] | Any:
        """Do one ask of the conversation."""
        if self._connection is not None:
            return self._driver.perform(self._connection, ask)
        return self._perform_brief(ask) if type(ask) is Execute and ask.is_brief else self._perform_apart(ask)

    async def _perform_brief(self, ask: Execute) -> list[Row]:
        pipeline = self._pipeline = await self._pipelines.get()
        if pipeline is not None:
            statement = ask.statement
            values = map(ask.values.__getitem__, statement.parameters)
            with suppress(TooLong):
                return await pipeline.rows(statement.positional, values, self.conversation)
        rows: list[Row] = await self._perform_apart(ask)
        return rows

    async def _perform_apart(self, ask: Ask[Any]) -> Any:
        driver, source = self._driver, self._source
        connection = source.take_now()
        if connection is None:
            connection = await source.take()
        self._connection = connection
        self._listening = driver.listen_to_warnings(connection, self.conversation)
        answer = driver.perform(connection, ask)
        return await answer if hasattr(answer, "__await__") else answer

    async def leave(self) -> None:
        """Give back what was taken; what may be in the middle of something is never used again."""
        is_spoilt = self.conversation.is_spoilt
        connection = self._connection
        if connection is None:
            if is_spoilt and self._pipeline is not None:
                self._pipeline.retire()
            return
        self._driver.stop_listening(connection, self._listening)
        if not self._source.give_back_now(connection, is_spoilt=is_spoilt):
            await self._source.give_back(connection, is_spoilt=is_spoilt)
