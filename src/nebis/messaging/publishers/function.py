"""Any function of yours, for brokers that have no publisher here."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, TypeAlias

from nebis.errors import Rejected, Retryable
from nebis.messaging.wire import phrase
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown

Answer: TypeAlias = PublishResult | None


class FunctionPublisher:
    """Calls a function with each message, one after the other; a plain function runs on a thread of its own.

    A call that returns, or returns `Confirmed`, is confirmed. `Retryable` says that nothing was sent, `Rejected` that
    this message never can be; after any other error it may have been sent, and it is sent again under the same id.
    """

    cloudevents_prefix: ClassVar[str] = "ce-"

    def __init__(self, function: Callable[[Message], Answer] | Callable[[Message], Awaitable[Answer]]) -> None:
        self._function = function

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        """Call the function with each."""
        return [await self._call(message) for message in messages]

    async def reset(self) -> None:
        """Do nothing: the function keeps what it keeps."""

    async def aclose(self) -> None:
        """Do nothing: the function keeps what it keeps."""

    async def _call(self, message: Message) -> PublishResult:
        try:
            if inspect.iscoroutinefunction(self._function):
                answer = await self._function(message)
            else:
                answer = await asyncio.to_thread(self._function, message)
                if inspect.isawaitable(answer):  # Of a callable object, or of a function that returns a coroutine.
                    answer = await answer
        except Retryable as error:
            return Refused(reason=error.reason)
        except Rejected as error:
            return Refused(reason=error.reason, is_permanent=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, the message may have been sent before.
            return Unknown(reason=phrase(error))
        return Confirmed() if answer is None else answer
