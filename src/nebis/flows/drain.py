"""Let go of what a process will not finish, so that whoever comes next need not wait for the lease."""

from __future__ import annotations

from nebis.core.answers import Kept, Refusal, Refused
from nebis.core.record import Ownership
from nebis.core.verbs import Release, Suspend
from nebis.flow import Flow
from nebis.ports.asks import Apply


def let_go(ownership: Ownership) -> Flow[bool]:
    """Give back a clean record and suspend a dirty one that can be resumed (F078); False if neither may be done.

    The attempt may still be running: whatever it writes after a successor came is refused by its fence.
    """
    answer = yield from Apply(Release(ownership=ownership))
    if isinstance(answer, Refused) and answer.reason in (Refusal.DIRTY, Refusal.UNDOING):
        answer = yield from Apply(Suspend(ownership=ownership))
    return isinstance(answer, Kept)
