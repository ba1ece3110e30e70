"""Planted mistakes: each must be found by the same search, or be argued to change nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nebis.core.transitions import transition as core_transition
from nebis.testing.modelcheck import sabotage
from nebis.testing.modelcheck.configurations import Configuration, named
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.search import Result, Search
from nebis.testing.modelcheck.table import Transition
from nebis.testing.modelcheck.theorems import Violation


def _small(
    world: str,
    *,
    starts: int = 2,
    crashes: int = 0,
    late: int = 0,
    rejections: int = 0,
    failures: int = 0,
    ageings: int = 0,
    evidence: int = 0,
) -> Configuration:
    """Return a world with just the faults that a mistake needs to show: it is found soon, and its story is short."""
    return replace(
        named(world),
        starts=starts,
        crashes=crashes,
        late=late,
        rejections=rejections,
        failures=failures,
        ageings=ageings,
        evidence=evidence,
    )


OPAQUE_MODE = _small("opaque mode", late=1, crashes=1)
OPAQUE_EFFECT = _small("opaque effect", late=1, crashes=1)
STICKY = _small("sticky", late=1, crashes=1)
SUCCESS_ONLY = _small("success only", late=1, crashes=1, rejections=1)
GUARDED = _small("local, guarded transaction", late=1, crashes=1)
GUARDED_AGEING = _small("local, guarded, ageing", late=1, ageings=1)
OPAQUE_AGEING = _small("opaque mode, ageing", late=1, ageings=1)
WITH_UNDO = _small("two sticky, undo sticky", starts=1, crashes=1, rejections=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mistake, the world that shows it, and the verdict."""

    name: str
    world: Configuration
    expected: Violation | None
    transition: Transition = core_transition
    habits: frozenset[Habit] = frozenset()
    reason: str = ""
    """Why a survivor changes nothing that is promised."""

    def hunt(self) -> tuple[Search, Result]:
        """Search until the expected verdict is found, or everywhere if none is expected."""
        search = Search(self.world, transition=self.transition, habits=self.habits)
        return search, search.run(until=self.expected)


def _habit(name: str, habit: Habit, world: Configuration, expected: Violation) -> Mutant:
    return Mutant(name=name, habits=frozenset({habit}), world=world, expected=expected)


def _sabotage(name: str, transition: Transition, world: Configuration, expected: Violation) -> Mutant:
    return Mutant(name=name, transition=transition, world=world, expected=expected)


