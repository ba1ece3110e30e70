"""What a record says about itself: lease (I7), effects, and whether a successor may run it (F049, F062)."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from nebis.core.record import (
    Effect,
    EffectClass,
    EffectsMode,
    OutcomeKind,
    Ownership,
    Record,
    Told,
    name_of_call,
    name_of_voided,
)
from nebis.testing.conformance.specimens import LEASE_US
from tests.core.records import NOW, called, dirty, done, running


def test_a_record_never_changes_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        running().attempts = 2  # type: ignore[misc]


@pytest.mark.parametrize(("later_us", "has_lapsed"), [(0, False), (LEASE_US - 1, False), (LEASE_US, True)])
def test_a_lease_lapses_at_its_end(later_us: int, has_lapsed: bool) -> None:
    assert running().has_lapsed(NOW + later_us) is has_lapsed


def test_ownership_is_life_fence_and_nonce() -> None:
    record = running()

    assert record.ownership == Ownership(
        identity=record.identity, record_id=record.record_id, fence=record.fence, nonce=record.nonce
    )


def test_an_effect_is_found_by_its_name() -> None:
    record = dirty(done("charge"), called(name="ship"))

    assert record.effect("charge") == done("charge")
    assert record.effect("refund") is None


@pytest.mark.parametrize(
    ("name", "purpose", "is_voided"),
    [
        ("charge", "charge", False),
        (name_of_call("charge", 1), "charge", False),
        (name_of_call("charge", 12), "charge", False),
        (name_of_voided("undo:charge", 1), "undo:charge", True),
        ("charge (call me)", "charge (call me)", False),
    ],
)
def test_an_effect_knows_what_it_was_asked_for_as(name: str, purpose: str, is_voided: bool) -> None:
    effect = called(name=name)

    assert (effect.purpose, effect.is_voided) == (purpose, is_voided)


@pytest.mark.parametrize(
    ("effects", "opened"), [((), None), ((done(),), None), ((done(), called(name="ship")), called(name="ship"))]
)
def test_the_open_effect_is_the_one_without_a_verdict(effects: tuple[Effect, ...], opened: Effect | None) -> None:
    assert dirty(*effects).open_effect == opened


def test_a_record_with_a_rejection_is_being_undone() -> None:
    assert running(rejection=b"").is_undoing
    assert not running().is_undoing


@pytest.mark.parametrize(
    ("effect_class", "may"),
    [
        (EffectClass.TRANSACTIONAL, True),
        (EffectClass.STICKY, True),
        (EffectClass.SUCCESS_ONLY, True),
        (EffectClass.FENCED, True),
        (EffectClass.QUERYABLE, False),
        (EffectClass.OPAQUE, False),
    ],
)
def test_only_some_classes_may_be_called_again(effect_class: EffectClass, may: bool) -> None:
    assert effect_class.may_be_called_again is may
    assert called(effect_class).may_be_called_again(NOW) is may


@pytest.mark.parametrize(("recall_until", "may"), [(None, True), (NOW + 1, True), (NOW, False), (NOW - 1, False)])
def test_a_second_call_needs_a_downstream_that_still_remembers_the_first_f062(
    recall_until: int | None, may: bool
) -> None:
    assert called(recall_until=recall_until).may_be_called_again(NOW) is may


@pytest.mark.parametrize(
    ("record", "may"),
    [
        (running(), True),
        (running(mode=EffectsMode.OPAQUE, is_dirty=True), False),
        (dirty(), True),
        (dirty(done()), True),
        (dirty(called()), True),
        (dirty(called(EffectClass.QUERYABLE)), False),
        (dirty(called(recall_until=NOW)), False),
    ],
    ids=["clean", "opaque", "no effect", "known", "repeatable", "unrepeatable", "forgotten downstream"],
)
def test_a_successor_may_run_only_what_cannot_happen_twice(record: Record, may: bool) -> None:
    assert record.may_resume(NOW) is may


def test_nothing_sensitive_shows_in_a_repr_sec26() -> None:
    shown = repr(running(outcome=b"paid", rejection=b"declined", tenant="acct_1", key="secret-key"))

    assert not [word for word in ("paid", "declined", "acct_1", "secret-key", "amount") if word in shown]


def test_what_is_told_of_a_record_shows_no_answer_in_a_repr_sec26() -> None:
    told = Told(
        record_id=running().record_id,
        operation="create_payment",
        outcome_kind=OutcomeKind.SUCCEEDED,
        outcome=b"paid",
        expires_at=NOW,
    )

    assert "paid" not in repr(told)


def test_the_first_call_of_an_effect_has_its_plain_name_and_each_later_one_its_own() -> None:
    assert [name_of_call("charge", number) for number in (1, 2, 3)] == ["charge", "charge (call 2)", "charge (call 3)"]
    assert name_of_voided("charge", 1) == "charge (voided 1)"
