"""What an owner may write, and why it is refused otherwise (I1, I2, F050, F056, F063, F066, F076)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nebis.core.answers import Intended, OwnerAnswer, Refusal, Refused
from nebis.core.owning import KEPT, KEPT_BEFORE, is_definite
from nebis.core.record import (
    Effect,
    EffectClass,
    EffectsMode,
    EffectVerdict,
    Fence,
    OutcomeKind,
    Ownership,
    Record,
    Resource,
    Retention,
    State,
)
from nebis.core.step import Edge, Step
from nebis.core.transitions import transition
from nebis.core.verbs import (
    Attach,
    Checkpoint,
    Complete,
    Doubt,
    Intend,
    OwnerVerb,
    Release,
    Renew,
    Suspend,
    TurnBack,
    Withdraw,
)
from nebis.testing.conformance.moves import (
    OwnerMove,
    attaching,
    checkpointing,
    completing,
    doubting,
    intending,
    releasing,
    renewing,
    suspending,
    turning_back,
    withdrawing,
)
from nebis.testing.conformance.specimens import DECLINED, DIGEST, LEASE_US, NEVER_PROVED, RECALL_US, RETENTION
from tests.core.records import (
    IN_EVERY_STATE,
    LAPSED,
    NEXT_FENCE,
    NOW,
    OTHER_LIFE,
    OTHER_NONCE,
    available,
    called,
    completed,
    dirty,
    done,
    doubted,
    running,
)

MOVES: dict[type[OwnerVerb], OwnerMove] = {
    Renew: renewing(),
    Intend: intending(),
    Checkpoint: checkpointing(),
    Complete: completing(),
    Suspend: suspending(),
    Release: releasing,
    Withdraw: withdrawing,
    Doubt: doubting,
    TurnBack: turning_back,
    Attach: attaching(resource=Resource(type="payment", id="pay_1")),
}
ACCEPTED_STATES: dict[type[OwnerVerb], set[State]] = {
    **{verb: {State.IN_PROGRESS} for verb in MOVES},
    Checkpoint: {State.IN_PROGRESS, State.IN_DOUBT},
    Complete: {State.IN_PROGRESS, State.IN_DOUBT, State.COMPLETED},
    Release: {State.IN_PROGRESS, State.AVAILABLE},
    Doubt: {State.IN_PROGRESS, State.IN_DOUBT},
}
UNDOING = {"rejection": b"out of stock"}
QUERYABLE = called(EffectClass.QUERYABLE)
FORGETFUL = called(EffectClass.SUCCESS_ONLY, is_outstanding=True)
OPAQUE = running(mode=EffectsMode.OPAQUE, is_dirty=True)
LOCAL = running(mode=EffectsMode.LOCAL)


def write(record: Record, move: OwnerMove, now: int = NOW) -> Step[Any]:
    """Let the owner of a record write."""
    return transition(record, move(record.ownership), now, NEXT_FENCE)


def kept(record: Record, move: OwnerMove, now: int = NOW) -> tuple[Record, Edge]:
    """Let the owner write, expecting that it is accepted."""
    step = write(record, move, now)
    assert step.answer == KEPT
    assert step.record is not None
    return step.record, step.edge


@pytest.mark.parametrize("verb", [verb for verb in MOVES if verb is not Withdraw])
def test_what_is_not_there_has_no_owner(verb: type[OwnerVerb]) -> None:
    step = transition(None, MOVES[verb](running().ownership), NOW, NEXT_FENCE)

    assert (step.record, step.answer) == (None, Refused(reason=Refusal.ABSENT, found=None))


@pytest.mark.parametrize("verb", MOVES)
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"record_id": OTHER_LIFE}, Refusal.OTHER_LIFE),
        ({"fence": Fence(4)}, Refusal.FENCED),
        ({"fence": Fence(6)}, Refusal.FENCED),
        ({"nonce": OTHER_NONCE}, Refusal.FENCED),
    ],
    ids=["another life", "an older fence", "a fence never given", "another nonce"],
)
def test_only_the_newest_owner_of_this_life_writes_i2(
    verb: type[OwnerVerb], wrong: dict[str, Any], reason: Refusal
) -> None:
    record = running()
    ownership: Ownership = replace(record.ownership, **wrong)

    step = transition(record, MOVES[verb](ownership), NOW, NEXT_FENCE)

    assert step.record is record
    assert step.answer == Refused(reason=reason, found=record)


@pytest.mark.parametrize(
    ("verb", "state"), [(verb, state) for verb in MOVES for state in State if state not in ACCEPTED_STATES[verb]]
)
def test_a_verb_is_refused_in_every_state_that_it_is_not_for(verb: type[OwnerVerb], state: State) -> None:
    record = IN_EVERY_STATE[state]

    step = write(record, MOVES[verb])

    assert step.record is record
    assert step.answer == Refused(reason=Refusal(state.value), found=record)


REFUSED: list[tuple[str, Refusal, Record, OwnerMove]] = [
    ("intend locally", Refusal.NOT_DECLARED, LOCAL, intending()),
    ("intend opaquely", Refusal.NOT_DECLARED, OPAQUE, intending()),
    ("intend while undoing", Refusal.UNDOING, running(**UNDOING), intending()),
    ("undo while not undoing", Refusal.NOT_UNDOING, running(), intending("undo:charge")),
    ("intend a second effect", Refusal.EFFECT_OPEN, dirty(called()), intending("ship")),
    ("intend with other arguments", Refusal.CODE_CHANGED, dirty(called()), intending(digest=b"other")),
    ("intend as another class", Refusal.CODE_CHANGED, dirty(QUERYABLE), intending()),
    ("intend what is known", Refusal.NAME_USED, dirty(done()), intending()),
    (
        "intend the unrepeatable again",
        Refusal.NOT_RESUMABLE,
        dirty(QUERYABLE),
        intending(effect_class=EffectClass.QUERYABLE, is_again=True),
    ),
    ("intend what downstream forgot", Refusal.RECALL_OVER, dirty(called(recall_until=NOW)), intending(is_again=True)),
    ("checkpoint what was never intended", Refusal.EFFECT_NOT_OPEN, running(), checkpointing()),
    (
        "checkpoint a local step in doubt",
        Refusal.EFFECT_NOT_OPEN,
        doubted(),
        checkpointing("reserve", transactional_digest=DIGEST),
    ),
    ("checkpoint another result", Refusal.NAME_USED, dirty(done()), checkpointing(result=b"charge-2")),
    (
        "checkpoint another verdict",
        Refusal.NAME_USED,
        dirty(done()),
        checkpointing(verdict=EffectVerdict.REJECTED),
    ),
    (
        "checkpoint a forgotten rejection",
        Refusal.NOT_DEFINITE,
        dirty(FORGETFUL),
        checkpointing(verdict=EffectVerdict.REJECTED),
    ),
    ("local step in a local record", Refusal.NOT_DECLARED, LOCAL, checkpointing("step", transactional_digest=DIGEST)),
    (
        "local step while undoing",
        Refusal.UNDOING,
        running(**UNDOING),
        checkpointing("step", transactional_digest=DIGEST),
    ),
    (
        "local undo while not undoing",
        Refusal.NOT_UNDOING,
        running(),
        checkpointing("undo:step", transactional_digest=DIGEST),
    ),
    (
        "local step beside an open effect",
        Refusal.EFFECT_OPEN,
        dirty(called()),
        checkpointing("step", transactional_digest=DIGEST),
    ),
    ("complete with an open effect", Refusal.EFFECT_OPEN, dirty(called()), completing()),
    ("complete in doubt with an open effect", Refusal.EFFECT_OPEN, doubted(called()), completing()),
    ("succeed while undoing", Refusal.UNDOING, running(**UNDOING), completing()),
    ("suspend a clean record", Refusal.CLEAN, running(), suspending()),
    ("suspend an unrepeatable call", Refusal.NOT_RESUMABLE, dirty(QUERYABLE), suspending()),
    ("suspend an opaque record", Refusal.NOT_RESUMABLE, OPAQUE, suspending()),
    ("release a dirty record", Refusal.DIRTY, dirty(), releasing),
    ("withdraw a dirty record", Refusal.DIRTY, dirty(), withdrawing),
    ("release an opaque record without a word", Refusal.DIRTY, OPAQUE, releasing),
    ("withdraw an opaque record without a word", Refusal.DIRTY, OPAQUE, withdrawing),
    ("turn back locally", Refusal.NOT_DECLARED, LOCAL, turning_back),
    ("turn back with an open effect", Refusal.EFFECT_OPEN, dirty(called()), turning_back),
]


@pytest.mark.parametrize(("reason", "record", "move"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_an_owner_is_refused(reason: Refusal, record: Record, move: OwnerMove) -> None:
    step = write(record, move)

    assert step.record is record
    assert step.answer == Refused(reason=reason, found=record)
    assert step.edge is Edge.REFUSED


REPEATED: list[tuple[str, Edge, Record, OwnerMove, OwnerAnswer]] = [
    ("intend", Edge.INTENDED_REPEATED, dirty(called()), intending(), Intended(effect=called(), is_repeated=True)),
    ("checkpoint", Edge.CHECKPOINT_REPEATED, dirty(done()), checkpointing(), KEPT_BEFORE),
    ("checkpoint in doubt", Edge.CHECKPOINT_REPEATED, doubted(done()), checkpointing(), KEPT_BEFORE),
    ("complete", Edge.COMPLETE_REPEATED, completed(), completing(DECLINED), KEPT_BEFORE),
    ("release", Edge.RELEASE_REPEATED, available(), releasing, KEPT_BEFORE),
    ("doubt", Edge.DOUBT_REPEATED, doubted(), doubting, KEPT_BEFORE),
    ("turn back", Edge.TURN_BACK_REPEATED, running(**UNDOING), turning_back, KEPT_BEFORE),
]


@pytest.mark.parametrize(
    ("edge", "record", "move", "answer"), [row[1:] for row in REPEATED], ids=[row[0] for row in REPEATED]
)
def test_a_repeated_write_changes_nothing_and_is_told_so(
    edge: Edge, record: Record, move: OwnerMove, answer: OwnerAnswer
) -> None:
    step = write(record, move, LAPSED)

    assert (step.edge, step.answer) == (edge, answer)
    assert step.record is record


@pytest.mark.parametrize(
    ("now", "lease_us", "until"),
    [
        (NOW, LEASE_US, NOW + LEASE_US),
        (LAPSED + 5, LEASE_US, LAPSED + 5 + LEASE_US),
        (NOW, 1, NOW + LEASE_US),
    ],
    ids=["again", "after it lapsed", "never shorter"],
)
def test_renew_prolongs_the_lease(now: int, lease_us: int, until: int) -> None:
    record, edge = kept(running(), renewing(lease_us), now)

    assert (record, edge) == (running(lease_until=until), Edge.RENEWED)


@pytest.mark.parametrize("recall_us", [None, RECALL_US])
def test_intend_opens_an_effect_and_prolongs_the_lease_f066(recall_us: int | None) -> None:
    step = write(running(), intending(recall_us=recall_us, derived_key="derived", is_again=True), LAPSED)

    opened = called(is_outstanding=True, recall_until=None if recall_us is None else LAPSED + recall_us)
    assert step.edge is Edge.INTENDED
    assert step.answer == Intended(effect=opened)
    assert step.record == dirty(opened, lease_until=LAPSED + LEASE_US)


def test_an_undo_may_be_intended_while_undoing() -> None:
    step = write(dirty(done(), **UNDOING), intending("undo:charge"))

    assert step.edge is Edge.INTENDED
    assert step.record is not None
    assert [effect.name for effect in step.record.effects] == ["charge", "undo:charge"]


@pytest.mark.parametrize(
    ("known", "is_again"),
    [(called(), True), (called(is_outstanding=True), False), (called(is_outstanding=True), True)],
    ids=["after our own call", "after somebody else's", "after both"],
)
def test_an_open_effect_is_called_again_under_the_key_that_was_stored_first_f064(known: Effect, is_again: bool) -> None:
    step = write(dirty(done("reserve"), known), intending(derived_key="another", is_again=is_again), LAPSED)

    assert step.edge is Edge.INTENDED_AGAIN
    assert step.answer == Intended(effect=called(is_outstanding=True))
    assert step.record == dirty(done("reserve"), called(is_outstanding=True), lease_until=LAPSED + LEASE_US)


def test_checkpoint_ends_the_open_effect() -> None:
    record, edge = kept(dirty(done("reserve"), called()), checkpointing())

    assert (record, edge) == (dirty(done("reserve"), done()), Edge.CHECKPOINTED)


def test_checkpoint_of_a_late_owner_ends_the_doubt() -> None:
    record, edge = kept(doubted(called()), checkpointing())

    assert (record, edge) == (dirty(done()), Edge.CHECKPOINTED_FROM_DOUBT)


def test_a_local_step_needs_no_intent_and_dirties_the_record() -> None:
    record, edge = kept(running(), checkpointing("reserve", transactional_digest=DIGEST, result=b"r"))

    assert edge is Edge.CHECKPOINTED_LOCAL
    assert record == dirty(
        called(EffectClass.TRANSACTIONAL, "reserve", derived_key="", verdict=EffectVerdict.HAPPENED, result=b"r")
    )


@pytest.mark.parametrize("effect_class", list(EffectClass))
@pytest.mark.parametrize("is_outstanding", [True, False])
@pytest.mark.parametrize("verdict", list(EffectVerdict))
def test_a_word_about_this_call_is_the_last_one_only_where_no_earlier_call_can_land_f063(
    effect_class: EffectClass, is_outstanding: bool, verdict: EffectVerdict
) -> None:
    forgotten = effect_class is EffectClass.SUCCESS_ONLY and verdict is EffectVerdict.REJECTED
    proves_nothing = is_outstanding and (forgotten or verdict is EffectVerdict.DID_NOT_HAPPEN)

    assert is_definite(called(effect_class, is_outstanding=is_outstanding), verdict) is not proves_nothing


@pytest.mark.parametrize(
    ("record", "edge"), [(dirty(done()), Edge.COMPLETED), (doubted(done()), Edge.COMPLETED_FROM_DOUBT)]
)
def test_complete_stores_the_outcome_and_erases_what_is_no_longer_needed(record: Record, edge: Edge) -> None:
    after, reached = kept(replace(record, is_awaited=True), completing(), LAPSED)

    assert reached is edge
    assert (after.state, after.outcome_kind, after.outcome) == (State.COMPLETED, OutcomeKind.SUCCEEDED, b"\x00paid\xff")
    assert (after.command, after.doubt_since, after.doubt_reason, after.is_dirty, after.is_awaited) == (
        None,
        None,
        None,
        False,
        False,
    )
    assert (after.completed_at, after.expires_at) == (LAPSED, LAPSED + RETENTION.outcome_us)
    assert after.forget_at == after.expires_at + RETENTION.metadata_us
    assert after.effects == (done(),)


def test_complete_ends_an_undo_with_its_rejection() -> None:
    record, edge = kept(running(**UNDOING), completing(DECLINED))

    assert edge is Edge.COMPLETED
    assert (record.outcome_kind, record.rejection) == (OutcomeKind.REJECTED, None)


def test_complete_never_shortens_what_was_promised_and_keeps_an_unproved_tombstone_longer_f073() -> None:
    short = Retention(outcome_us=1, metadata_us=1)
    promised, _ = kept(running(), completing(retention=short))
    unproved, _ = kept(running(), completing(NEVER_PROVED))

    assert (promised.expires_at, promised.forget_at) == (running().expires_at, running().forget_at)
    assert unproved.forget_at == unproved.expires_at + 10 * RETENTION.metadata_us


OLD, NEW = Resource(type="payment", id="old"), Resource(type="payment", id="new")


@pytest.mark.parametrize(("named", "kept_resource"), [(None, OLD), (NEW, NEW)])
def test_a_resource_is_replaced_only_by_another(named: Resource | None, kept_resource: Resource) -> None:
    before = dirty(done(), resource=OLD)

    for move in (completing(resource=named), suspending(resource=named), attaching(resource=named)):
        assert kept(before, move)[0].resource == kept_resource


@pytest.mark.parametrize(("now", "until"), [(NOW, NOW), (LAPSED + 5, LAPSED)])
def test_suspend_ends_the_lease_and_what_is_open_may_still_land(now: int, until: int) -> None:
    record, edge = kept(dirty(done("reserve"), called(), is_awaited=True), suspending(), now)

    assert edge is Edge.SUSPENDED
    assert record == dirty(done("reserve"), called(is_outstanding=True), lease_until=until)


def test_release_gives_the_key_back() -> None:
    record, edge = kept(running(is_awaited=True), releasing)

    assert (record, edge) == (available(), Edge.RELEASED)


def test_withdraw_leaves_nothing() -> None:
    step = write(running(), withdrawing)

    assert (step.record, step.answer, step.edge) == (None, KEPT, Edge.WITHDRAWN)


def test_withdraw_where_nothing_is_was_done_before() -> None:
    step = transition(None, withdrawing(running().ownership), NOW, NEXT_FENCE)

    assert (step.record, step.answer, step.edge) == (None, KEPT_BEFORE, Edge.WITHDRAW_REPEATED)


@pytest.mark.parametrize("record", [running(), dirty(called()), OPAQUE])
def test_doubt_is_the_owners_to_say(record: Record) -> None:
    after, edge = kept(record, doubting)

    assert edge is Edge.DOUBTED
    assert (after.state, after.is_dirty, after.fence) == (State.IN_DOUBT, True, record.fence)


def test_a_fenced_effect_is_not_called_twice_under_one_fence() -> None:
    """The first call carries this very fence, so a rejection of the second could not stop it from landing later."""
    move = intending(effect_class=EffectClass.FENCED, is_again=True)

    step = write(dirty(called(EffectClass.FENCED)), move)

    assert step.answer == Refused(reason=Refusal.NOT_RESUMABLE, found=step.record)


def test_a_call_that_did_not_happen_leaves_the_record_clean_again() -> None:
    record, edge = kept(dirty(called()), checkpointing(verdict=EffectVerdict.DID_NOT_HAPPEN, result=b""))

    assert edge is Edge.CHECKPOINTED_CLEAN
    assert not record.is_dirty
    assert write(record, releasing).edge is Edge.RELEASED


def test_a_call_that_did_not_happen_leaves_earlier_effects_as_they_are() -> None:
    record, edge = kept(
        dirty(done("reserve"), called()), checkpointing(verdict=EffectVerdict.DID_NOT_HAPPEN, result=b"")
    )

    assert edge is Edge.CHECKPOINTED
    assert record.is_dirty


@pytest.mark.parametrize("verb", [releasing, withdrawing])
def test_a_record_that_is_being_undone_is_not_given_back(verb: OwnerMove) -> None:
    step = write(running(**UNDOING), verb)

    assert step.answer == Refused(reason=Refusal.UNDOING, found=step.record)


def test_turn_back_keeps_the_rejection() -> None:
    record, edge = kept(dirty(done()), turning_back)

    assert (record, edge) == (dirty(done(), **UNDOING), Edge.TURNED_BACK)


@pytest.mark.parametrize(
    ("retention", "factor"),
    [
        (None, 1),
        (Retention(outcome_us=1, metadata_us=1), 1),
        (Retention(outcome_us=2 * RETENTION.outcome_us, metadata_us=2 * RETENTION.metadata_us), 2),
    ],
    ids=["none", "shorter", "longer"],
)
def test_attach_only_ever_prolongs_f073(retention: Retention | None, factor: int) -> None:
    record, edge = kept(running(), attaching(retention=retention))

    assert edge is Edge.ATTACHED
    assert record.expires_at == NOW + factor * RETENTION.outcome_us
    assert record.forget_at == NOW + factor * (RETENTION.outcome_us + RETENTION.metadata_us)


def test_a_local_step_cannot_be_one_that_did_not_happen() -> None:
    move = checkpointing("reserve", verdict=EffectVerdict.DID_NOT_HAPPEN, result=b"", transactional_digest=DIGEST)

    assert write(running(), move).answer == Refused(reason=Refusal.EFFECT_NOT_OPEN, found=running())


@pytest.mark.parametrize(
    ("verb", "edge", "left"),
    [(Release, Edge.RELEASED, State.AVAILABLE), (Withdraw, Edge.WITHDRAWN, None)],
)
def test_an_opaque_handler_is_taken_at_its_word_that_nothing_happened(
    verb: type[Release | Withdraw], edge: Edge, left: State | None
) -> None:
    opaque = running(mode=EffectsMode.OPAQUE, is_dirty=True)

    step = transition(opaque, verb(ownership=opaque.ownership, nothing_happened=True), NOW, Fence(99))

    assert (step.answer, step.edge) == (KEPT, edge)
    assert (None if step.record is None else step.record.state) is left
    assert step.record is None or not step.record.is_dirty


@pytest.mark.parametrize("verb", [Release, Withdraw])
def test_no_word_outweighs_an_effect_that_is_recorded(verb: type[Release | Withdraw]) -> None:
    record = dirty(done())

    step = transition(record, verb(ownership=record.ownership, nothing_happened=True), NOW, Fence(99))

    assert step.answer == Refused(reason=Refusal.DIRTY, found=record)
