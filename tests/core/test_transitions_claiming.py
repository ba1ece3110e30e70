"""How a record comes to have an owner: each way in, each way out, and the fence that grows (I2, I6, I10)."""

from __future__ import annotations

from typing import Any

import pytest

from nebis.core.answers import (
    Doubtful,
    GivenUp,
    Gone,
    Grant,
    Granted,
    Refusal,
    Refused,
    Replay,
    Reused,
    Running,
    Unreadable,
)
from nebis.core.claiming import claim, first_life, into_doubt, take_over
from nebis.core.record import EffectClass, EffectsMode, EffectVerdict, Fence, Record, State
from nebis.core.step import Edge
from nebis.core.verbs import ExpiredPolicy
from nebis.testing.conformance import specimens
from nebis.testing.conformance.specimens import (
    FINGERPRINT,
    LEASE_US,
    OTHER_FINGERPRINT,
    UNKNOWN_FINGERPRINT,
)
from tests.core.records import (
    EXPIRED,
    FORGOTTEN,
    IN_EVERY_STATE,
    LAPSED,
    NEXT_FENCE,
    NOW,
    OTHER_LIFE,
    available,
    called,
    completed,
    dirty,
    done,
    doubted,
    expired,
    running,
    voided,
)

OPAQUE = running(mode=EffectsMode.OPAQUE, is_dirty=True)
REFUSE = {"when_expired": ExpiredPolicy.REFUSE}

GRANTED = [
    ("new", None, NOW, {}, Grant.NEW, Edge.CLAIM_NEW),
    ("own", running(), NOW, {"by": "first"}, Grant.OWN, Edge.CLAIM_OWN),
    ("own, lapsed", running(), LAPSED, {"by": "first"}, Grant.OWN, Edge.CLAIM_OWN),
    ("available", available(), NOW, {}, Grant.AVAILABLE, Edge.CLAIM_AVAILABLE),
    ("available, by whoever released it", available(), NOW, {"by": "first"}, Grant.AVAILABLE, Edge.CLAIM_AVAILABLE),
    ("available past its time", available(), EXPIRED, REFUSE, Grant.NEW, Edge.CLAIM_NEW_AFTER_AVAILABLE),
    ("lapsed, clean", running(), LAPSED, {}, Grant.TAKEN_OVER, Edge.CLAIM_TAKEN_OVER),
    ("lapsed, dirty", dirty(done()), LAPSED, {}, Grant.RESUMED, Edge.CLAIM_RESUMED),
    ("lapsed, calling", dirty(called()), LAPSED, {}, Grant.RESUMED, Edge.CLAIM_RESUMED),
    ("lapsed long past its window", running(), FORGOTTEN, {}, Grant.TAKEN_OVER, Edge.CLAIM_TAKEN_OVER),
    ("expired", expired(), EXPIRED, {}, Grant.RUN_AGAIN, Edge.CLAIM_RUN_AGAIN),
    ("completed past its window", completed(), EXPIRED, {}, Grant.RUN_AGAIN, Edge.CLAIM_RUN_AGAIN),
    ("forgotten", expired(), FORGOTTEN, REFUSE, Grant.NEW, Edge.CLAIM_NEW_AFTER_FORGOTTEN),
    ("completed past its metadata", completed(), FORGOTTEN, REFUSE, Grant.NEW, Edge.CLAIM_NEW_AFTER_FORGOTTEN),
]


@pytest.mark.parametrize(
    ("record", "now", "changes", "how", "edge"), [row[1:] for row in GRANTED], ids=[row[0] for row in GRANTED]
)
def test_a_claim_is_granted(record: Record | None, now: int, changes: dict[str, Any], how: Grant, edge: Edge) -> None:
    verb = specimens.claim(**{"by": "second", **changes})

    step = claim(record, verb, now, NEXT_FENCE)

    assert step.edge is edge
    assert isinstance(step.answer, Granted)
    assert step.answer.how is how
    assert step.answer.record is step.record


