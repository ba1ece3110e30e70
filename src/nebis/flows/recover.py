"""Go on with a record whose owner is gone: what a request does, without a client."""

from __future__ import annotations

from dataclasses import dataclass

from nebis.core.answers import Doubtful, GivenUp, Granted, Kept, Locked, Refused
from nebis.core.record import Record, State
from nebis.core.verbs import TakeOver
from nebis.flow import Flow
from nebis.flows.execute import attend, run
from nebis.flows.persist import send_unowned
from nebis.flows.request import Ending, Request
from nebis.policy import Policy, microseconds
from nebis.ports.asks import Draw, Tell
from nebis.ports.observer import DoubtRaised, GaveUp


@dataclass(frozen=True, slots=True)
class MovedOn:
    """Somebody else has the record, or had it meanwhile: there is nothing to do."""


def due_at(record: Record, policy: Policy) -> int:
    """Return when a worker may try a lapsed record: at once the first time, later each time after it.

    What is counted is stored, so that any number of workers back off together.
    """
    if record.recoveries == 0:
        return record.lease_until
    # The exponent is bounded: a limit of a thousand tries must not make a number of a thousand bits.
    doubled_us = microseconds(policy.backoff_first) << min(record.recoveries - 1, 40)
    return record.lease_until + min(doubled_us, microseconds(policy.backoff_longest))


def recover(request: Request, record: Record) -> Flow[Ending | GivenUp | MovedOn]:
    """Take a lapsed record over and run its handler, or finish its undoing; one worker of many gets it (F059).

    Where nobody may go on, the record is put in doubt, or given back to its client once the tries are used up.
    """
    answer = yield from take_over(record, request.policy, request.policy.recoveries_limit)
    if not isinstance(answer, Granted):
        return answer
    begun = yield from attend(request, answer)
    return (yield from run(request, begun)) if isinstance(begun, Record) else begun


def give_up(record: Record, policy: Policy) -> Flow[Doubtful | GivenUp | MovedOn]:
    """Let go of a lapsed record that only its client could go on with, and that nobody asked for in its whole time."""
    answer = yield from take_over(record, policy, recoveries_limit=0)
    assert not isinstance(answer, Granted)  # Without a try left, nobody is granted anything.
    return answer


def take_over(record: Record, policy: Policy, recoveries_limit: int) -> Flow[Granted | Doubtful | GivenUp | MovedOn]:
    """Ask for a lapsed record, as it was seen; tell the observers where that ended it."""
    drawn = yield from Draw()
    verb = TakeOver(
        identity=record.identity,
        record_id=record.record_id,
        fence_seen=record.fence,
        nonce=drawn.nonce,
        lease_us=policy.lease_us,
        recoveries_limit=recoveries_limit,
    )
    answer = yield from send_unowned(verb, policy.confirm_seconds)
    if isinstance(answer, Refused | Locked):
        return MovedOn()
    assert not isinstance(answer, Kept)
    named = {"operation": record.operation, "operation_id": str(record.record_id)}
    if isinstance(answer, Doubtful):
        assert answer.record.state is State.IN_DOUBT
        yield from Tell(DoubtRaised(**named, reason=answer.record.doubt_reason or ""))
    if isinstance(answer, GivenUp):
        yield from Tell(GaveUp(**named))
    return answer
