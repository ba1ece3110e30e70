"""What must be true of a run, judged by the bank's books and by what was committed and told; never by the flows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from nebis.core.answers import Gone, Reused, Unreadable
from nebis.core.record import OutcomeKind, Record, State
from nebis.errors import ClaimLost, InDoubt, NotYet
from nebis.flows.request import Ending, Failed, Finished
from nebis.testing.simulate.bank import Bank
from nebis.testing.simulate.trades import AGEING_SECONDS, Terms, Trade, declaration, steps_of, undo_of


class Rule(StrEnum):
    """How a promise can be broken."""

    DOUBLE_EFFECT = "an effect happened twice"
    ACK_OK_NO_EFFECT = "success was told, but an effect did not happen or was undone"
    ACK_ERROR_BUT_EFFECT = "a rejection was told, but an effect happened"
    ACKS_DIFFER = "two different answers were told"
    ACK_NOT_DURABLE = "an answer was told that the store did not hold"
    SUCCESS_FORGOTTEN = "a success was told, and a later call with the same command was told something else"
    OUTCOME_CHANGED = "a stored outcome changed"
    FENCE_FELL = "a fence did not grow"
    EFFECT_VANISHED = "an effect happened, and its life ended without an outcome"
    NEW_LIFE_TOO_SOON = "a key began a new life while its answer was still to be kept"
    OTHER_TENANT = "one tenant was answered with the outcome of another"
    OTHER_COMMAND = "a call was answered with the outcome of another command"
    FALSE_REUSE = "a key was called reused, and nobody ever sent another command under it"
    POISONED = "a record is not at rest although nothing goes wrong any more"
    UNANSWERED = "the last call was not answered although nothing goes wrong any more"
    BROKEN = "the code broke one of its own rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a client."""

    number: int
    trade: Trade
    tenant: str
    key: str
    command: str
    at: float
    is_last: bool = False
    """It is made when nothing goes wrong any more, so it has to be answered."""

    @property
    def place(self) -> tuple[Trade, str, str]:
        """Return whose key of which operation it is."""
        return (self.trade, self.tenant, self.key)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    rule: Rule
    detail: str

    def __str__(self) -> str:
        """Tell it in one line."""
        return f"{self.rule.name}: {self.rule.value} ({self.detail})"