ANSWERED = [
    ("completed", completed(), EXPIRED - 1, {}, Replay, Edge.CLAIM_REPLAY),
    ("in doubt", doubted(), LAPSED, {}, Doubtful, Edge.CLAIM_DOUBTFUL),
    ("running", running(), LAPSED - 1, {}, Running, Edge.CLAIM_RUNNING),
    ("running, awaited", running(is_awaited=True), NOW, {"will_wait": True}, Running, Edge.CLAIM_RUNNING),
    ("expired", expired(), EXPIRED, REFUSE, Gone, Edge.CLAIM_GONE),
    ("completed past its window", completed(), FORGOTTEN - 1, REFUSE, Gone, Edge.CLAIM_GONE),
    *[
        (
            f"reused, {state}",
            IN_EVERY_STATE[state],
            NOW,
            {"fingerprints": (OTHER_FINGERPRINT,)},
            Reused,
            Edge.CLAIM_REUSED,
        )
        for state in (State.IN_PROGRESS, State.AVAILABLE, State.IN_DOUBT, State.COMPLETED)
    ],
    ("unreadable", running(), LAPSED, {"fingerprints": (UNKNOWN_FINGERPRINT,)}, Unreadable, Edge.CLAIM_UNREADABLE),
]


@pytest.mark.parametrize(
    ("record", "now", "changes", "kind", "edge"), [row[1:] for row in ANSWERED], ids=[row[0] for row in ANSWERED]
)
def test_a_claim_is_answered_and_changes_nothing(
    record: Record, now: int, changes: dict[str, Any], kind: type, edge: Edge
) -> None:
    step = claim(record, specimens.claim(by="second", **changes), now, NEXT_FENCE)

    assert step.edge is edge
    assert isinstance(step.answer, kind)
    assert step.record is record


def test_a_first_life_says_of_each_field_what_its_name_does() -> None:
    verb = specimens.claim(mode=EffectsMode.DECLARED, command=b"command")
    version, fingerprint = verb.fingerprints[0]
    expires_at = NOW + verb.retention.outcome_us

    assert first_life(verb, NOW, NEXT_FENCE) == Record(
        identity=verb.identity,
        record_id=verb.record_id,
        tenant=verb.tenant,
        scope=verb.scope,
        operation=verb.operation,
        key=verb.key,
        fingerprint=fingerprint,
        fingerprint_version=version,
        mode=verb.mode,
        state=State.IN_PROGRESS,
        fence=NEXT_FENCE,
        nonce=verb.nonce,
        lease_until=NOW + verb.lease_us,
        attempts=1,
        recoveries=0,
        is_dirty=False,
        is_awaited=False,
        created_at=NOW,
        completed_at=None,
        expires_at=expires_at,
        forget_at=expires_at + verb.retention.metadata_us,
        doubt_since=None,
        doubt_reason=None,
        rejection=None,
        outcome_kind=None,
        outcome=None,
        resource=None,
        command=b"command",
        effects=(),
    )


def test_a_first_life_has_the_newest_fingerprint_and_all_its_times() -> None:
    verb = specimens.claim(fingerprints=(UNKNOWN_FINGERPRINT, FINGERPRINT))

    record = first_life(verb, NOW, NEXT_FENCE)

    assert (record.fingerprint_version, record.fingerprint) == UNKNOWN_FINGERPRINT
    assert (record.created_at, record.lease_until) == (NOW, NOW + LEASE_US)
    assert (record.expires_at, record.forget_at) == (EXPIRED, FORGOTTEN)
    assert (record.fence, record.nonce, record.attempts) == (NEXT_FENCE, verb.nonce, 1)


@pytest.mark.parametrize("mode", list(EffectsMode))
def test_only_an_opaque_life_begins_dirty(mode: EffectsMode) -> None:
    assert first_life(specimens.claim(mode=mode), NOW, NEXT_FENCE).is_dirty is (mode is EffectsMode.OPAQUE)


def test_whoever_is_told_to_wait_is_told_for_how_long() -> None:
    step = claim(running(), specimens.claim(by="second"), NOW + 1, NEXT_FENCE)

    assert step.answer == Running(record=running(), lease_left_us=LEASE_US - 1)


def test_whoever_waits_leaves_a_mark() -> None:
    step = claim(running(), specimens.claim(by="second", will_wait=True), NOW, NEXT_FENCE)

    assert step.edge is Edge.CLAIM_RUNNING_AWAITED
    assert step.record == running(is_awaited=True)
    assert step.answer == Running(record=running(is_awaited=True), lease_left_us=LEASE_US)


