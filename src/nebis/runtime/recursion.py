"""Notice a handler that asks for the very key of its own attempt: it would wait for itself (F067)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from nebis.core.record import Record
from nebis.errors import MisuseError
from nebis.ports.asks import RequireOutside

running: Final[ContextVar[tuple[list[bytes], ...]]] = ContextVar("nebis_running", default=())
"""The attempts whose handlers are at work, as seen by whatever these call: the identity of each, in a list that is
emptied when its handler ends. Tasks that it left behind still see the list: what it held, it holds no more."""


class inside:  # noqa: N801 - used as a verb: `with inside(record)`. Half the price of a generator.
    """Marks what is called from here as called by the attempt that holds this record."""

    __slots__ = ("_mark", "_token")

    def __init__(self, record: Record) -> None:
        self._mark = [record.identity]

    def __enter__(self) -> None:
        self._token = running.set((*running.get(), self._mark))

    def __exit__(self, *_: object) -> None:
        self._mark.clear()
        running.reset(self._token)


def require_outside(ask: RequireOutside) -> None:
    """Raise `MisuseError` for a request that comes from inside the attempt that holds its record."""
    if any(ask.identity in mark for mark in running.get()):
        raise MisuseError(
            f"The handler of {ask.operation!r} calls it again with the key of its own attempt, and would wait for "
            "itself; give the inner call a key of its own, or call the plain function."
        )
