"""What an attempt knows of its effects."""

from dataclasses import replace

import pytest

from nebis import MisuseError, Rejected
from nebis.core.record import UNDO_PREFIX, Effect, EffectClass, EffectVerdict
from nebis.flows.ledger import CALLS_LIMIT, Ledger
from nebis.ports.asks import Raised, Returned
from tests.flows.specimens import owned, quick

RECORD = owned(quick())
OPEN = Effect(
    name="charge",
    effect_class=EffectClass.STICKY,
    derived_key="the key that was stored first",
    digest=bytes(32),
    is_outstanding=False,
    recall_until=None,
)
CHARGED = replace(OPEN, verdict=EffectVerdict.HAPPENED, result=b"charged")
SENT = replace(CHARGED, name="email")


def ledger(*effects: Effect) -> Ledger:
    return Ledger(replace(RECORD, effects=effects))


def test_end_of_a_handler_says_what_is_known_in_the_order_of_the_first_attempt() -> None:
    kept = ledger(CHARGED)
    kept.start("charge")
    kept.end(is_known=True)
    kept.start("email")
    kept.keep(SENT)
    kept.end(is_known=True)

    assert kept.of(Returned("done")) == Returned("done", None, (CHARGED, SENT))


def test_end_of_a_handler_names_the_recorded_effect_that_it_never_asked_for() -> None:
    error = Rejected("no")

    assert ledger(CHARGED).of(Raised(error)) == Raised(error, "charge", (CHARGED,))


def test_effect_that_was_asked_for_and_stayed_open_was_not_forgotten() -> None:
    """It is the downstream that did not answer, not the code that changed."""
    kept = ledger()
    kept.start("charge")
    kept.keep(OPEN)
    kept.end(is_known=False)

    assert kept.of(Returned("done")) == Returned("done", None, (OPEN,))


@pytest.mark.parametrize(
    ("known", "name", "is_missing"),
    [
        ((), "charge", False),
        ((CHARGED,), "charge", False),
        ((CHARGED,), "charge-renamed", True),
        ((CHARGED,), f"{UNDO_PREFIX}charge", False),
    ],
)
def test_new_effect_before_a_recorded_one_is_a_change_of_code(
    known: tuple[Effect, ...], name: str, is_missing: bool
) -> None:
    """Otherwise a renamed charge would charge again before anybody notices."""
    kept = ledger(*known)
    kept.start(name)

    assert kept.misses(name) is is_missing


def test_effect_that_did_not_happen_may_not_be_asked_for_beside_another() -> None:
    kept = ledger()
    kept.start("charge")
    kept.calls(OPEN)
    kept.never_left("charge")

    with pytest.raises(MisuseError, match="still open"):
        kept.start("email")
    assert kept.of(Returned("done")) == Returned("done")


def test_call_that_never_left_may_be_made_again_under_a_name_of_its_own_but_not_for_ever() -> None:
    """A late copy of the word about the first call must not be taken for one about the second."""
    kept, names = ledger(), []

    for _ in range(CALLS_LIMIT):
        kept.start("charge")
        names.append(kept.stored_name("charge"))
        assert not kept.has_called("charge")
        kept.calls(replace(OPEN, name=names[-1]))
        kept.never_left("charge")
        kept.end(is_known=False)

    assert names[:3] == ["charge", "charge (call 2)", "charge (call 3)"]
    assert len(set(names)) == CALLS_LIMIT
    with pytest.raises(MisuseError, match="let the exception end the attempt"):
        kept.stored_name("charge")


def test_open_call_of_an_earlier_attempt_keeps_the_name_that_it_was_stored_under() -> None:
    later = replace(OPEN, name="charge (call 2)")
    voided = replace(OPEN, name="charge (voided 1)", verdict=EffectVerdict.DID_NOT_HAPPEN, result=b"")
    kept = ledger(voided, later)

    assert kept.start("charge") == later
    assert kept.stored_name("charge") == "charge (call 2)"


def test_burnt_key_is_no_effect_that_anybody_has_to_ask_for() -> None:
    kept = ledger(replace(OPEN, name="charge (voided 1)", verdict=EffectVerdict.DID_NOT_HAPPEN, result=b""))

    assert kept.start("charge") is None
    assert kept.stored_name("charge") == "charge"
    assert kept.never_asked() is None
