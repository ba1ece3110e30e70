"""What must be true of a run, judged by the bank's books and by what was committed and told; never by the flows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from nebis.core.answers import Gone, Reused, Unreadable
from nebis.core.record import OutcomeKind, Record, State
from nebis.errors import ClaimLost, InDoubt, NotYet
from nebis.flows.request import Ending, Failed, Finished
from nebis.testing.simulate.bank import Bank
from nebis.testing.simulate.broker import MailBooks
from nebis.testing.simulate.listening import Listener, receipt_in
from nebis.testing.simulate.mail import CONSUMER, MESSAGES_EACH
from nebis.testing.simulate.promises import Call, Rule, Violation
from nebis.testing.simulate.trades import AGEING_SECONDS, TELLING, Terms, Trade, declaration, steps_of, undo_of
from nebis.testing.simulate.web import Reply


class Oracle:
    """Watches a run, and judges it when it has come to rest."""

    def __init__(self, bank: Bank, clock: Callable[[], int], *, ages: bool, has_mail: bool) -> None:
        self.violations: list[Violation] = []
        self._bank = bank
        self._clock = clock
        self._ages = ages
        self._has_mail = has_mail
        self.books = MailBooks(self._broken)
        self.listener = Listener(self._broken, ages=ages)
        self._turns: defaultdict[int, set[str]] = defaultdict(set)
        self._trades: dict[str, Trade] = {}
        self._stored: dict[str, tuple[OutcomeKind, bytes]] = {}
        self._told: dict[str, tuple[OutcomeKind, bytes]] = {}
        self._fences: dict[bytes, int] = {}
        self._commands: defaultdict[tuple[Trade, str, str], set[str]] = defaultdict(set)
        self._successes: dict[tuple[Trade, str, str, str], tuple[float, str]] = {}

    def invoked(self, call: Call) -> None:
        """Hear that a call was sent."""
        self._commands[call.place].add(call.command)

    def ran(self, call: Call, run: int) -> None:
        """Hear that a handler was given its turn by a call."""
        self._turns[call.number].add(str(run))

    def committed(self, identity: bytes, old: Record | None, new: Record | None) -> None:
        """See a committed change of a record."""
        if new is not None:
            if new.operation != CONSUMER:
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

    def answered(self, call: Call, now: float, end: Ending | Reply | Exception) -> None:
        """Hear what a call was told."""
        body: bytes | None = None
        if isinstance(end, Reply):
            life = str(end.end.record_id) if isinstance(end.end, Finished) else ""
            self.listener.hear(call, now, end, self._stored.get(life), frozenset(self._turns[call.number]))
            body, end = end.exchange.body, end.end
        if isinstance(end, Exception):
            if not isinstance(end, NotYet | InDoubt | ClaimLost):
                self._broken(Rule.BROKEN, f"call {call.number} was told {type(end).__name__}: {end}")
            elif call.is_last:
                self._broken(Rule.UNANSWERED, f"call {call.number} of {call.trade} was told {type(end).__name__}")
            return
        if isinstance(end, Finished):
            self._answered_with(call, now, end, body)
            return
        if isinstance(end, Reused) and len(self._commands[call.place]) == 1:
            self._broken(Rule.FALSE_REUSE, f"call {call.number} of {call.trade}")
        if call.is_last and not isinstance(end, Reused):
            self._broken(Rule.UNANSWERED, f"call {call.number} of {call.trade} was told {_told(end)}")
        first = self._successes.get((*call.place, call.command))
        if first is not None and first[0] < call.at and not self._ages and not isinstance(end, Gone | Unreadable):
            self._broken(Rule.SUCCESS_FORGOTTEN, f"call {call.number} of {call.trade} was told {_told(end)}")

    def _answered_with(self, call: Call, now: float, end: Finished, http_body: bytes | None) -> None:
        life, found = str(end.record_id), (end.outcome.kind, end.outcome.body)
        if self._told.setdefault(life, found) != found:
            self._broken(Rule.ACKS_DIFFER, f"call {call.number} of {call.trade}")
        if self._stored.get(life) != found:
            self._broken(Rule.ACK_NOT_DURABLE, f"call {call.number} of {call.trade}")
        if end.outcome.kind is not OutcomeKind.SUCCEEDED:
            return
        terms = Terms(code=1, ages=self._ages, waits=False)
        receipt = declaration(call.trade, terms).reveal(end.outcome) if http_body is None else receipt_in(http_body)
        tenant, command, of, _ = str(receipt).split("|")
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
        self.books.judge()

    def _judge_life(self, life: str, trade: Trade) -> None:
        nets = [self._net(life, step) for step in steps_of(trade)]
        kind = self._stored[life][0] if life in self._stored else None
        if kind is None and any(nets):
            self._broken(Rule.EFFECT_VANISHED, f"{trade}: {nets}")
        if kind is OutcomeKind.SUCCEEDED and any(net != 1 for net in nets):
            self._broken(Rule.ACK_OK_NO_EFFECT, f"{trade}: {nets}")
        if kind is OutcomeKind.REJECTED and any(nets):
            self._broken(Rule.ACK_ERROR_BUT_EFFECT, f"{trade}: {nets}")

        if self._has_mail and trade in TELLING:
            messages = self.books.of_life(life)
            if messages != (MESSAGES_EACH if kind is OutcomeKind.SUCCEEDED else 0):
                self._broken(Rule.MESSAGES_AND_OUTCOME, f"{trade}: {messages} with {kind}")

    def _net(self, life: str, step: str) -> int:
        return self._bank.moved[(life, step)] - self._bank.moved[(life, undo_of(step))]

    def _broken(self, rule: Rule, detail: str) -> None:
        self.violations.append(Violation(rule, detail))

    def broke(self, error: Exception) -> None:
        """Hear that an assertion of the code under test failed."""
        self._broken(Rule.BROKEN, f"{type(error).__name__}: {error}")


def _told(end: Ending) -> str:
    return f"{type(end).__name__} ({type(end.error).__name__})" if isinstance(end, Failed) else type(end).__name__
