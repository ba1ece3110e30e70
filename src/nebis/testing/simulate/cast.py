"""Who takes part in a run: nodes that die and freeze, and the flows that run on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nebis.core.record import Record
from nebis.core.secret import Secrets
from nebis.declaration import Declaration
from nebis.flow import Flow
from nebis.flows.ledger import Ledger
from nebis.flows.request import Request
from nebis.integrations.protection import Protection
from nebis.testing.simulate.mail import Consumption
from nebis.testing.simulate.promises import Call
from nebis.testing.simulate.store import SimulatedTransaction
from nebis.testing.simulate.trades import Terms, Trade, declaration


@dataclass(slots=True)
class Node:
    """One process of the service, as an operating system sees it."""

    name: int
    code: int
    epoch: int = 0
    """Grows with every death: nothing that an earlier life of the node began goes on."""
    frozen_until: float = 0.0
    cut_until: float = 0.0


@dataclass(slots=True, frozen=True)
class Turn:
    """What a handler is run with: by a client's call, or by a worker that found the command in the store."""

    trade: Trade
    request: Request
    command: str
    terms: Terms
    guard: Protection | None = None
    """Set where the handler is an endpoint."""


@dataclass(slots=True, eq=False)
class Frame:
    """A flow that runs, or waits for one that it started."""

    flow: Flow[Any]
    turn: Turn | Consumption | None = None
    ledger: Ledger | None = None
    """Of a handler's own frame."""


@dataclass(slots=True, eq=False)
class Process:
    """A stack of flows on one life of a node."""

    name: str
    """No other process has it, and none ever had."""
    node: Node
    epoch: int
    stack: list[Frame]
    call: Call | None = None
    waits_for: int = 0
    """The number of the ask that it waits for: an answer to an earlier one comes too late."""
    transaction: SimulatedTransaction | None = None
    is_broken: bool = False
    """The connection of its transaction is lost: whatever becomes of it is the server's affair."""
    is_over: bool = False

    @property
    def is_alive(self) -> bool:
        """Tell whether its node still lives the life in which it began."""
        return not self.is_over and self.node.epoch == self.epoch

    @property
    def turn(self) -> Turn | Consumption:
        """Return what a handler would be run with now."""
        turn = next((frame.turn for frame in reversed(self.stack) if frame.turn is not None), None)
        assert turn is not None, "only flows with a handler ask for one"
        return turn


@dataclass(frozen=True, slots=True)
class Stock:
    """An operation that a worker can go on with."""

    trade: Trade
    terms: Terms

    @property
    def declaration(self) -> Declaration[str, str]:
        """Return what the operation is."""
        return declaration(self.trade, self.terms)

    def resumed(self, secrets: Secrets, record: Record) -> tuple[Request, Callable[..., Any]]:
        """Return what runs a stored record; its handler is only a name for the turn."""
        request, command = self.declaration.resume(secrets, record)
        turn = Turn(self.trade, request, command, self.terms)
        return request, lambda: turn
