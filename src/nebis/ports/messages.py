"""The messages port: what is published, and what a publisher answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one transaction has to tell the world."""

    id: str
    """The same on every try, so that a broker or a consumer can tell a repetition."""
    topic: str
    payload: bytes = field(repr=False)
    content_type: str = "application/octet-stream"
    headers: tuple[tuple[str, str], ...] = ()
    ordering_key: str | None = None
    """Messages with the same one are published in the order in which they were staged."""
    available_at: int | None = None
    """Not published before this, in microseconds of the store's clock; None for at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """A message that the broker has, durably."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A message that the broker does not have, for certain."""

    reason: str
    is_permanent: bool = False
    """Trying again cannot help: the message is parked at once."""
    retry_after_seconds: float | None = None
    """How long the receiver wants to be left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A message that the broker may have or not: it is published again under the same id (F107)."""

    reason: str
    retry_after_seconds: float | None = None
    """How long the receiver wants to be left alone."""


PublishResult: TypeAlias = Confirmed | Refused | Unknown


class Publisher(Protocol):
    """A way to a broker. It lives on one event loop; a blocking relay keeps one for it."""

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        """Send each message and say what became of it, in the order given.

        One bad message is answered, never raised: what is raised makes the fate of the whole batch unknown.
        """
        ...

    async def reset(self) -> None:
        """Begin anew after an unknown result, where the protocol needs it: new connection, new producer epoch."""
        ...

    async def aclose(self) -> None:
        """Give back every connection."""
        ...
