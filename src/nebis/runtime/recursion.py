"""Notice a handler that asks for the very key of its own attempt: it would wait for itself (F067)."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from nebis.core.record import Record
from nebis.errors import MisuseError
from nebis.ports.asks import RequireOutside


@dataclass(slots=True)
class _Running:
    """An attempt whose handler is at work, as seen by whatever that handler calls."""

    identity: bytes
    is_over: bool = False
    """Set for tasks that the handler left behind: what it held, it holds no more."""


_running: Final[ContextVar[tuple[_Running, ...]]] = ContextVar("nebis_running", default=())


class inside:  # noqa: N801 - used as a verb: `with inside(record)`. Half the price of a generator.
    """Marks what is called from here as called by the attempt that holds this record."""

    __slots__ = ("_mark", "_token")

    def __init__(self, record: Record) -> None:
        self._mark = _Running(record.identity)

    def __enter__(self) -> None:
        self._token = _running.set((*_running.get(), self._mark))

    def __exit__(self, *_: object) -> None:
        self._mark.is_over = True
        _running.reset(self._token)


def require_outside(ask: RequireOutside) -> None:
    """Raise `MisuseError` for a request that comes from inside the attempt that holds its record."""
    outer = _running.get()
    if outer and any(running.identity == ask.identity and not running.is_over for running in outer):
        raise MisuseError(
            f"The handler of {ask.operation!r} calls it again with the key of its own attempt, and would wait for "
            "itself; give the inner call a key of its own, or call the plain function."
        )
