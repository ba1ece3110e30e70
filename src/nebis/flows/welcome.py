"""What is asked of a request before its key is claimed: that it comes in time, and that it is not one too many."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from nebis.core.record import Outcome, Record, State
from nebis.core.velocity import UNLIMITED, Charge
from nebis.core.verbs import Claim, ExpiredPolicy
from nebis.errors import DeadlinePassed, StoreUnavailable, TokenExpired, TooFast
from nebis.flow import Flow
from nebis.flows.request import Request
from nebis.ports.asks import Elapsed, Find, Tell
from nebis.ports.observer import FoundTooFast
from nebis.ports.store import StoreFailure
from nebis.ports.velocity import ChargeVelocity

_BEGUN = (State.IN_PROGRESS, State.IN_DOUBT, State.COMPLETED)


def welcome(request: Request, claim: Claim) -> Flow[Claim]:
    """Return the claim to make, or raise `DeadlinePassed`, `TokenExpired` or `TooFast`: nothing is recorded then."""
    if (yield from has_passed(request)):
        raise DeadlinePassed(claim.operation)
    if not request.may_begin:
        claim = yield from _begun(claim)
    if request.charges:
        yield from _charge(request, claim)
    return claim


def has_passed(request: Request) -> Flow[bool]:
    """Tell whether nobody waits for the answer any more; without a deadline nobody asks for the time either."""
    return request.deadline is not None and (yield from Elapsed()) >= request.deadline.at_seconds


def weigh(request: Request, outcome: Outcome) -> Flow[None]:
    """Add what was stored to the meters of its tenant."""
    yield from _adjust(request.meters, len(outcome.body))


def leave(request: Request, record: Record) -> Flow[None]:
    """Give back the seat of an attempt that has ended; only the first one of a key has taken one."""
    if record.attempts == 1:
        yield from _adjust(request.seats, -1)


def _adjust(charges: tuple[Charge, ...], weight: int) -> Flow[None]:
    """Count what has happened already: whatever the limit, and a count that is lost is only a lost count."""
    if charges:
        with suppress(StoreFailure):
            yield from ChargeVelocity(
                [replace(charge, weight=weight, limit=UNLIMITED) for charge in charges], identity=None
            )


def _begun(claim: Claim) -> Flow[Claim]:
    """Let an expired token ask for what it began in time, and begin nothing."""
    try:
        record = yield from Find(claim.identity)
    except StoreFailure as failure:
        raise StoreUnavailable(failure.detail) from failure
    if record is None or record.state not in _BEGUN:
        raise TokenExpired
    return replace(claim, terms=replace(claim.terms, when_expired=ExpiredPolicy.REFUSE))


def _charge(request: Request, claim: Claim) -> Flow[None]:
    try:
        wait_us = yield from ChargeVelocity(request.charges, identity=claim.identity)
    except StoreFailure as failure:
        # It may have been counted all the same; nothing was claimed.
        raise StoreUnavailable(failure.detail) from failure
    if wait_us is not None:
        # What is in flight ends long before it would be forgotten.
        soonest_us = min(wait_us, request.policy.lease_us) if request.seats else wait_us
        yield from Tell(FoundTooFast(operation=claim.operation, operation_id=str(claim.record_id)))
        raise TooFast(claim.operation, retry_after_seconds=soonest_us / 1_000_000)