MUTANTS: tuple[Mutant, ...] = (
    _sabotage("blind takeover of dirty opaque", sabotage.blind_takeover, OPAQUE_MODE, Violation.DOUBLE_EFFECT),
    _sabotage("no intent mark", sabotage.no_intent_mark, OPAQUE_EFFECT, Violation.DOUBLE_EFFECT),
    _sabotage("unguarded intent", sabotage.unguarded_intent, OPAQUE_EFFECT, Violation.DOUBLE_EFFECT),
    Mutant(
        name="release when dirty",
        transition=sabotage.release_when_dirty,
        habits=frozenset({Habit.RELEASED_AFTER_TIMEOUT}),
        world=OPAQUE_EFFECT,
        expected=Violation.DOUBLE_EFFECT,
    ),
    _habit(
        "opaque called again after a timeout", Habit.CALLED_AGAIN_AFTER_TIMEOUT, OPAQUE_EFFECT, Violation.DOUBLE_EFFECT
    ),
    _habit("derived key per attempt", Habit.KEY_PER_ATTEMPT, STICKY, Violation.DOUBLE_EFFECT),
    _sabotage(
        "purge of what is not at rest",
        sabotage.purge_of_anything,
        _small("queryable, ageing", crashes=1, ageings=1),
        Violation.EFFECT_VANISHED,
    ),
    _habit(
        "timeout stored as a rejection", Habit.TIMEOUT_IS_A_REJECTION, OPAQUE_EFFECT, Violation.ACK_ERROR_BUT_EFFECT
    ),
    _habit("timeout reported as never sent", Habit.TIMEOUT_IS_NOTHING, OPAQUE_EFFECT, Violation.DOUBLE_EFFECT),
    _sabotage(
        "a call that never left speaks for an earlier one",
        sabotage.one_call_speaks_for_all,
        _small("sticky", starts=1, crashes=1, failures=1),
        Violation.EFFECT_VANISHED,
    ),
    _sabotage(
        "success only: rejection after a takeover is definite",
        sabotage.takeover_leaves_nothing_outstanding,
        SUCCESS_ONLY,
        Violation.ACK_ERROR_BUT_EFFECT,
    ),
    _sabotage(
        "success only: own timed-out call ignored",
        sabotage.own_timeout_ignored,
        SUCCESS_ONLY,
        Violation.ACK_ERROR_BUT_EFFECT,
    ),
    Mutant(
        name="fenced: called again under the same fence",
        transition=sabotage.fenced_called_again,
        habits=frozenset({Habit.FENCED_CALLED_AGAIN}),
        world=_small("fenced", late=1, rejections=1),
        expected=Violation.ACK_ERROR_BUT_EFFECT,
    ),
    _habit("answer before COMPLETE", Habit.ACK_BEFORE_COMPLETE, OPAQUE_MODE, Violation.ACK_NOT_DURABLE),
    _habit("loser answers with its own bytes", Habit.LOSER_ACKS_ITS_OWN, STICKY, Violation.ACKS_DIFFER),
    _sabotage("COMPLETE may overwrite", sabotage.complete_overwrites, STICKY, Violation.ACKS_DIFFER),
    _habit(
        "transaction run again without reading",
        Habit.COMMIT_RUN_AGAIN_BLINDLY,
        GUARDED,
        Violation.DOUBLE_EFFECT,
    ),
    _habit(
        "reading again ignores the record id",
        Habit.READ_AGAIN_IGNORES_LIFE,
        GUARDED_AGEING,
        Violation.ZOMBIE_ABA,
    ),
    Mutant(
        name="fences start over and are the only guard",
        transition=sabotage.fences_start_over,
        habits=frozenset({Habit.FENCES_START_OVER}),
        world=OPAQUE_AGEING,
        expected=Violation.ZOMBIE_ABA,
    ),
    _sabotage("old life's owner is not fenced", sabotage.guard_is_the_state, OPAQUE_AGEING, Violation.ZOMBIE_ABA),
    _habit("in doubt without automatic exit", Habit.NO_DEADLINE, OPAQUE_MODE, Violation.POISONED),
    _sabotage(
        "did not happen, without proof",
        sabotage.absence_needs_no_proof,
        _small("queryable", late=1, evidence=1),
        Violation.DOUBLE_EFFECT,
    ),
    _sabotage(
        "evidence settles whatever effect is open",
        sabotage.evidence_about_anything,
        _small("two queryable, undo queryable", late=1, crashes=1),
        Violation.ACK_OK_NO_EFFECT,
    ),
    _sabotage(
        "resolve leaves the old owner in place", sabotage.resolve_keeps_owner, OPAQUE_MODE, Violation.ACKS_DIFFER
    ),
    _habit("undo under a key per attempt", Habit.KEY_PER_ATTEMPT, WITH_UNDO, Violation.DOUBLE_UNDO),
    _habit("undo skipped", Habit.UNDO_SKIPPED, WITH_UNDO, Violation.ACK_ERROR_BUT_EFFECT),
    _sabotage(
        "recall window ignored",
        sabotage.recall_never_ends,
        _small("sticky, recall window", crashes=1, ageings=1),
        Violation.DOUBLE_EFFECT,
    ),
    _sabotage(
        "fingerprint not compared", sabotage.any_command, _small("opaque mode, two commands"), Violation.OTHER_COMMAND
    ),
    _habit(
        "identity without tenant",
        Habit.IDENTITY_WITHOUT_TENANT,
        _small("opaque mode, two tenants"),
        Violation.OTHER_TENANT,
    ),
    Mutant(
        name="a claim outlives the retention of its record",
        habits=frozenset({Habit.CLAIM_OUTLIVES_RETENTION}),
        world=OPAQUE_AGEING,
        expected=None,
        reason="A late copy of the claim that began a life finds that life's record id and is told that it is gone. "
        "Only a copy that comes after even the tombstone is forgotten could begin it anew.",
    ),
    _sabotage("no fence on COMPLETE (sticky)", sabotage.complete_without_fence, STICKY, Violation.ACKS_DIFFER),
    _sabotage(
        "no fence on COMPLETE (success only)", sabotage.complete_without_fence, SUCCESS_ONLY, Violation.ACKS_DIFFER
    ),
    Mutant(
        name="guard without the record id",
        transition=sabotage.guard_without_record_id,
        world=GUARDED_AGEING,
        expected=None,
        reason="Fences come from one sequence and are never used again, so a fence tells one life from another. The "
        "record id guards stores that lose the sequence.",
    ),
    Mutant(
        name="claim does not recognise its own nonce",
        transition=sabotage.own_claim_not_recognised,
        world=OPAQUE_MODE,
        expected=None,
        reason="Liveness only: a lone client whose answer was lost is told to wait for its own lease. Nothing happens "
        "twice and nothing is poisoned.",
    ),
)
