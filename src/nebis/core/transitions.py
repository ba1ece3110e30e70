"""The state machine: one pure function that says what any verb does to one record."""

from __future__ import annotations

from typing import assert_never

from nebis.core.ageing import expire, forget, purge
from nebis.core.answers import Answer
from nebis.core.claiming import claim, take_over
from nebis.core.owning import (
    attach,
    checkpoint,
    complete,
    doubt,
    intend,
    release,
    renew,
    suspend,
    turn_back,
    withdraw,
)
from nebis.core.record import Fence, Record
from nebis.core.resolving import resolve
from nebis.core.step import Step
from nebis.core.verbs import (
    Attach,
    Checkpoint,
    Claim,
    Complete,
    Doubt,
    Expire,
    Forget,
    Intend,
    Purge,
    Release,
    Renew,
    Resolve,
    Suspend,
    TakeOver,
    TurnBack,
    Verb,
    Withdraw,
)


def transition(record: Record | None, verb: Verb, now: int, fence: Fence) -> Step[Answer]:  # noqa: C901 - one line per verb
    """Decide what `verb` makes of `record` at the store's `now`; `fence` is used only where ownership changes."""
    match verb:
        case Claim():
            return claim(record, verb, now, fence)
        case TakeOver():
            return take_over(record, verb, now, fence)
        case Renew():
            return renew(record, verb, now)
        case Intend():
            return intend(record, verb, now)
        case Checkpoint():
            return checkpoint(record, verb)
        case Complete():
            return complete(record, verb, now)
        case Suspend():
            return suspend(record, verb, now)
        case Release():
            return release(record, verb)
        case Withdraw():
            return withdraw(record, verb)
        case Doubt():
            return doubt(record, verb, now)
        case TurnBack():
            return turn_back(record, verb)
        case Attach():
            return attach(record, verb, now)
        case Resolve():
            return resolve(record, verb, now, fence)
        case Expire():
            return expire(record, now)
        case Purge():
            return purge(record, now)
        case Forget():
            return forget(record, now)
        case _:
            assert_never(verb)
