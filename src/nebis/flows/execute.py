"""Run an operation once for a key, however often it is asked: claim, run, complete; or replay, refuse, wait."""

from __future__ import annotations

from nebis.core.answers import Doubtful, Gone, Granted, Replay, Reused, Running, Unreadable
from nebis.core.record import Record
from nebis.flow import Flow
from nebis.flows.enter import enter
from nebis.flows.request import Ending, Request, finished
from nebis.flows.settle import complete, rendered
from nebis.flows.undo import conclude, undo
from nebis.ports.asks import Raised, Returned, RunHandler, Settled, make_attend, make_run_handler, make_tell_claimed


def execute(request: Request) -> Flow[Ending]:
    """Own the record and run the handler outside any transaction of the claim (C2), or answer without running.

    The same as `begin` and `run`, written out: a flow inside of a flow is paid again at each of its asks, and this is
    the way of nearly every request.
    """
    answer = yield from enter(request)
    if not isinstance(answer, Granted):
        yield make_tell_claimed(answer)
        return without_running(answer)
    record, policy = answer.record, request.policy
    yield make_attend(answer, policy.lease_us, policy.renewal_seconds)
    if record.rejection is not None:
        return (yield from undo(request, record))
    end: Returned[object] | Raised | Settled = yield make_run_handler(record)
    return (yield from concluded(request, record, end))


def concluded(request: Request, record: Record, end: Returned[object] | Raised | Settled) -> Flow[Ending]:
    """Return the flow that ends an attempt: `conclude`, or what that comes to after a plain return, without the way.

    A result is rendered here and now.
    """
    if isinstance(end, Returned) and not end.effects and end.never_asked is None and not request.seats:
        return complete(request, record, rendered(request, end.value))
    return conclude(request, record, end)


def begin(request: Request) -> Flow[Record | Ending]:
    """Come to own the record, which is renewed from now on; or say how the request ends without running.

    A record that is being undone is undone to its end here, since its handler never runs again.
    """
    answer = yield from enter(request)
    if not isinstance(answer, Granted):
        yield make_tell_claimed(answer)
        return without_running(answer)
    return (yield from attend(request, answer))


def attend(request: Request, granted: Granted) -> Flow[Record | Ending]:
    """Keep a record alive that was just granted, and return it, or how it ended where only undoing was left."""
    record, policy = granted.record, request.policy
    yield make_attend(granted, policy.lease_us, policy.renewal_seconds)
    return (yield from undo(request, record)) if record.is_undoing else record


def run(request: Request, record: Record) -> Flow[Ending]:
    """Give the handler its turn as the owner of the record, and store how it ended."""
    end: Returned[object] | Raised | Settled = yield RunHandler(record)
    return (yield from conclude(request, record, end))


def without_running(answer: Replay | Running | Reused | Doubtful | Gone | Unreadable) -> Ending:
    """Say how a request ends that found its key taken."""
    if isinstance(answer, Replay):
        return finished(answer.record, is_replay=True)
    return answer