@pytest.mark.parametrize("record", [OPAQUE, dirty(called(EffectClass.QUERYABLE)), dirty(called(recall_until=LAPSED))])
def test_a_lapsed_record_that_may_not_run_again_goes_in_doubt_under_its_old_fence_f049(record: Record) -> None:
    step = claim(record, specimens.claim(by="second"), LAPSED, NEXT_FENCE)

    assert step.edge is Edge.CLAIM_DOUBTED
    assert step.record == into_doubt(record, LAPSED, "owner-gone")
    assert step.answer == Doubtful(record=step.record)
    assert step.record.fence == record.fence


def test_a_fresh_attempt_may_declare_its_effects_differently() -> None:
    step = claim(available(), specimens.claim(by="second", mode=EffectsMode.OPAQUE), NOW, NEXT_FENCE)

    assert step.record is not None
    assert (step.record.mode, step.record.is_dirty, step.record.attempts) == (EffectsMode.OPAQUE, True, 2)


@pytest.mark.parametrize(("record", "now"), [(available(), NOW), (running(), LAPSED)], ids=["available", "lapsed"])
def test_a_new_owner_has_a_whole_lease(record: Record, now: int) -> None:
    step = claim(record, specimens.claim(by="second"), now, NEXT_FENCE)

    assert step.record is not None
    assert step.record.lease_until == now + LEASE_US


def test_a_resumed_call_may_still_land_and_keeps_its_record_id() -> None:
    record = dirty(done("reserve"), called(), is_awaited=True)
    verb = specimens.claim(by="second", mode=EffectsMode.OPAQUE)

    step = claim(record, verb, LAPSED, NEXT_FENCE)

    assert step.record is not None
    assert [effect.is_outstanding for effect in step.record.effects] == [False, True]
    assert (step.record.record_id, step.record.mode) == (record.record_id, record.mode)
    assert (step.record.fence, step.record.nonce, step.record.attempts) == (NEXT_FENCE, verb.nonce, 2)
    assert (step.record.lease_until, step.record.is_awaited) == (LAPSED + LEASE_US, False)


def test_a_new_life_keeps_nothing_of_the_old_one() -> None:
    verb = specimens.claim(by="second", fingerprints=(OTHER_FINGERPRINT,))

    step = claim(expired(attempts=7), verb, EXPIRED, NEXT_FENCE)

    assert step.record == first_life(verb, EXPIRED, NEXT_FENCE)


@pytest.mark.parametrize("policy", list(ExpiredPolicy))
def test_a_tombstone_stays_one_when_the_clock_steps_back_f055(policy: ExpiredPolicy) -> None:
    verb = specimens.claim(by="second", when_expired=policy)

    step = claim(expired(), verb, EXPIRED - 1, NEXT_FENCE)

    assert step.edge is (Edge.CLAIM_GONE if policy is ExpiredPolicy.REFUSE else Edge.CLAIM_RUN_AGAIN)


def test_a_fence_that_does_not_grow_is_never_given_i10() -> None:
    with pytest.raises(AssertionError):
        claim(running(), specimens.claim(by="second"), LAPSED, Fence(5))


@pytest.mark.parametrize(
    ("record", "how", "edge"),
    [
        (running(), Grant.TAKEN_OVER, Edge.TAKE_OVER_CLEAN),
        (dirty(done()), Grant.RESUMED, Edge.TAKE_OVER_RESUMED),
        (dirty(called()), Grant.RESUMED, Edge.TAKE_OVER_RESUMED),
    ],
    ids=["clean", "dirty", "calling"],
)
def test_a_worker_takes_over_and_is_counted(record: Record, how: Grant, edge: Edge) -> None:
    step = take_over(record, specimens.take_over(record.ownership), LAPSED, NEXT_FENCE)

    assert step.edge is edge
    assert step.record is not None
    assert step.answer == Granted(record=step.record, how=how)
    assert (step.record.recoveries, step.record.attempts, step.record.fence) == (1, 2, NEXT_FENCE)
    assert step.record.lease_until == LAPSED + LEASE_US


def test_a_repeated_take_over_is_recognised_whatever_fence_it_saw() -> None:
    record = running()

    verb = specimens.take_over(record.ownership, nonce=record.nonce, fence_seen=1)
    step = take_over(record, verb, NOW, NEXT_FENCE)

    assert step.edge is Edge.TAKE_OVER_OWN
    assert step.answer == Granted(record=record, how=Grant.OWN)


