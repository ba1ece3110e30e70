"""A world of one seed: a scheduler with a virtual clock that drives the real flows, and lets things go wrong."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from nebis.core.answers import Locked
from nebis.core.record import Nonce, Record, RecordId
from nebis.core.transitions import transition as core_transition
from nebis.core.verbs import Renew, Verb
from nebis.flow import Ask, Flow
from nebis.flows.ledger import Ledger
from nebis.ports.asks import Drawn, Raised, Returned, Settled
from nebis.testing.simulate.bank import Bank
from nebis.testing.simulate.cast import Frame, Node, Process, Turn
from nebis.testing.simulate.faults import Fault, Hazards
from nebis.testing.simulate.mail import Consumption, consume, staged_by
from nebis.testing.simulate.oracle import Oracle
from nebis.testing.simulate.promises import Call
from nebis.testing.simulate.store import SimulatedStore, Transition
from nebis.testing.simulate.trades import TELLING, Errand, Trade, handle
from nebis.testing.simulate.web import answering

_START_US = 1_700_000_000_000_000
SHORT_SECONDS = 0.05
RETRY_SECONDS = 1.0
SERVER_NOTICES_SECONDS = 5.0
"""Until a store notices at the latest that a client with an open transaction is gone."""


class World:
    """Everything that one run consists of."""

    def __init__(
        self,
        chance: random.Random,
        nodes: Sequence[Node],
        faults: Sequence[Fault],
        *,
        ages: bool,
        has_mail: bool = False,
        transition: Transition = core_transition,
    ) -> None:
        self.chance = chance
        self.nodes = nodes
        self.hazards = Hazards(faults)
        self.has_mail = has_mail
        self.now = 0.0
        self.skew_us = 0
        self.bank = Bank()
        self.oracle = Oracle(self.bank, self.clock, ages=ages, has_mail=has_mail)
        self.store = SimulatedStore(transition, self.clock, self.oracle.committed, self.oracle.books)
        self.asks = 0
        self.living: list[Process] = []
        self.graveyard: list[Process] = []
        """Flows of the dead. Collecting one during the run would run its clean-up, which a killed process does not."""
        self.perform: Callable[[Process, Ask[Any]], tuple[bool, Any]]
        self.told: Callable[[Call, Any], None]
        """Is called with what a client hears."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._runs = 0
        self._started = 0

    def clock(self) -> int:
        """Return the store's clock, in microseconds."""
        return _START_US + int(self.now * 1_000_000) + self.skew_us

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Have something done at an instant to come."""
        self._order += 1
        heapq.heappush(self._events, (self.now + seconds, self._order, act))

    def run_until(self, instant: float) -> None:
        """Let everything happen that is due until then."""
        events = self._events
        while events and events[0][0] <= instant:
            self.now, _, act = heapq.heappop(events)
            act()
        self.now = max(self.now, instant)

    def moment(self) -> float:
        """Draw a short span, as a message or a thought takes it."""
        return self.chance.random() * SHORT_SECONDS

    def draw(self) -> Drawn:
        """Draw the marks of an attempt."""
        bits = self.chance.getrandbits
        return Drawn(record_id=RecordId(UUID(int=bits(128), version=4)), nonce=Nonce(bits(128).to_bytes(16, "big")))

    def start(self, node: Node, flow: Flow[Any], *, turn: Turn | None = None, call: Call | None = None) -> None:
        """Start a flow on a node."""
        self._started += 1
        process = Process(f"{node.name}:{self._started}", node, node.epoch, [Frame(flow, turn)], call)
        self.living.append(process)
        self._resume(process, process.waits_for, None, None)

    def enter(self, process: Process, frame: Frame) -> None:
        """Let a process run another flow before it goes on with its own."""
        process.stack.append(frame)

    def handler(self, process: Process, record: Record) -> Frame:
        """Return the frame of a handler's turn."""
        turn, ledger = process.turn, Ledger(record)
        self._runs += 1
        if isinstance(turn, Consumption):
            return Frame(consume(turn, record), None, ledger)
        errand = Errand(
            request=turn.request,
            record=record,
            ledger=ledger,
            command=turn.command,
            code=turn.terms.code,
            run=self._runs,
            persists=self.chance.random() < 0.3,
            messages=staged_by(record) if self.has_mail and turn.trade in TELLING else (),
        )
        if process.call is not None:
            self.oracle.ran(process.call, self._runs)
        # Whoever goes on with a claim that was committed has no transaction yet, and begins one around the record.
        is_outside = turn.trade is Trade.SINGLE and process.transaction is None
        flow = handle(Trade.GUARDED if is_outside else turn.trade, errand)
        return Frame(flow if turn.guard is None else answering(turn.guard, flow, self.chance), None, ledger)

    def reply(self, process: Process, seconds: float, answer: Any = None, error: Exception | None = None) -> None:
        """Answer what a process waits for, some time from now."""
        number = process.waits_for
        self.later(seconds, lambda: self._resume(process, number, answer, error))

    def _resume(self, process: Process, number: int, answer: Any, error: Exception | None) -> None:
        if not process.is_alive or process.waits_for != number:
            return
        if process.node.frozen_until > self.now:
            self.later(process.node.frozen_until - self.now, lambda: self._resume(process, number, answer, error))
            return
        while process.is_alive:
            is_ready, answer, error = self._advance(process, answer, error)
            if not is_ready:
                return

    def _advance(self, process: Process, answer: Any, error: Exception | None) -> tuple[bool, Any, Exception | None]:
        """Give the innermost flow its answer; return what is known at once of what it asks for next."""
        frame = process.stack[-1]
        try:
            ask = frame.flow.send(answer) if error is None else frame.flow.throw(error)
        except StopIteration as stop:
            return self._left(process, frame, stop.value, None)
        except AssertionError as broken:
            self.oracle.broke(broken)
            return self._left(process, frame, None, broken)
        except Exception as raised:  # noqa: BLE001 - as the runtimes do: the flow that asked decides.
            return self._left(process, frame, None, raised)
        self.asks += 1
        process.waits_for = self.asks
        is_ready, known = self.perform(process, ask)
        return is_ready, known, None

    def _left(
        self, process: Process, frame: Frame, value: Any, error: Exception | None
    ) -> tuple[bool, Any, Exception | None]:
        """Leave a flow that ended, and go on with the one that started it."""
        process.stack.pop()
        if frame.ledger is not None:
            return True, self._handled(process, frame.ledger, value, error), None
        if process.stack:
            return True, value, error
        process.is_over = True
        self.living.remove(process)
        self.abandon(process)
        if process.call is not None:
            self.told(process.call, value if error is None else error)
        return False, None, None

    def _handled(self, process: Process, ledger: Ledger, value: Any, error: Exception | None) -> Any:
        """Say how a handler ended, as the runtimes do."""
        if isinstance(value, Settled):
            return value
        if not process.turn.request.policy.single_transaction:
            self.abandon(process)
        return ledger.of(Returned(value) if error is None else Raised(error))

    def crash(self, node: Node) -> None:
        """Kill a node: nobody is told, nothing is cleaned up, and it starts anew, perhaps with newer code."""
        node.epoch += 1
        node.code = max(node.code, self.chance.choice((1, 2)))
        for process in [process for process in self.living if process.node is node]:
            self.living.remove(process)
            self.graveyard.append(process)
            self.abandon(process, seconds=self.chance.random() * SERVER_NOTICES_SECONDS)

    def abandon(self, process: Process, seconds: float = 0.0) -> None:
        """Let the store roll back what a process left open, once it notices."""
        transaction, process.transaction = process.transaction, None
        if transaction is None or process.is_broken:
            return
        if seconds:
            self.later(seconds, transaction.rollback)
        else:
            transaction.rollback()

    def keep_alive(self, process: Process, record: Record, lease_us: int, seconds: float) -> None:
        """Renew a claim for as long as the flow that holds it goes on."""
        holder = process.stack[-1]

        def beat() -> None:
            if not process.is_alive or holder not in process.stack:
                return
            if not self.is_hindered(process.node, beat):
                self.store.apply(Renew(ownership=record.ownership, lease_us=lease_us))
                self.later(seconds, beat)

        self.later(seconds, beat)

    def keep_trying(self, node: Node, verb: Verb) -> None:
        """Go on sending a write for as long as its node lives."""
        epoch = node.epoch

        def send() -> None:
            if node.epoch != epoch or self.is_hindered(node, send):
                return
            if isinstance(self.store.apply(verb), Locked):
                self.later(RETRY_SECONDS, send)

        self.later(RETRY_SECONDS, send)

    def is_hindered(self, node: Node, act: Callable[[], None]) -> bool:
        """Tell whether a node cannot do something now; then it is done later."""
        until = max(node.frozen_until, node.cut_until)
        if until <= self.now:
            return False
        self.later(until - self.now, act)
        return True

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self.hazards.stop()
        for node in self.nodes:
            node.frozen_until = node.cut_until = 0.0
