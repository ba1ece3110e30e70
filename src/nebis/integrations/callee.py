"""An endpoint's own function, as an ASGI framework's half of an integration calls it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from nebis.aio import AsyncNebis
from nebis.async_attempt import AsyncAttempt
from nebis.errors import ConfigError
from nebis.sync import Attempt, Nebis

ATTEMPT = "attempt"
"""The name of the parameter by which an endpoint asks for its attempt."""


class Callee:
    """A function with the façade that protects it; checked once, when it is decorated."""

    def __init__(
        self, function: Callable[..., Any], nebis: AsyncNebis | Nebis, *, in_thread: Callable[..., Awaitable[Any]]
    ) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.takes_attempt = ATTEMPT in inspect.signature(function).parameters
        self._in_thread = in_thread
        refuse_generators(function)
        faults = []
        name = getattr(function, "__qualname__", repr(function))
        if self.is_async and isinstance(nebis, Nebis):
            faults.append(f"{name} is a coroutine function; protect it with AsyncNebis, or make it a plain one")
        elif self.takes_attempt and not self.is_async and isinstance(nebis, AsyncNebis):
            faults.append(
                f"{name} is a plain function, which cannot await its attempt; "
                "protect it with Nebis, or make it a coroutine function"
            )
        if faults:
            raise ConfigError(faults)

    async def __call__(self, attempt: AsyncAttempt | Attempt | None, *arguments: Any, **named: Any) -> Any:
        """Call it, on a thread if it may block."""
        if self.takes_attempt:
            named[ATTEMPT] = attempt
        if self.is_async:
            return await self.function(*arguments, **named)
        return await self._in_thread(self.function, *arguments, **named)


def refuse_generators(function: Callable[..., Any]) -> None:
    """Raise `ConfigError` for an endpoint that is gone through while its answer is being sent."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigError([f"{name} yields its answer piece by piece, which cannot be replayed; return it whole"])


def require_innermost(function: Callable[..., Any], name: str, authorize: object) -> None:
    """Refuse decorators below ours: a replay passes them by, also one that decides who may call (SEC03).

    Where `authorize` is given, somebody has thought of that.
    """
    if hasattr(function, "__wrapped__") and authorize is None:
        raise ConfigError(
            [
                (
                    f"endpoint {name!r}: a decorator stands below, which a replay passes by, so that a caller whom it "
                    "would refuse could be told a stored answer; put ours directly on the function, or give authorize="
                )
            ]
        )


async def outcome_of(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function of the application that may be either kind; a plain one must not wait for anything."""
    value = function(*arguments, **named)
    if value is None or type(value) is str:  # A tenant, or no objection: every request asks, and `inspect` is slow.
        return value
    return await value if inspect.isawaitable(value) else value