class Oracle:
    """Watches a run, and judges it when it has come to rest."""

    def __init__(self, bank: Bank, clock: Callable[[], int], *, ages: bool) -> None:
        self.violations: list[Violation] = []
        self._bank = bank
        self._clock = clock
        self._ages = ages
        self._trades: dict[str, Trade] = {}
        self._stored: dict[str, tuple[OutcomeKind, bytes]] = {}
        self._told: dict[str, tuple[OutcomeKind, bytes]] = {}
        self._fences: dict[bytes, int] = {}
        self._commands: defaultdict[tuple[Trade, str, str], set[str]] = defaultdict(set)
        self._successes: dict[tuple[Trade, str, str, str], tuple[float, str]] = {}

    def invoked(self, call: Call) -> None:
        """Hear that a call was sent."""
        self._commands[call.place].add(call.command)

    def committed(self, identity: bytes, old: Record | None, new: Record | None) -> None:
        """See a committed change of a record."""
        if new is not None:
            self._trades[str(new.record_id)] = Trade(new.operation)
            if old is None or new.fence != old.fence:
                self._see_fence(identity, new)
            if new.state is State.COMPLETED:
                self._see_outcome(new)
        if old is not None and (new is None or new.record_id != old.record_id):
            self._see_end_of_life(old)
        elif old is not None and new is not None and old.state is State.COMPLETED:
            self._see_what_becomes_of_an_outcome(old, new)

    def _see_what_becomes_of_an_outcome(self, old: Record, new: Record) -> None:
        is_same = (new.state, new.outcome_kind, new.outcome) == (old.state, old.outcome_kind, old.outcome)
        if new.state is not State.EXPIRED and not is_same:
            self._broken(Rule.OUTCOME_CHANGED, f"{old.record_id} went from {old.state} to {new.state}")

    def _see_fence(self, identity: bytes, new: Record) -> None:
        highest = self._fences.get(identity, 0)
        if new.fence <= highest:
            self._broken(Rule.FENCE_FELL, f"{new.fence} after {highest}")
        self._fences[identity] = max(highest, new.fence)

    def _see_outcome(self, new: Record) -> None:
        assert new.outcome_kind is not None
        assert new.outcome is not None
        found = (new.outcome_kind, new.outcome)
        if self._stored.setdefault(str(new.record_id), found) != found:
            self._broken(Rule.OUTCOME_CHANGED, f"{new.record_id} was completed twice")

    def _see_end_of_life(self, old: Record) -> None:
        if old.completed_at is None:
            return
        kept_until = old.completed_at + (AGEING_SECONDS if self._ages else 86_400) * 1_000_000
        if self._clock() < kept_until:
            self._broken(Rule.NEW_LIFE_TOO_SOON, f"{old.record_id} in state {old.state}")

    def answered(self, call: Call, now: float, end: Ending | Exception) -> None:
        """Hear what a call was told."""
        if isinstance(end, Exception):
            if not isinstance(end, NotYet | InDoubt | ClaimLost):
                self._broken(Rule.BROKEN, f"call {call.number} was told {type(end).__name__}: {end}")
            elif call.is_last:
                self._broken(Rule.UNANSWERED, f"call {call.number} of {call.trade} was told {type(end).__name__}")
            return
        if isinstance(end, Finished):
            self._answered_with(call, now, end)
            return
        if isinstance(end, Reused) and len(self._commands[call.place]) == 1:
            self._broken(Rule.FALSE_REUSE, f"call {call.number} of {call.trade}")
        if call.is_last and not isinstance(end, Reused):
            self._broken(Rule.UNANSWERED, f"call {call.number} of {call.trade} was told {_told(end)}")
        first = self._successes.get((*call.place, call.command))
        if first is not None and first[0] < call.at and not self._ages and not isinstance(end, Gone | Unreadable):
            self._broken(Rule.SUCCESS_FORGOTTEN, f"call {call.number} of {call.trade} was told {_told(end)}")

    def _answered_with(self, call: Call, now: float, end: Finished) -> None:
        life, found = str(end.record_id), (end.outcome.kind, end.outcome.body)
        if self._told.setdefault(life, found) != found:
            self._broken(Rule.ACKS_DIFFER, f"call {call.number} of {call.trade}")
        if self._stored.get(life) != found:
            self._broken(Rule.ACK_NOT_DURABLE, f"call {call.number} of {call.trade}")
        if end.outcome.kind is not OutcomeKind.SUCCEEDED:
            return
        terms = Terms(code=1, ages=self._ages, waits=False)
        tenant, command, of, _ = str(declaration(call.trade, terms).reveal(end.outcome)).split("|")
        if tenant != call.tenant:
            self._broken(Rule.OTHER_TENANT, f"call {call.number} of {call.trade}")
        if command != call.command or of != life:
            self._broken(Rule.OTHER_COMMAND, f"call {call.number} of {call.trade}")
        if any(self._net(life, step) != 1 for step in steps_of(call.trade)):
            self._broken(Rule.ACK_OK_NO_EFFECT, f"call {call.number} of {call.trade}, when it was told")
        at, of = self._successes.setdefault((*call.place, call.command), (now, life))
        if of != life and at < call.at and not self._ages:
            self._broken(Rule.SUCCESS_FORGOTTEN, f"call {call.number} of {call.trade} was told of another life")

    def judge(self, records: dict[bytes, Record]) -> None:
        """Judge the whole run, once nothing moves any more."""
        for record in records.values():
            if record.state in (State.IN_PROGRESS, State.IN_DOUBT):
                self._broken(Rule.POISONED, f"{record.operation} is {record.state} ({record.doubt_reason})")
        for (life, step), times in self._bank.moved.items():
            if times > 1:
                self._broken(Rule.DOUBLE_EFFECT, f"{step} of {self._trades.get(life)}: {times} times")
        for life, trade in self._trades.items():
            self._judge_life(life, trade)

    def _judge_life(self, life: str, trade: Trade) -> None:
        nets = [self._net(life, step) for step in steps_of(trade)]
        kind = self._stored[life][0] if life in self._stored else None
        if kind is None and any(nets):
            self._broken(Rule.EFFECT_VANISHED, f"{trade}: {nets}")
        if kind is OutcomeKind.SUCCEEDED and any(net != 1 for net in nets):
            self._broken(Rule.ACK_OK_NO_EFFECT, f"{trade}: {nets}")
        if kind is OutcomeKind.REJECTED and any(nets):
            self._broken(Rule.ACK_ERROR_BUT_EFFECT, f"{trade}: {nets}")

    def _net(self, life: str, step: str) -> int:
        return self._bank.moved[(life, step)] - self._bank.moved[(life, undo_of(step))]

    def _broken(self, rule: Rule, detail: str) -> None:
        self.violations.append(Violation(rule, detail))

    def broke(self, error: Exception) -> None:
        """Hear that an assertion of the code under test failed."""
        self._broken(Rule.BROKEN, f"{type(error).__name__}: {error}")


def _told(end: Ending) -> str:
    return f"{type(end).__name__} ({type(end.error).__name__})" if isinstance(end, Failed) else type(end).__name__
