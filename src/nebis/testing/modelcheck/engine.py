"""The moves of attempts: what an honest engine does, what it may hear, and where it may die."""

from __future__ import annotations

from collections.abc import Iterator

from nebis.core.answers import Granted, Intended, Kept, Refusal, Refused, Replay
from nebis.core.record import EffectClass, EffectsMode, State
from nebis.core.step import Edge
from nebis.testing.modelcheck import bank
from nebis.testing.modelcheck.changes import acknowledged, claim_of, instead, ownership_of, sending, unanswered, without
from nebis.testing.modelcheck.configurations import Configuration, Transaction
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.plan import Deed, Plan
from nebis.testing.modelcheck.table import Face, Instant, Reply, Table
from nebis.testing.modelcheck.world import Ack, At, Attempt, Body, Cost, Message, Move, Past, Situation, Told

NEVER_FOR_AN_HONEST_OWNER = frozenset(
    {
        Refusal.EFFECT_OPEN,
        Refusal.EFFECT_NOT_OPEN,
        Refusal.NAME_USED,
        Refusal.CODE_CHANGED,
        Refusal.NOT_DECLARED,
        Refusal.UNDOING,
        Refusal.NOT_UNDOING,
        Refusal.CLEAN,
    }
)
NOT_TO_BE_CALLED_AGAIN = frozenset({Refusal.NOT_RESUMABLE, Refusal.RECALL_OVER})
REFUSED_TO_AN_OWNER = "refused"


