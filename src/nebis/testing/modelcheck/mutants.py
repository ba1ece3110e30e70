"""Planted mistakes: each must be found by the same search, or be argued to change nothing."""

from __future__ import annotations

from dataclasses import dataclass

from nebis.core.transitions import transition as core_transition
from nebis.testing.modelcheck import sabotage
from nebis.testing.modelcheck.configurations import Configuration, named
from nebis.testing.modelcheck.habits import Habit
from nebis.testing.modelcheck.search import Result, Search
from nebis.testing.modelcheck.table import Transition
from nebis.testing.modelcheck.theorems import Violation

LIMIT = 60_000
"""States after which a mutant counts as a survivor; the hardest one is found well before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mistake, the world that shows it, and the verdict."""

    name: str
    world: str
    expected: Violation | None
    transition: Transition = core_transition
    habits: frozenset[Habit] = frozenset()
    reason: str = ""
    """Why a survivor changes nothing that is promised."""

    @property
    def configuration(self) -> Configuration:
        """Return the world in which the mutant is looked for."""
        return named(self.world)

    def hunt(self) -> tuple[Search, Result]:
        """Search until the expected verdict is found, or everywhere if none is expected."""
        search = Search(self.configuration, transition=self.transition, habits=self.habits)
        limit = LIMIT if self.expected is not None else 10_000_000
        return search, search.run(limit=limit, until=self.expected)


def _habit(name: str, habit: Habit, world: str, expected: Violation) -> Mutant:
    return Mutant(name=name, habits=frozenset({habit}), world=world, expected=expected)


def _sabotage(name: str, transition: Transition, world: str, expected: Violation) -> Mutant:
    return Mutant(name=name, transition=transition, world=world, expected=expected)


