"""Send one verb until the store gave a definite answer, or the budget for asking is spent."""

from __future__ import annotations

from typing import Any, Final

from nebis.core.answers import (
    Answer,
    ClaimAnswer,
    Doubtful,
    GivenUp,
    Gone,
    Granted,
    Intended,
    Kept,
    Locked,
    Refused,
    Replay,
    Reused,
    Running,
    TakeOverAnswer,
    Unreadable,
)
from nebis.core.verbs import Claim, OwnerVerb, Resolve, TakeOver, Verb
from nebis.errors import NotConfirmed, StoreUnavailable
from nebis.flow import Flow
from nebis.ports.asks import Apply, Elapsed, KeepTrying, Pause
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, StoreFailure

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5
LOCKED_CLAIM_SECONDS = 0.2
"""How long a claim asks again while somebody's open transaction holds the row, before it counts as in flight."""


# Made once: a union that is written where it is used is made anew each time.
_CLAIM_ANSWERS: Final = (Granted, Replay, Running, Reused, Doubtful, Gone, Unreadable, Locked)
_OWNER_ANSWERS: Final = (Kept, Intended, Refused)
UNANSWERED: Final = (Locked, StoreFailure)
"""What a first try ends with where the store did not say what became of it."""


def tried(verb: Verb) -> Flow[Any]:
    """Ask once, and return the answer, or the failure in its place."""
    try:
        return (yield Apply(verb))
    except StoreFailure as failure:
        return failure


def send_claim(claim: Claim, budget_seconds: float) -> Flow[ClaimAnswer | Locked]:
    """Claim, and repeat the very same claim while its fate is unknown: the store recognises its nonce.

    A definite failure of the first try ends it at once: nothing was claimed, so nobody has to be kept waiting.
    """
    last = yield from tried(claim)
    return (yield from claim_again(claim, budget_seconds, last))


def claim_again(
    claim: Claim, budget_seconds: float, last: ClaimAnswer | Locked | StoreFailure
) -> Flow[ClaimAnswer | Locked]:
    """Go on with a claim whose first try ended like this."""
    answer = yield from _send_again(
        claim,
        last,
        failed_seconds=budget_seconds,
        locked_seconds=min(LOCKED_CLAIM_SECONDS, budget_seconds),
        gives_up_at_once=True,
    )
    assert isinstance(answer, _CLAIM_ANSWERS)
    return answer


def send_unowned(verb: TakeOver | Resolve, budget_seconds: float) -> Flow[TakeOverAnswer | Kept | Locked]:
    """Ask for somebody else's record, as it was last seen; repeat the very same ask while its fate is unknown.

    Whoever holds the row locked is at work with it, so that is an answer too.
    """
    last = yield from tried(verb)
    answer = yield from _send_again(
        verb,
        last,
        failed_seconds=budget_seconds,
        locked_seconds=min(LOCKED_CLAIM_SECONDS, budget_seconds),
        gives_up_at_once=True,
    )
    assert isinstance(answer, Granted | Doubtful | GivenUp | Kept | Refused | Locked)
    return answer


def send_owned(verb: OwnerVerb, budget_seconds: float) -> Flow[Kept | Intended | Refused]:
    """Send an owner's write until it is answered. Work was done: only the budget ends the trying, not an error.

    Raises `NotConfirmed` when the budget is spent, and leaves the write with the runtime, which goes on sending it:
    until it lands nobody may be told anything (I11).
    """
    last = yield from tried(verb)
    return (yield from insist(verb, budget_seconds, last))


def insist(
    verb: OwnerVerb, budget_seconds: float, last: Kept | Intended | Refused | Locked | StoreFailure
) -> Flow[Kept | Intended | Refused]:
    """Go on with an owner's write whose first try ended like this."""
    try:
        answer = yield from _send_again(
            verb, last, failed_seconds=budget_seconds, locked_seconds=budget_seconds, gives_up_at_once=False
        )
    except StoreFailure as failure:
        yield from KeepTrying(verb)
        raise NotConfirmed(failure.detail) from failure
    if isinstance(answer, Locked):
        yield from KeepTrying(verb)
        raise NotConfirmed("somebody holds the record in an open transaction")
    assert isinstance(answer, _OWNER_ANSWERS)
    return answer


def _send_again(
    verb: Verb,
    last: Answer | Locked | StoreFailure,
    *,
    failed_seconds: float,
    locked_seconds: float,
    gives_up_at_once: bool,
) -> Flow[Answer | Locked]:
    """Ask again with the same nonce after anything but an answer; raise or return the last word.

    The first try is its caller's own, so that the usual request, which needs no other, passes through no flow more.
    """
    began: float | None = None
    pause_seconds = FIRST_PAUSE_SECONDS
    failure: StoreFailure | None = None
    while True:
        if isinstance(last, DefiniteFailure):
            # That this try changed nothing says nothing about an earlier one, which may still land.
            if gives_up_at_once and failure is None:
                raise last
            failure = failure or last
        elif isinstance(last, StoreFailure):
            failure = last
        elif not isinstance(last, Locked):
            return last
        now = yield from Elapsed()
        began = now if began is None else began
        budget_seconds = locked_seconds if failure is None else failed_seconds
        if now - began + pause_seconds > budget_seconds:
            if failure is not None:
                raise failure
            return Locked()
        yield from Pause(pause_seconds)
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
        last = yield from tried(verb)


def as_refusal(failure: StoreFailure) -> StoreUnavailable | NotConfirmed:
    """Translate a failed claim into what its caller should do next."""
    if isinstance(failure, IndefiniteFailure):
        return NotConfirmed(failure.detail)
    return StoreUnavailable(failure.detail)
