"""A handler that asks again for an effect whose call never reached the downstream."""

from collections.abc import Callable

import pytest

from nebis import InDoubt, Queryable, Rejected, Retryable, SuccessOnly, Unrecoverable, days
from nebis.core.record import State
from nebis.effects import Recall
from nebis.ports.observer import EffectKnown
from tests.worker.bank import Crash
from tests.worker.shops import STICKY, Do, Shop, new_key

Make = Callable[..., Shop]
CLASSES = [STICKY, SuccessOnly(days(1)), Queryable(), Unrecoverable()]


def in_turn(*happenings: BaseException | None) -> Callable[[], object]:
    """Raise, or not, one after the other; nothing happens after the last."""
    left = list(happenings)

    def happen() -> None:
        error = left.pop(0) if left else None
        if error is not None:
            raise error

    return happen


def unreachable() -> Retryable:
    return Retryable("connection refused")


@pytest.mark.parametrize("recall", CLASSES, ids=lambda recall: type(recall).__name__)
def test_call_that_never_left_is_made_again_by_the_same_attempt_under_the_same_key(shop: Make, recall: Recall) -> None:
    """E1: whatever the class, for nothing can have happened; the key stays, in case that was wrong."""
    made, key = shop(), new_key()
    made.plot.tries, made.plot.steps = 3, (Do("charge", recall),)
    made.bank.before["charge"] = in_turn(unreachable(), unreachable())

    assert made.pay(key) == "charge done"

    assert made.pay(key) == "charge done"
    assert made.plot.runs == 1
    assert len(made.bank.keys("charge")) == 3
    assert len(set(made.bank.keys("charge"))) == 1
    assert made.bank.done == {"charge": 1}
    assert [event.effect for event in made.told if isinstance(event, EffectKnown)] == ["charge"]


def test_no_after_a_call_that_never_left_is_definite(shop: Make) -> None:
    """F063: no earlier call is under way, so even a bank that forgets its rejections can be quoted."""
    made, key = shop(), new_key()
    made.plot.tries, made.plot.steps = 2, (Do("charge", SuccessOnly(days(1))),)
    made.bank.before["charge"] = in_turn(unreachable(), Rejected("declined"))

    with pytest.raises(Rejected, match="declined"):
        made.pay(key)

    assert made.stored().state is State.COMPLETED


def test_loop_that_never_gets_through_gives_the_key_back(shop: Make) -> None:
    made, key = shop(), new_key()
    made.plot.tries, made.plot.steps = 3, (Do("charge", Unrecoverable()),)
    made.bank.before["charge"] = in_turn(*(unreachable() for _ in range(3)))

    with pytest.raises(Retryable):
        made.pay(key)

    assert made.stored().state is State.AVAILABLE
    assert made.pay(key) == "charge done"
    assert len(set(made.bank.keys("charge"))) == 1


@pytest.mark.parametrize(("recall", "calls"), [(STICKY, 3), (Unrecoverable(), 2)], ids=["Sticky", "Unrecoverable"])
def test_process_that_dies_in_its_second_call_leaves_exactly_that_one_open(
    shop: Make, recall: Recall, calls: int
) -> None:
    """F004: what never left before is no excuse to call again where only one call is allowed."""
    made, key = shop(), new_key()
    made.plot.tries, made.plot.steps = 2, (Do("charge", recall),)
    made.bank.before["charge"] = in_turn(unreachable())
    made.bank.after["charge"] = in_turn(Crash())
    with pytest.raises(Crash):
        made.pay(key)

    while made.stored().state is State.IN_PROGRESS:
        made.work()

    assert len(made.bank.keys("charge")) == calls
    assert len(set(made.bank.keys("charge"))) == 1
    assert made.bank.done == {"charge": 1}
    if recall is STICKY:
        assert made.pay(key) == "charge done"
    else:
        with pytest.raises(InDoubt):
            made.pay(key)