MUTANTS: tuple[Mutant, ...] = (
    _sabotage("blind takeover of dirty opaque", sabotage.blind_takeover, "opaque mode", Violation.DOUBLE_EFFECT),
    _sabotage("no intent mark", sabotage.no_intent_mark, "opaque effect", Violation.DOUBLE_EFFECT),
    _sabotage("unguarded intent", sabotage.unguarded_intent, "opaque effect", Violation.DOUBLE_EFFECT),
    Mutant(
        name="release when dirty",
        transition=sabotage.release_when_dirty,
        habits=frozenset({Habit.RELEASED_AFTER_TIMEOUT}),
        world="opaque effect",
        expected=Violation.DOUBLE_EFFECT,
    ),
    _habit("opaque called again after a timeout", Habit.CALLED_AGAIN_AFTER_TIMEOUT, "opaque effect", Violation.DOUBLE_EFFECT),
    _habit("derived key per attempt", Habit.KEY_PER_ATTEMPT, "sticky", Violation.DOUBLE_EFFECT),
    _sabotage("purge of what is not at rest", sabotage.purge_of_anything, "queryable, ageing", Violation.EFFECT_VANISHED),
    _habit("timeout stored as a rejection", Habit.TIMEOUT_IS_A_REJECTION, "opaque effect", Violation.ACK_ERROR_BUT_EFFECT),
    _sabotage(
        "success only: rejection after a takeover is definite",
        sabotage.takeover_leaves_nothing_outstanding,
        "success only",
        Violation.ACK_ERROR_BUT_EFFECT,
    ),
    _sabotage(
        "success only: own timed-out call ignored",
        sabotage.own_timeout_ignored,
        "success only",
        Violation.ACK_ERROR_BUT_EFFECT,
    ),
    Mutant(
        name="fenced: called again under the same fence",
        transition=sabotage.fenced_called_again,
        habits=frozenset({Habit.FENCED_CALLED_AGAIN}),
        world="fenced",
        expected=Violation.ACK_ERROR_BUT_EFFECT,
    ),
    _habit("answer before COMPLETE", Habit.ACK_BEFORE_COMPLETE, "opaque mode", Violation.ACK_NOT_DURABLE),
    _habit("loser answers with its own bytes", Habit.LOSER_ACKS_ITS_OWN, "sticky", Violation.ACKS_DIFFER),
    _sabotage("COMPLETE may overwrite", sabotage.complete_overwrites, "sticky", Violation.ACKS_DIFFER),
    _habit(
        "transaction run again without reading",
        Habit.COMMIT_RUN_AGAIN_BLINDLY,
        "local, guarded transaction",
        Violation.DOUBLE_EFFECT,
    ),
    _habit(
        "reading again ignores the record id",
        Habit.READ_AGAIN_IGNORES_LIFE,
        "local, guarded, ageing",
        Violation.ZOMBIE_ABA,
    ),
    Mutant(
        name="fences start over and are the only guard",
        transition=sabotage.fences_start_over,
        habits=frozenset({Habit.FENCES_START_OVER}),
        world="local, guarded, ageing",
        expected=Violation.ZOMBIE_ABA,
    ),
    _sabotage("old life's owner is not fenced", sabotage.guard_is_the_state, "opaque mode, ageing", Violation.ZOMBIE_ABA),
    _habit("in doubt without automatic exit", Habit.NO_DEADLINE, "opaque mode", Violation.POISONED),
    _sabotage(
        "did not happen, without proof", sabotage.absence_needs_no_proof, "queryable", Violation.DOUBLE_EFFECT
    ),
    _sabotage(
        "evidence settles whatever effect is open",
        sabotage.evidence_about_anything,
        "two queryable, undo queryable",
        Violation.ACK_OK_NO_EFFECT,
    ),
    _sabotage("resolve leaves the old owner in place", sabotage.resolve_keeps_owner, "opaque mode", Violation.ACKS_DIFFER),
    _habit("undo under a key per attempt", Habit.KEY_PER_ATTEMPT, "two sticky, undo sticky", Violation.DOUBLE_UNDO),
    _habit("undo skipped", Habit.UNDO_SKIPPED, "two sticky, undo sticky", Violation.ACK_ERROR_BUT_EFFECT),
    _sabotage("recall window ignored", sabotage.recall_never_ends, "sticky, recall window", Violation.DOUBLE_EFFECT),
    _sabotage("fingerprint not compared", sabotage.any_command, "opaque mode, two commands", Violation.OTHER_COMMAND),
    _habit(
        "identity without tenant", Habit.IDENTITY_WITHOUT_TENANT, "opaque mode, two tenants", Violation.OTHER_TENANT
    ),
    _habit(
        "a claim outlives the retention of its record",
        Habit.CLAIM_OUTLIVES_RETENTION,
        "opaque mode, ageing",
        Violation.DOUBLE_EFFECT,
    ),
    Mutant(
        name="no fence on COMPLETE (sticky)",
        transition=sabotage.complete_without_fence,
        world="sticky, ageing",
        expected=None,
        reason="The first writer wins, and an outcome is sent only after every effect has a fenced checkpoint, so any "
        "attempt's outcome of the same life is true.",
    ),
    Mutant(
        name="no fence on COMPLETE (success only)",
        transition=sabotage.complete_without_fence,
        world="success only, ageing",
        expected=None,
        reason="A rejection reaches COMPLETE only through a checkpoint, which is fenced and refused while another call is "
        "outstanding. Where COMPLETE itself carries the rejection, this is a violation.",
    ),
    Mutant(
        name="guard without the record id",
        transition=sabotage.guard_without_record_id,
        world="local, guarded, ageing",
        expected=None,
        reason="Fences come from one sequence and are never used again, so a fence already tells one life from another. "
        "The record id guards stores that lose the sequence.",
    ),
    Mutant(
        name="claim does not recognise its own nonce",
        transition=sabotage.own_claim_not_recognised,
        world="opaque mode",
        expected=None,
        reason="Liveness only: a lone client whose answer was lost is told to wait for its own lease. Nothing happens "
        "twice and nothing is poisoned.",
    ),
)
