"""Notice a handler that asks for the very key of its own attempt: it would wait for itself (F067)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def inside(record: Record) -> Iterator[None]:
    """Mark what is called from here as called by the attempt that holds this record."""
    running = _Running(record.identity)
    token = _running.set((*_running.get(), running))
    try:
        yield
    finally:
        running.is_over = True
        _running.reset(token)


def require_outside(ask: RequireOutside) -> None:
    """Raise `MisuseError` for a request that comes from inside the attempt that holds its record."""
    if any(running.identity == ask.identity and not running.is_over for running in _running.get()):
        raise MisuseError(
            f"The handler of {ask.operation!r} calls it again with the key of its own attempt, and would wait for "
            "itself; give the inner call a key of its own, or call the plain function."
        )
