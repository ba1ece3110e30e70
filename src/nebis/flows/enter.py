"""Come to own a record, or learn what became of it; waits for a running twin where the policy says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from nebis.core.answers import ClaimAnswer, Granted, Locked, Replay, Running
from nebis.core.claiming import compare
from nebis.core.record import State
from nebis.core.verbs import Claim
from nebis.errors import InFlight
from nebis.flow import Flow
from nebis.flows.persist import UNANSWERED, as_refusal, claim_again, tried
from nebis.flows.request import Request
from nebis.flows.welcome import has_passed, welcome
from nebis.ports.asks import AwaitChange, Elapsed, Find, make_apply, make_make_claim
from nebis.ports.store import StoreFailure

FIRST_POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 0.5
RETRY_AFTER_SECONDS = 0.5
"""When to come back to a key that somebody holds in a transaction which has shown nothing of it yet."""

# Made once: it is needed for every request.
_BUSY: Final = (Running, Locked)


def enter(request: Request) -> Flow[ClaimAnswer]:
    """Claim; while a twin runs and the policy allows, wait for it to end and claim again.

    Raises what `welcome` does, and `InFlight` for a key that a transaction holds without a record to show: a twin's
    claim that is not committed yet, or a tombstone that is just being removed. Whatever it will be, it is not ours to
    run now.
    """
    claim: Claim = yield make_make_claim(request.claim)
    if request.deadline is not None or not request.may_begin or request.charges:
        claim = yield from welcome(request, claim)
    answer: ClaimAnswer | Locked | StoreFailure
    try:
        answer = yield make_apply(claim)
    except StoreFailure as failure:
        answer = failure
    if not isinstance(answer, Replay) and not isinstance(answer, Granted):  # As it mostly is: then no more is asked.
        if isinstance(answer, UNANSWERED):
            answer = yield from _claim_again(claim, request, answer)
        if isinstance(answer, _BUSY):
            if claim.will_wait:
                # No lambda, for which every request would have to keep what it needs in cells.
                answer = yield from outlast_twins(claim, request, partial(_claim_once, claim, request), answer)
            if isinstance(answer, Locked):
                raise InFlight(claim.operation, operation_id=None, retry_after_seconds=RETRY_AFTER_SECONDS)
    assert not isinstance(answer, Granted) or answer.record.nonce == claim.nonce  # I6: granted to us and nobody else.
    return answer


def outlast_twins(
    claim: Claim,
    request: Request,
    claim_once: Callable[[], Flow[ClaimAnswer | Locked]],
    answer: ClaimAnswer | Locked,
) -> Flow[ClaimAnswer | Locked]:
    """Claim again, in whichever way, until no twin runs or the policy's patience is over.

    A wake-up is only a hint: polling with a deadline is the truth (F026).
    """
    deadline: float | None = None
    poll_seconds = FIRST_POLL_SECONDS
    while claim.will_wait and isinstance(answer, _BUSY):
        now = yield from Elapsed()
        deadline = _patience_ends(request, now) if deadline is None else deadline
        if now >= deadline:
            return answer
        wait_seconds = min(poll_seconds, deadline - now)
        admitted = yield from AwaitChange(claim.identity, wait_seconds, request.policy.waiters_limit)
        if not admitted or (yield from has_passed(request)):
            return answer
        poll_seconds = min(2 * poll_seconds, LONGEST_POLL_SECONDS)
        answer = yield from claim_once()
    return answer


def _patience_ends(request: Request, now: float) -> float:
    ends = now + request.longest_wait_seconds
    return ends if request.deadline is None else min(ends, request.deadline.at_seconds)


def _claim_once(claim: Claim, request: Request) -> Flow[ClaimAnswer | Locked]:
    return (yield from _claim_again(claim, request, (yield from tried(claim))))


def _claim_again(
    claim: Claim, request: Request, last: ClaimAnswer | Locked | StoreFailure
) -> Flow[ClaimAnswer | Locked]:
    """Go on until there is an answer; `Locked` says that somebody's open transaction has nothing to show for it."""
    try:
        answer = yield from claim_again(claim, request.policy.confirm_seconds, last)
    except StoreFailure as failure:
        raise as_refusal(failure) from failure
    return (yield from _behind_a_lock(claim)) if isinstance(answer, Locked) else answer


def _behind_a_lock(claim: Claim) -> Flow[ClaimAnswer | Locked]:
    """Answer for a row that somebody's open transaction holds.

    A completed record stays what it is, whatever that transaction does with it; otherwise the owner is at work inside
    it, so it is in flight.
    """
    try:
        record = yield from Find(claim.identity)
    except StoreFailure:
        record = None  # That it is held is known already; the read would only have said by whom.
    if record is None:
        return Locked()
    if record.state is State.COMPLETED:
        mismatch = compare(record, claim)
        return Replay(record=record) if mismatch is None else mismatch.answer
    return Running(record=record, lease_left_us=0)
