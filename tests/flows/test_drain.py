"""Letting go of what a process will not finish."""

import pytest

from nebis.core.answers import Kept, Locked, Refusal, Refused
from nebis.core.verbs import Release, Suspend, Verb
from nebis.flows.drain import let_go
from tests.flows.scripted import Line, ScriptedWorld
from tests.flows.specimens import owned, quick

RECORD = owned(quick())


def refused(reason: Refusal) -> Refused:
    return Refused(reason=reason, found=RECORD)


@pytest.mark.parametrize(
    ("script", "is_let_go", "sent"),
    [
        ([Kept()], True, [Release]),
        ([refused(Refusal.DIRTY), Kept()], True, [Release, Suspend]),
        ([refused(Refusal.UNDOING), Kept()], True, [Release, Suspend]),
        ([refused(Refusal.DIRTY), refused(Refusal.NOT_RESUMABLE)], False, [Release, Suspend]),
        ([refused(Refusal.FENCED)], False, [Release]),
        ([Locked()], False, [Release]),
    ],
)
def test_clean_is_given_back_and_dirty_is_suspended(
    script: list[Line], is_let_go: bool, sent: list[type[Verb]]
) -> None:
    """F076, F078: what is dirty is never released, and what nobody may resume keeps its lease."""
    world = ScriptedWorld(*script)

    assert world.run(let_go(RECORD.ownership)) is is_let_go
    assert [type(verb) for verb in world.verbs] == sent
