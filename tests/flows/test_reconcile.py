"""Leading a record out of doubt."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nebis import Query
from nebis.core.answers import Kept, Locked, Refusal, Refused
from nebis.core.record import EffectClass, EffectVerdict, OutcomeKind, State
from nebis.core.verbs import AbsenceProof, DidNotHappen, EffectKnown, Ended, Resolve, Verdict
from nebis.flows.reconcile import Inquiry, Reconciled, reconcile
from nebis.ports.asks import CallEffect
from nebis.ports.observer import DoubtEnded, DoubtExpired
from tests.flows.scripted import Line, ScriptedWorld
from tests.flows.specimens import DRAWN, NOW, owned, quick
from tests.flows.test_undo import CHARGED

POLICY = quick(doubt_deadline=timedelta(hours=72)).policy
OPEN = replace(CHARGED, effect_class=EffectClass.QUERYABLE, derived_key="our key", verdict=None, result=None)
DOUBTFUL = owned(
    quick(), state=State.IN_DOUBT, is_dirty=True, doubt_since=NOW, doubt_reason="owner-gone", effects=(OPEN,)
)
ABOUT = {"operation": "pay", "operation_id": str(DOUBTFUL.record_id)}
SOON = NOW + 60_000_000
AFTER_THE_DEADLINE = NOW + 72 * 3600 * 1_000_000


def inquiry(find: Callable[[str], Any], **ways: Any) -> Inquiry:
    return Inquiry(query=Query(find=find, **ways), encode=lambda value: f"stored {value}".encode())


def nothing(_: str) -> None:
    return None


def verdicts(world: ScriptedWorld) -> list[Verdict]:
    return [verb.verdict for verb in world.verbs if isinstance(verb, Resolve)]


def test_effect_that_the_downstream_shows_happened() -> None:
    asked: list[str] = []

    def find(key: str) -> str:
        asked.append(key)
        return "the charge"

    world = ScriptedWorld(Kept())

    assert world.run(reconcile(DOUBTFUL, POLICY, inquiry(find), SOON)) is Reconciled.GOES_ON
    assert asked == ["our key"]
    [verb] = world.verbs
    assert verb == Resolve(
        identity=DOUBTFUL.identity,
        record_id=DOUBTFUL.record_id,
        fence_seen=DOUBTFUL.fence,
        nonce=DRAWN.nonce,
        verdict=EffectKnown(verdict=EffectVerdict.HAPPENED, result=b"stored the charge"),
        retention=POLICY.kept,
        effect_seen="charge",
    )
    assert world.told == [DoubtEnded(**ABOUT, effect="charge", verdict=EffectVerdict.HAPPENED)]


def test_absence_alone_never_ends_the_doubt() -> None:
    """F065: the first call may still be on its way."""
    world = ScriptedWorld()

    assert world.run(reconcile(DOUBTFUL, POLICY, inquiry(nothing), SOON)) is Reconciled.STILL_IN_DOUBT
    assert world.verbs == []


@pytest.mark.parametrize(
    ("ways", "now", "proof"),
    [
        ({"void": nothing}, SOON, AbsenceProof.VOIDED),
        ({"void": lambda _: True}, SOON, AbsenceProof.VOIDED),
        ({"void": lambda _: False}, SOON, None),
        ({"settled_after": timedelta(seconds=60)}, SOON, AbsenceProof.SETTLED),
        ({"settled_after": timedelta(seconds=61)}, SOON, None),
        ({"void": lambda _: False, "settled_after": timedelta(seconds=60)}, SOON, AbsenceProof.SETTLED),
    ],
)
def test_absence_that_is_final_ends_the_doubt(ways: dict[str, Any], now: int, proof: AbsenceProof | None) -> None:
    world = ScriptedWorld(Kept())

    became = world.run(reconcile(DOUBTFUL, POLICY, inquiry(nothing, **ways), now))

    assert became is (Reconciled.GOES_ON if proof else Reconciled.STILL_IN_DOUBT)
    assert verdicts(world) == ([DidNotHappen(proof=proof)] if proof else [])
    if proof:
        assert world.told == [DoubtEnded(**ABOUT, effect="charge", verdict=EffectVerdict.DID_NOT_HAPPEN)]


@pytest.mark.parametrize("way", ["find", "void"])
def test_downstream_that_cannot_be_asked_proves_nothing(way: str) -> None:
    def unreachable(_: str) -> None:
        raise ConnectionError

    ways = {"find": nothing, "void": nothing, way: unreachable}
    world = ScriptedWorld()

    with pytest.raises(ConnectionError):
        world.run(reconcile(DOUBTFUL, POLICY, inquiry(**ways), AFTER_THE_DEADLINE))

    assert world.verbs == []


@pytest.mark.parametrize("effects", [(), (OPEN,)])
def test_doubt_that_nobody_can_ask_about_ends_at_its_deadline(effects: tuple[Any, ...]) -> None:
    record = replace(DOUBTFUL, effects=effects)
    world = ScriptedWorld(Kept())

    assert world.run(reconcile(record, POLICY, None, AFTER_THE_DEADLINE - 1)) is Reconciled.STILL_IN_DOUBT
    assert world.verbs == []
    assert world.run(reconcile(record, POLICY, None, AFTER_THE_DEADLINE)) is Reconciled.EXPIRED
    [verdict] = verdicts(world)
    assert isinstance(verdict, Ended)
    assert verdict.outcome.kind is OutcomeKind.UNKNOWN
    assert world.told == [DoubtExpired(**ABOUT, reason="owner-gone")]
    assert not world.of(CallEffect)


def test_doubt_without_an_open_effect_is_not_asked_about() -> None:
    """Such as `undo-failed`: there is nothing that a downstream could say."""
    record = replace(DOUBTFUL, effects=())
    world = ScriptedWorld()

    assert world.run(reconcile(record, POLICY, inquiry(nothing), SOON)) is Reconciled.STILL_IN_DOUBT
    assert not world.of(CallEffect)


@pytest.mark.parametrize("answer", [Refused(reason=Refusal.COMPLETED, found=DOUBTFUL), Locked()])
@pytest.mark.parametrize(("asks", "now"), [(inquiry(lambda _: "the charge"), SOON), (None, AFTER_THE_DEADLINE)])
def test_record_that_moved_on_meanwhile_is_left_alone(answer: Line, asks: Inquiry | None, now: int) -> None:
    """A late owner that still completes holds the truth."""
    world = ScriptedWorld(answer)

    assert world.run(reconcile(DOUBTFUL, POLICY, asks, now)) is Reconciled.MOVED_ON
    assert world.told == []