class Engine:
    """All moves of all attempts in one world."""

    def __init__(self, configuration: Configuration, plan: Plan, table: Table, habits: frozenset[Habit]) -> None:
        self._plan = plan
        self._table = table
        self._habits = habits
        self._mode = configuration.mode
        self._is_single = configuration.mode is EffectsMode.LOCAL and configuration.transaction is Transaction.SINGLE

    def moves(self, situation: Situation, fence: int) -> Iterator[Move]:
        """Yield what any attempt may do; `fence` is the next one that the store would give out."""
        for attempt in situation.attempts:
            yield Move(Cost.CRASH, Told(attempt.name, "dies"), without(situation, attempt))
            match attempt.at:
                case At.CLAIMING if self._is_single:
                    yield from self._run_single(situation, attempt, fence)
                case At.CLAIMING:
                    yield from self._claim(situation, attempt, fence)
                case At.TAKING_OVER:
                    message = Message("take_over", attempt.tenant, attempt.name, attempt.life, attempt.fence)
                    yield from self._ask(situation, attempt, message, fence)
                case At.OWNING:
                    yield from self._go_on(situation, attempt)
                case At.CALLING:
                    yield from self._call(situation, attempt)
                case At.HEARD:
                    yield from self._report(situation, attempt)
                case At.BARRIER:
                    yield self._read_again(situation, attempt)
                case At.LEAVING:
                    yield from self._leave(situation, attempt)

    def row(self, attempt: Attempt | Message) -> int:
        """Return which row the store finds for somebody."""
        return 0 if Habit.IDENTITY_WITHOUT_TENANT in self._habits else attempt.tenant

    def is_awaited(self, situation: Situation, life: int) -> bool:
        """Tell whether a copy of the claim that began a life is still about: assumed not to outlive its retention."""
        if Habit.CLAIM_OUTLIVES_RETENTION in self._habits:
            return False
        return any(one.name == life and one.at is At.CLAIMING for one in situation.attempts) or any(
            one.name == life and one.verb == "claim" for one in situation.sent
        )

    def instants(self, situation: Situation, face: Face) -> tuple[tuple[Cost, Instant], ...]:
        """Return when a claim or a takeover may arrive: a lease may be over at any moment."""
        match face.state:
            case State.COMPLETED | State.AVAILABLE if self.is_awaited(situation, face.life):
                return ((Cost.FREE, Instant.LIVE),)
            case State.IN_PROGRESS if not face.is_suspended:
                return ((Cost.FREE, Instant.LIVE), (Cost.FREE, Instant.LAPSED))
            case State.COMPLETED | State.AVAILABLE:
                return ((Cost.FREE, Instant.LIVE), (Cost.AGE, Instant.DUE))
            case State.EXPIRED:
                return ((Cost.FREE, Instant.DUE), (Cost.AGE, Instant.FORGOTTEN))
            case _:
                return ((Cost.FREE, Instant.LIVE),)

    def with_record(self, situation: Situation, row: int, record: int) -> Situation:
        """Return the situation with another row; a life that leaves the table is remembered with its end."""
        records, attempts, sent, ledger, acks, past = situation
        if records[row] == record:
            return situation
        before, after = self._table.faces[records[row]], self._table.faces[record]
        records = (*records[:row], record, *records[row + 1 :])
        if before.life != after.life:
            past = tuple(one for one in past if one.life != after.life)
            if before.state is not None:
                past = tuple(sorted({*past, Past(before.life, before.kind)}))
        return Situation(records, attempts, sent, ledger, acks, past)

    def _ask(self, situation: Situation, attempt: Attempt, message: Message, fence: int) -> Iterator[Move]:
        """Send a claim or a takeover and hear the answer, or not."""
        yield from unanswered(situation, attempt, message)
        row = self.row(attempt)
        for cost, now in self.instants(situation, self._table.faces[situation.records[row]]):
            reply = self._table.apply(situation.records[row], message, now, fence)
            then = self.with_record(situation, row, reply.record)
            told = Told(attempt.name, message.verb, reply.edge)
            yield Move(cost, told, self._after_asking(then, attempt, reply))

    def _claim(self, situation: Situation, attempt: Attempt, fence: int) -> Iterator[Move]:
        yield from self._ask(situation, attempt, claim_of(attempt), fence)

    def _after_asking(self, situation: Situation, attempt: Attempt, reply: Reply) -> Situation:
        shown = self._table.faces[reply.shown]
        match reply.answer:
            case Granted():
                owner = attempt._replace(at=At.OWNING, life=shown.life, fence=shown.fence, view=shown.view)
                if self._mode is EffectsMode.OPAQUE:
                    owner = owner._replace(at=At.CALLING, key=shown.life)
                return instead(situation, attempt, owner)
            case Replay():
                return self._acknowledged(situation, attempt, shown.life, shown)
            case _:
                return without(situation, attempt)

    def _acknowledged(self, situation: Situation, attempt: Attempt, life: int, shown: Face) -> Situation:
        """Answer the client with stored bytes (I11)."""
        assert shown.outcome is not None  # I3
        fault = ""
        if shown.tenant != attempt.tenant:
            fault = "tenant"
        elif shown.command != attempt.command:
            fault = "command"
        return acknowledged(without(situation, attempt), Ack(life, shown.outcome, fault))

    def _run_single(self, situation: Situation, attempt: Attempt, fence: int) -> Iterator[Move]:
        """Claim, run and complete in one commit; after a lost commit the same claim is simply sent again."""
        row = self.row(attempt)
        for cost, now in self.instants(situation, self._table.faces[situation.records[row]]):
            claimed = self._table.apply(situation.records[row], claim_of(attempt), now, fence)
            if not isinstance(claimed.answer, Granted):
                then = self.with_record(situation, row, claimed.record)
                yield Move(
                    cost, Told(attempt.name, "claim", claimed.edge), self._after_asking(then, attempt, claimed)
                )
                continue
            owned = self._table.faces[claimed.shown]
            for kind in "SR" if cost is Cost.FREE else "S":
                message = Message("complete", attempt.tenant, attempt.name, owned.life, owned.fence, kind)
                ended = self._table.apply(claimed.record, message, Instant.LIVE, fence)
                then = self.with_record(situation, row, ended.record)
                if kind == "S":
                    then = then._replace(bank=bank.committed(then.bank, owned.life, "0"))
                shown = self._table.faces[ended.record]
                spent = Cost.REJECT if kind == "R" else cost
                told = Told(attempt.name, f"transaction {kind}", ended.edge)
                yield Move(spent, told, self._acknowledged(then, attempt, owned.life, shown))
                if spent is Cost.FREE:
                    yield Move(Cost.LATE, told._replace(answer="commit applied, answer lost"), then)

    def _go_on(self, situation: Situation, attempt: Attempt) -> Iterator[Move]:
        """Do the next thing, or stop before it."""
        deed = self._plan.next_deed(attempt.view)
        if Habit.UNDO_SKIPPED in self._habits and "<" in attempt.view:
            deed = Deed("complete", "R")
        yield from self._stop_early(situation, attempt, deed)
        match deed.verb:
            case "intend":
                yield from self._intend(situation, attempt, deed.about)
            case "local":
                yield from self._commit(situation, attempt, self._said(attempt, "local", deed.about + "H"), deed.about)
                rejected = attempt._replace(at=At.HEARD, said="R")
                told = Told(attempt.name, "finds a reason to reject")
                yield Move(Cost.REJECT, told, instead(situation, attempt, rejected))
            case "turn_back":
                yield from self._owner_asks(situation, attempt, self._said(attempt, "turn_back"))
            case "doubt":
                doubting = attempt._replace(at=At.LEAVING, said="doubt")
                yield Move(Cost.FREE, Told(attempt.name, "cannot undo"), instead(situation, attempt, doubting))
            case _:
                yield from self._complete(situation, attempt, deed.about)

    def _stop_early(self, situation: Situation, attempt: Attempt, deed: Deed) -> Iterator[Move]:
        """Stop for a reason that the caller may retry: clean gives the key back, dirty lets a successor go on."""
        if self._mode is EffectsMode.OPAQUE or deed.verb == "complete" and attempt.view:
            return
        is_clean = self._plan.is_clean(attempt.view)
        for said in ("release", "withdraw") if is_clean else ("suspend",):
            leaving = attempt._replace(at=At.LEAVING, said=said)
            yield Move(Cost.FAIL, Told(attempt.name, "fails", said), instead(situation, attempt, leaving))

    def _intend(self, situation: Situation, attempt: Attempt, step: str) -> Iterator[Move]:
        key = attempt.name if Habit.KEY_PER_ATTEMPT in self._habits else attempt.life
        about = step + "+" if attempt.again else step
        yield from self._owner_asks(situation, attempt, self._said(attempt, "intend", about)._replace(key=key))

    def _complete(self, situation: Situation, attempt: Attempt, kind: str) -> Iterator[Move]:
        message = self._said(attempt, "complete", kind)
        own = Ack(attempt.life, Body(kind, attempt.life, attempt.name))
        if Habit.ACK_BEFORE_COMPLETE in self._habits and own not in situation.acks:
            yield Move(Cost.FREE, Told(attempt.name, "answers already"), acknowledged(situation, own))
        if self._mode is EffectsMode.LOCAL and kind == "S":
            yield from self._commit(situation, attempt, message, "0")
            rejecting = attempt._replace(view="R")
            told = Told(attempt.name, "finds a reason to reject")
            yield Move(Cost.REJECT, told, instead(situation, attempt, rejecting))
        else:
            yield from self._owner_asks(situation, attempt, message)

    def _commit(self, situation: Situation, attempt: Attempt, message: Message, step: str) -> Iterator[Move]:
        """Commit rows with the record, both or neither; the commit's answer may be lost either way."""
        row = self.row(attempt)
        reply = self._table.apply(situation.records[row], message, Instant.LIVE, 0)
        then = self.with_record(situation, row, reply.record)
        if reply.edge in (Edge.COMPLETED, Edge.CHECKPOINTED_LOCAL):
            then = then._replace(bank=bank.committed(then.bank, attempt.life, step))
            waiting = attempt._replace(at=At.BARRIER) if message.verb == "complete" else attempt
            lost = Told(attempt.name, f"commits {message.verb}", "commit applied, answer lost")
            yield Move(Cost.LATE, lost, instead(then, attempt, waiting))
            yield Move(Cost.CRASH, lost._replace(answer="commit applied, then it dies"), without(then, attempt))
            if waiting.at is At.BARRIER:
                failed = lost._replace(answer="commit not applied, answer lost")
                yield Move(Cost.LATE, failed, instead(situation, attempt, waiting))
        told = Told(attempt.name, f"commits {message.verb}", self._heard(reply))
        yield Move(Cost.FREE, told, self._after_owner_asked(then, attempt, message, reply))

    def _read_again(self, situation: Situation, attempt: Attempt) -> Move:
        """Resolve a commit without an answer behind the row lock: only now is the old transaction known to be over."""
        row = self.row(attempt)
        face = self._table.faces[situation.records[row]]
        told = Told(attempt.name, "reads the row under its lock")
        if Habit.COMMIT_RUN_AGAIN_BLINDLY in self._habits:
            again = situation._replace(bank=bank.committed(situation.bank, attempt.life, "0"))
            return Move(Cost.FREE, told, instead(again, attempt, attempt._replace(at=At.OWNING)))
        is_same_life = face.life == attempt.life or Habit.READ_AGAIN_IGNORES_LIFE in self._habits
        if face.outcome is not None and is_same_life:
            return Move(Cost.FREE, told, self._acknowledged(situation, attempt, attempt.life, face))
        if face.state is State.IN_PROGRESS and (face.life, face.fence, face.name) == ownership_of(attempt):
            return Move(Cost.FREE, told, instead(situation, attempt, attempt._replace(at=At.OWNING)))
        return Move(Cost.FREE, told, without(situation, attempt))

    def _call(self, situation: Situation, attempt: Attempt) -> Iterator[Move]:
        """Call the bank: it answers, or nobody knows whether the call will ever arrive."""
        step = self._plan.open_step(attempt.view)
        effect_class = self._plan.effect_class(step)
        wanted = bank.Call(attempt.life, step, attempt.key, attempt.fence)
        for said in bank.call(situation.bank, effect_class, wanted):
            then = situation._replace(bank=said.ledger)
            told = Told(attempt.name, f"calls {step}", said.answer)
            if said.answer == "stale":
                yield Move(said.cost, told, without(then, attempt))
            elif self._mode is EffectsMode.OPAQUE:
                yield Move(said.cost, told, instead(then, attempt, attempt._replace(at=At.OWNING, view=said.answer)))
            else:
                yield Move(said.cost, told, instead(then, attempt, attempt._replace(at=At.HEARD, said=said.answer)))
        message = Message("call", attempt.tenant, attempt.name, attempt.life, attempt.fence, step, attempt.key)
        yield Move(Cost.CRASH, Told(attempt.name, f"calls {step} and dies"), sending(without(situation, attempt), message))
        next_one = self._after_timeout(attempt, effect_class)
        told = Told(attempt.name, f"calls {step}", "no answer")
        yield Move(Cost.LATE, told, instead(sending(situation, message), attempt, next_one))

    def _after_timeout(self, attempt: Attempt, effect_class: EffectClass) -> Attempt:
        if Habit.TIMEOUT_IS_A_REJECTION in self._habits:
            return attempt._replace(at=At.HEARD, said="R")
        if Habit.CALLED_AGAIN_AFTER_TIMEOUT in self._habits:
            return attempt
        if Habit.RELEASED_AFTER_TIMEOUT in self._habits:
            return attempt._replace(at=At.LEAVING, said="release")
        if self._mode is EffectsMode.OPAQUE or not effect_class.may_be_called_again:
            return attempt._replace(at=At.LEAVING, said="doubt")
        return attempt._replace(at=At.OWNING, again=True)

    def _report(self, situation: Situation, attempt: Attempt) -> Iterator[Move]:
        deed = self._plan.next_deed(attempt.view)
        verb = "local" if deed.verb == "local" else "checkpoint"
        step = deed.about if verb == "local" else self._plan.open_step(attempt.view)
        yield from self._owner_asks(situation, attempt, self._said(attempt, verb, step + attempt.said))

    def _leave(self, situation: Situation, attempt: Attempt) -> Iterator[Move]:
        """Stop; whatever the store answers, nothing is left to do."""
        message = self._said(attempt, attempt.said)
        yield Move(Cost.LATE, Told(attempt.name, message.verb, "no answer"), sending(without(situation, attempt), message))
        row = self.row(attempt)
        reply = self._table.apply(situation.records[row], message, Instant.LIVE, 0)
        then = self.with_record(situation, row, reply.record)
        told = Told(attempt.name, message.verb, self._heard(reply))
        yield Move(Cost.FREE, told, without(then, attempt))

    def _said(self, attempt: Attempt, verb: str, about: str = "") -> Message:
        return Message(verb, attempt.tenant, attempt.name, attempt.life, attempt.fence, about)

    def _owner_asks(self, situation: Situation, attempt: Attempt, message: Message) -> Iterator[Move]:
        yield from unanswered(situation, attempt, message)
        row = self.row(attempt)
        reply = self._table.apply(situation.records[row], message, Instant.LIVE, 0)
        then = self.with_record(situation, row, reply.record)
        told = Told(attempt.name, f"{message.verb} {message.about}".strip(), self._heard(reply))
        yield Move(Cost.FREE, told, self._after_owner_asked(then, attempt, message, reply))
        if isinstance(reply.answer, Refused) and reply.answer.reason is Refusal.NOT_DEFINITE:
            doubting = attempt._replace(at=At.LEAVING, said="doubt", again=False)
            yield Move(Cost.FREE, told, instead(then, attempt, doubting))

    def _heard(self, reply: Reply) -> str:
        return str(reply.answer.reason) if isinstance(reply.answer, Refused) else str(reply.edge)

    def _after_owner_asked(
        self, situation: Situation, attempt: Attempt, message: Message, reply: Reply
    ) -> Situation:
        match reply.answer:
            case Refused(reason=reason):
                return self._after_refusal(situation, attempt, message, reason, reply)
            case Intended(effect=effect):
                view = self._plan.opened(attempt.view, message.about.rstrip("+"))
                key = attempt.name if Habit.KEY_PER_ATTEMPT in self._habits else ord(effect.derived_key)
                return instead(situation, attempt, attempt._replace(at=At.CALLING, view=view, key=key))
            case Kept():
                return self._after_kept(situation, attempt, message)
            case _:
                raise AssertionError(reply.answer)

    def _after_kept(self, situation: Situation, attempt: Attempt, message: Message) -> Situation:
        if message.verb == "complete":
            own = Ack(attempt.life, Body(message.about, attempt.life, attempt.name))
            return acknowledged(without(situation, attempt), own)
        if message.verb == "turn_back":
            view = self._plan.turned_back(attempt.view)
        else:
            view = self._plan.ended(attempt.view, message.about[:-1], message.about[-1])
        known = attempt._replace(at=At.OWNING, view=view, again=False, said="", key=-1)
        return instead(situation, attempt, known)

    def _after_refusal(
        self, situation: Situation, attempt: Attempt, message: Message, reason: Refusal, reply: Reply
    ) -> Situation:
        """Stop as a loser: answer with the winner's bytes of the same life if there are any, never with one's own."""
        found = self._table.faces[reply.shown]
        if reason is Refusal.NOT_DEFINITE:
            return instead(situation, attempt, attempt._replace(at=At.OWNING, again=True, said=""))
        if reason in NOT_TO_BE_CALLED_AGAIN:
            return instead(situation, attempt, attempt._replace(at=At.LEAVING, said="doubt", again=False))
        if reason in NEVER_FOR_AN_HONEST_OWNER:
            refused = Ack(attempt.life, Body("", attempt.life, attempt.name), REFUSED_TO_AN_OWNER)
            return acknowledged(without(situation, attempt), refused)
        if found.outcome is None or found.life != attempt.life:
            return without(situation, attempt)
        if Habit.LOSER_ACKS_ITS_OWN in self._habits and message.verb == "complete":
            own = Ack(attempt.life, Body(message.about, attempt.life, attempt.name))
            return acknowledged(without(situation, attempt), own)
        return self._acknowledged(situation, attempt, attempt.life, found)
