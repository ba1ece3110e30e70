"""What comes after its attempt lost the record is kept for people (F050)."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from nebis import NotYet
from nebis.core.envelope import unseal
from nebis.ports.observer import LateResult
from nebis.ports.store import IndefiniteFailure
from tests.cli.command import nebis
from tests.worker.shops import BlockingShop, Do, Shop, new_key

Make = Callable[..., Shop]


def told_late(made: Shop) -> list[str | None]:
    return [event.effect for event in made.told if isinstance(event, LateResult)]


def test_result_of_an_effect_that_comes_too_late_is_kept_and_changes_nothing(shop: Make) -> None:
    made = shop()
    made.bank.after["charge"] = made.thief()

    with pytest.raises(NotYet):
        made.pay(new_key())

    record = made.stored()
    [late] = made.late_results()
    assert (late.effect, unseal(late.body, limit_bytes=1000)) == ("charge", b'"charge done"')
    assert late.fence < record.fence
    assert late.kept_at >= record.created_at
    assert [effect.is_open for effect in record.effects] == [True]
    assert told_late(made) == ["charge"]


def test_outcome_that_comes_too_late_is_kept_and_no_answer(shop: Make) -> None:
    made = shop()
    made.plot.ends = made.thief()

    with pytest.raises(NotYet):
        made.pay(new_key())

    [late] = made.late_results()
    assert (late.effect, unseal(late.body, limit_bytes=1000)) == (None, b'"charge done"')
    assert made.stored().outcome is None
    assert told_late(made) == [None]


def test_store_that_cannot_keep_a_late_result_fails_nobody(
    shop: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller is told what it would have been told anyway; the log names the record."""
    made = shop()
    made.plot.ends = made.thief()
    store = made.backend().store

    def fails(*_: object, **__: object) -> None:
        raise IndefiniteFailure("the disk is full")

    monkeypatch.setattr(store, "keep_late_result", fails)
    with caplog.at_level(logging.WARNING, "nebis"), pytest.raises(NotYet):
        made.pay(new_key())

    assert f"a late result of {made.stored().record_id} was not kept" in caplog.text


def test_late_result_is_shown_to_people(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'nebis.db'}"
    made = BlockingShop()
    made.open(url)
    made.plot.steps = (Do("charge"),)
    made.bank.after["charge"] = made.thief()
    with pytest.raises(NotYet):
        made.pay(new_key())
    record, [late] = made.stored(), made.late_results()
    made.close()

    shown = nebis("show", str(record.record_id), store=url)

    assert shown.status == 0
    expected = f"result of 'charge' came too late from fence {late.fence}: {len(late.body)} bytes kept, not used"
    assert expected in shown.stdout