def test_a_worker_puts_in_doubt_what_may_not_run_again_even_with_recoveries_used_up() -> None:
    step = take_over(OPAQUE, specimens.take_over(OPAQUE.ownership, recoveries_limit=0), LAPSED, NEXT_FENCE)

    assert step.edge is Edge.TAKE_OVER_DOUBTED
    assert step.answer == Doubtful(record=into_doubt(OPAQUE, LAPSED, "owner-gone"))


@pytest.mark.parametrize(
    ("record", "edge", "state"),
    [
        (running(recoveries=3, is_awaited=True), Edge.TAKE_OVER_GIVEN_UP_CLEAN, State.AVAILABLE),
        (dirty(done(), recoveries=3), Edge.TAKE_OVER_GIVEN_UP_DIRTY, State.IN_DOUBT),
    ],
)
def test_recoveries_are_bounded(record: Record, edge: Edge, state: State) -> None:
    step = take_over(record, specimens.take_over(record.ownership, recoveries_limit=3), LAPSED, NEXT_FENCE)

    assert step.edge is edge
    assert step.record is not None
    assert (step.record.state, step.record.is_awaited, step.record.fence) == (state, False, record.fence)
    assert isinstance(step.answer, GivenUp if state is State.AVAILABLE else Doubtful)


@pytest.mark.parametrize(
    ("changes", "reason"), [({}, "recoveries-used-up"), ({"rejection": b"out of stock"}, "undo-failed")]
)
def test_what_ran_out_of_tries_says_whether_it_was_being_undone(changes: dict[str, Any], reason: str) -> None:
    record = dirty(done(), recoveries=3, **changes)

    step = take_over(record, specimens.take_over(record.ownership, recoveries_limit=3), LAPSED, NEXT_FENCE)

    assert step.answer == Doubtful(record=into_doubt(record, LAPSED, reason))


def test_a_successor_forgets_a_call_that_never_left_and_remembers_a_key_that_is_burnt() -> None:
    nothing = done("ship", EffectVerdict.DID_NOT_HAPPEN)
    record = available(effects=(voided(), nothing))

    step = claim(record, specimens.claim(by="second"), NOW, NEXT_FENCE)

    assert step.record is not None
    assert step.record.effects == (voided(),)
    assert (step.record.voided("charge"), step.record.voided("ship")) == (1, 0)
    assert not step.record.is_dirty


TAKE_OVER_REFUSED = [
    (Refusal.ABSENT, None, LAPSED, {}),
    (Refusal.OTHER_LIFE, running(), LAPSED, {"record_id": OTHER_LIFE}),
    *[(Refusal(state.value), IN_EVERY_STATE[state], LAPSED, {}) for state in State if state is not State.IN_PROGRESS],
    (Refusal.MOVED_ON, running(), LAPSED, {"fence_seen": 4}),
    (Refusal.LEASE_LIVE, running(), LAPSED - 1, {}),
]


@pytest.mark.parametrize(("reason", "record", "now", "changes"), TAKE_OVER_REFUSED)
def test_a_take_over_is_refused(reason: Refusal, record: Record | None, now: int, changes: dict[str, Any]) -> None:
    verb = specimens.take_over(running().ownership, **changes)

    step = take_over(record, verb, now, NEXT_FENCE)

    assert step.record is record
    assert step.answer == Refused(reason=reason, found=record)


def test_doubt_keeps_everything_that_a_late_owner_needs() -> None:
    record = dirty(called(), is_awaited=True)

    doubt = into_doubt(record, LAPSED, "owner-gone")

    assert (doubt.fence, doubt.nonce, doubt.effects) == (record.fence, record.nonce, record.effects)
    assert (doubt.state, doubt.doubt_since, doubt.doubt_reason) == (State.IN_DOUBT, LAPSED, "owner-gone")
    assert not doubt.is_awaited


@pytest.mark.parametrize("record", [completed(), expired()])
def test_a_late_copy_of_the_claim_that_began_a_life_begins_no_other_i10(record: Record) -> None:
    verb = specimens.claim(by="late copy", record_id=record.record_id)

    step = claim(record, verb, record.forget_at + 1, NEXT_FENCE)

    assert (step.record, step.edge) == (record, Edge.CLAIM_GONE)


def test_a_late_copy_of_a_claim_goes_on_with_its_own_life_where_nothing_happened_in_it_i10() -> None:
    record = available()

    step = claim(record, specimens.claim(by="late copy", record_id=record.record_id), record.expires_at + 1, NEXT_FENCE)

    assert step.edge is Edge.CLAIM_AVAILABLE
