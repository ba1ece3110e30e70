"""What an attempt makes of the store's answers."""

from __future__ import annotations

from nebis.core.answers import Granted, Intended, Kept, Refusal, Refused, Replay
from nebis.core.record import EffectsMode, State
from nebis.testing.modelcheck.changes import acknowledged, instead, without
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.plan import Plan
from nebis.testing.modelcheck.table import Face, Reply, Table
from nebis.testing.modelcheck.world import NOBODY, Ack, At, Attempt, Body, Message, Situation

REFUSED_TO_AN_OWNER = "refused"
NOT_TO_BE_CALLED_AGAIN = frozenset({Refusal.NOT_RESUMABLE, Refusal.RECALL_OVER})
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


class Hearing:
    """The reactions of an honest engine."""

    def __init__(self, plan: Plan, table: Table, habits: frozenset[Habit]) -> None:
        self._plan = plan
        self._table = table
        self._habits = habits

    def asked(self, situation: Situation, attempt: Attempt, reply: Reply) -> Situation:
        """Go on after a claim or a takeover: own, replay, or turn away."""
        shown = self._table.faces[reply.shown]
        match reply.answer:
            case Granted():
                owner = attempt._replace(at=At.OWNING, life=shown.life, fence=shown.fence, view=shown.view)
                if shown.has_voided:
                    # Any key will do that was never used; the one that is stored with the intent counts from then on.
                    owner = owner._replace(key=attempt.name)
                if self._plan.mode is EffectsMode.OPAQUE:
                    owner = owner._replace(at=At.CALLING, key=shown.life)
                return instead(situation, attempt, owner)
            case Replay():
                return self.replayed(situation, attempt, shown.life, shown)
            case _:
                return without(situation, attempt)

    def replayed(self, situation: Situation, attempt: Attempt, life: int, shown: Face) -> Situation:
        """Answer the client with stored bytes (I11)."""
        assert shown.outcome is not None  # I3
        fault = ""
        if shown.tenant != attempt.tenant:
            fault = "tenant"
        elif shown.command != attempt.command:
            fault = "command"
        return acknowledged(without(situation, attempt), Ack(life, shown.outcome, fault))

    def owner_asked(self, situation: Situation, attempt: Attempt, message: Message, reply: Reply) -> Situation:
        """Go on after an owner's verb."""
        match reply.answer:
            case Refused(reason=reason):
                return self._refused(situation, attempt, message, reason, self._table.faces[reply.shown])
            case Intended(effect=effect):
                view = self._plan.opened(attempt.view, message.about.rstrip("+"))
                key = attempt.name if Habit.KEY_PER_ATTEMPT in self._habits else ord(effect.derived_key)
                return instead(situation, attempt, attempt._replace(at=At.CALLING, view=view, key=key))
            case Kept():
                return self._kept(situation, attempt, message)
            case _:
                raise AssertionError(reply.answer)

    def _kept(self, situation: Situation, attempt: Attempt, message: Message) -> Situation:
        if message.verb == "complete":
            return acknowledged(without(situation, attempt), _own_answer(attempt, message))
        if message.verb == "turn_back":
            view = self._plan.turned_back(attempt.view)
        else:
            view = self._plan.ended(attempt.view, message.about[:-1], message.about[-1])
        known = attempt._replace(at=At.OWNING, view=view, again=False, said="", key=NOBODY)
        return instead(situation, attempt, known)

    def _refused(
        self, situation: Situation, attempt: Attempt, message: Message, reason: Refusal, found: Face
    ) -> Situation:
        """Stop as a loser: answer with the winner's bytes of the same life if there are any, never with one's own."""
        if reason is Refusal.NOT_DEFINITE:
            return instead(situation, attempt, attempt._replace(at=At.OWNING, said=""))
        if reason in NOT_TO_BE_CALLED_AGAIN:
            return instead(situation, attempt, attempt._replace(at=At.LEAVING, said="doubt", again=False))
        if reason in NEVER_FOR_AN_HONEST_OWNER and found.state is State.IN_PROGRESS:
            refused = Ack(attempt.life, Body("", attempt.life, attempt.name), REFUSED_TO_AN_OWNER)
            return acknowledged(without(situation, attempt), refused)
        if found.outcome is None or found.life != attempt.life:
            return without(situation, attempt)
        if Habit.LOSER_ACKS_ITS_OWN in self._habits and message.verb == "complete":
            return acknowledged(without(situation, attempt), _own_answer(attempt, message))
        return self.replayed(situation, attempt, attempt.life, found)


def _own_answer(attempt: Attempt, message: Message) -> Ack:
    return Ack(attempt.life, Body(message.about, attempt.life, attempt.name))


def words_of(reply: Reply) -> str:
    """Return an answer as the story tells it."""
    return f"refused: {reply.answer.reason}" if isinstance(reply.answer, Refused) else str(reply.edge)
