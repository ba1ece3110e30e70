"""What runs the handler of an operation, once its record is owned: shared by the blocking and the asyncio façade."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from nebis.core.quick import maker
from nebis.core.record import Record
from nebis.declaration import Declaration
from nebis.flows.request import Request
from nebis.runtime.turn import Turn


@dataclass(slots=True)
class Handling:
    """Runs a handler with a command: one object, not a closure of three, as each request holds it while it waits."""

    declaration: Declaration[Any, Any]
    handler: Callable[..., Any]
    attempt: Callable[[Record, Any, Request], Any]
    """Makes what the handler is given as its attempt."""
    request: Request
    command: Any

    def __call__(self, record: Record, turn: Turn) -> Any:
        """Run it as the owner of this record; return what it returns."""
        declaration, command = self.declaration, self.command
        turn.beside = declaration.beside(command)
        if not declaration.takes_attempt:
            return self.handler(command)
        return self.handler(self.attempt(record, turn, self.request), command)


make_handling: Final = maker(Handling)
