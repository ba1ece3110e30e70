"""What async views need beside what blocking ones have: an attempt that outlives its client, on a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, iscoroutinefunction, sync_to_async
from django.db import connections

from nebis.aio import AsyncNebis
from nebis.async_attempt import AsyncAttempt, AsyncOpenAttempt
from nebis.errors import ConfigError, NebisError
from nebis.flows.request import Ending
from nebis.http.exchange import Exchange
from nebis.integrations.blocking import Live
from nebis.integrations.protection import Incoming, Protection
from nebis.ports.asks import Raised, Returned

T = TypeVar("T")


class AsyncHeld:
    """A key that this request holds, from the claim until how it ended is stored."""

    def __init__(
        self, protection: Protection, opened: AsyncOpenAttempt, *, tenant: str, render: Callable[[Any], Exchange]
    ) -> None:
        self._protection = protection
        self._opened = opened
        self._tenant = tenant
        self._render = render

    @property
    def attempt(self) -> AsyncAttempt:
        """Return the attempt, for the view that wants it."""
        return self._opened.attempt

    async def run(self, endpoint: Callable[[], Awaitable[Live]], *, unseen: Callable[[Exception], None]) -> Exchange:
        """Run a view, store how it ended, and return what its caller is told; as `blocking.Held.run` does."""
        try:
            live, handled = await endpoint()
        except Exception as error:  # noqa: BLE001 - whatever a view raises says how it ended.
            answer = await self._settle(Raised(error))
            if not isinstance(error, NebisError):
                unseen(error)
            return answer
        except BaseException:
            # Not released: what was cancelled may have happened. The lease lapses and recovery decides (A5).
            await self._opened.abandon()
            raise
        return await self._settle(self._protection.ended(live, error=handled), live)

    async def _settle(self, end: Returned[Any] | Raised, live: Exchange | None = None) -> Exchange:
        try:
            ending = await self._opened.settle(end)
        except NebisError as error:
            return self._protection.refused(error)
        return await _told(self._protection, ending, tenant=self._tenant, render=self._render, live=live)


async def claim(
    protection: Protection, nebis: AsyncNebis, incoming: Incoming, tenant: object, render: Callable[[Any], Exchange]
) -> AsyncHeld | Exchange | None:
    """Claim for a view, as `blocking.claim` does."""
    _, secrets = await nebis.opened()
    request = protection.prepare(secrets, incoming, tenant, render=render)
    if request is None:
        return None
    begun = await nebis.begin(request)
    if isinstance(begun, AsyncOpenAttempt):
        return AsyncHeld(protection, begun, tenant=str(tenant), render=render)
    return await _told(protection, begun, tenant=str(tenant), render=render)


async def _told(
    protection: Protection,
    ending: Ending,
    *,
    tenant: str,
    render: Callable[[Any], Exchange],
    live: Exchange | None = None,
) -> Exchange:
    answer = protection.answer(ending, tenant=tenant, live=live)
    if isinstance(answer, Exchange):
        return answer
    assert protection.reconstruct is not None
    try:
        return protection.replayed(render(await called(protection.reconstruct.rebuild, answer)))
    except NebisError as error:
        return protection.refused(error)


async def called(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function of the application that may be either kind; a plain one on the thread where the ORM may block."""
    if iscoroutinefunction(function):
        return await function(*arguments, **named)
    value = await sync_to_async(function)(*arguments, **named)
    return await value if isawaitable(value) else value


_running: set[asyncio.Task[Any]] = set()
"""Keeps tasks alive whose callers are gone; a loop by itself holds them only weakly (F077)."""


async def outliving(nebis: AsyncNebis | None, work: Coroutine[Any, Any, T]) -> T:
    """Run in a task that goes on when its client hangs up: Django cancels an async view at once (F074, A2).

    The store waits for it before it closes; where none is given, the work itself makes sure of that.
    """
    task = asyncio.get_running_loop().create_task(_alone(work))
    _running.add(task)
    task.add_done_callback(_ended)
    if nebis is not None:
        nebis.adopt(task)
    return await asyncio.shield(task)


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # Retrieved here too: a caller who is gone will not ask for it.


async def _alone(work: Coroutine[Any, Any, T]) -> T:
    async with _own_thread():
        return await work


@asynccontextmanager
async def _own_thread() -> AsyncIterator[None]:
    """Give the ORM a thread that does not end with the request: a transaction would be lost with it (D3)."""
    if SyncToAsync.thread_sensitive_context.get(None) is None:
        # Nothing ends here: a test client runs everything on the thread of its test, with the transaction of that.
        yield
        return
    used: list[bool] = []
    executor = ThreadPoolExecutor(1, thread_name_prefix="nebis-view", initializer=used.append, initargs=(True,))
    try:
        async with ThreadSensitiveContext(executor=executor):
            yield
    finally:
        if used:
            # Django closes those of the request's own thread only.
            await asyncio.get_running_loop().run_in_executor(executor, connections.close_all)
        executor.shutdown(wait=False)


def require_loop(request: Any, name: str) -> None:
    """Refuse an async view under WSGI: Django gives each request a loop of its own there, and ends it with it."""
    if not hasattr(request, "scope"):
        raise ConfigError(
            [f"endpoint {name!r} is an async view under WSGI; serve it under ASGI, or make it a plain view with Nebis"]
        )
