"""One local step: rows and checkpoint in one guarded transaction."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nebis import ClaimLost, EffectInDoubt, ResultUnstorable, StoreUnavailable
from nebis.core.answers import Kept, Refusal, Refused
from nebis.core.record import Effect, EffectClass, EffectVerdict, Record
from nebis.core.verbs import Checkpoint, Doubt
from nebis.flows.ledger import Ledger
from nebis.flows.plan import EffectPlan
from nebis.flows.settle import DOUBT_CODE_CHANGED
from nebis.flows.step import run_step
from nebis.ports.asks import Barrier, CallEffect, TransactionCommit, TransactionHold, TransactionRollback
from nebis.ports.observer import EffectKnown, EffectReplayed
from nebis.ports.store import IndefiniteFailure
from tests.flows.scripted import ScriptedWorld
from tests.flows.specimens import owned, quick
from tests.flows.test_effect import encoded, plan, raising

REQUEST = quick()
RECORD = owned(REQUEST)
DONE = Effect(
    name="reserve",
    effect_class=EffectClass.TRANSACTIONAL,
    derived_key="",
    digest=bytes(32),
    is_outstanding=False,
    recall_until=None,
    verdict=EffectVerdict.HAPPENED,
    result=b"reserved",
)
UNKNOWN = IndefiniteFailure("the connection broke")


def step(call: Callable[[Effect], Any] = lambda _: b"reserved") -> EffectPlan:
    return plan(call, name="reserve", effect_class=EffectClass.TRANSACTIONAL, encode=encoded)


def run(world: ScriptedWorld, made: EffectPlan, *known: Effect) -> bytes:
    record: Record = replace(RECORD, effects=known)
    return world.run(run_step(record, REQUEST.policy, Ledger(record), made))


def guarded(*script: Kept | Refused, **says: Any) -> ScriptedWorld:
    return ScriptedWorld(*script, says={TransactionHold: [RECORD], **says.get("says", {})})


def test_rows_and_checkpoint_are_committed_together() -> None:
    world = guarded(Kept())

    assert run(world, step()) == b"reserved"
    [checkpoint] = world.verbs
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.transactional_digest == bytes(32)
    assert len(world.of(TransactionCommit)) == 1
    assert [type(event) for event in world.told] == [EffectKnown]


def test_step_that_an_earlier_attempt_committed_is_not_run() -> None:
    world = guarded()

    assert run(world, step(), DONE) == b"reserved"
    assert not world.of(CallEffect)
    assert [type(event) for event in world.told] == [EffectReplayed]


@pytest.mark.parametrize(
    ("made", "error"), [(step(raising(KeyError("x"))), KeyError), (step(lambda _: "no bytes"), ResultUnstorable)]
)
def test_step_that_fails_leaves_nothing(made: EffectPlan, error: type[Exception]) -> None:
    world = guarded()

    with pytest.raises(error):
        run(world, made)

    assert world.verbs == []
    assert len(world.of(TransactionRollback)) == 1


def test_step_with_other_arguments_than_before_is_in_doubt() -> None:
    world = guarded(Kept())

    with pytest.raises(EffectInDoubt):
        run(world, replace(step(), digest=b"x" * 32), DONE)

    assert world.verbs == [Doubt(ownership=RECORD.ownership, reason=DOUBT_CODE_CHANGED)]


def test_step_of_an_attempt_that_lost_its_record_commits_nothing() -> None:
    world = guarded(Refused(reason=Refusal.FENCED, found=RECORD))

    with pytest.raises(ClaimLost):
        run(world, step())

    assert not world.of(TransactionCommit)


def test_lost_commit_of_a_step_is_learnt_from_its_checkpoint() -> None:
    """F012, F013: decided under the lock."""
    happened = {TransactionCommit: [UNKNOWN], Barrier: [replace(RECORD, effects=(DONE,))]}
    did_not = {TransactionCommit: [UNKNOWN], Barrier: [RECORD]}

    assert run(guarded(Kept(), says=happened), step()) == b"reserved"
    with pytest.raises(StoreUnavailable):
        run(guarded(Kept(), says=did_not), step())
