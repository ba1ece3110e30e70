"""Wake-ups inside one process."""

import pytest

from nebis.core.record import Outcome, OutcomeKind
from nebis.core.verbs import Attach, Complete, Doubt, Release, Renew, Suspend, Verb, Withdraw
from nebis.runtime.signals import Signals
from tests.flows.specimens import DRAWN, declaration, owned, request_of

REQUEST = request_of()
RECORD = owned(REQUEST)
IDENTITY = RECORD.identity
OWNER = RECORD.ownership
OUTCOME = Outcome(kind=OutcomeKind.SUCCEEDED, body=b"")


def test_all_who_wait_for_a_record_are_woken_and_nobody_else() -> None:
    signals, woken = Signals(), list[str]()
    signals.join(IDENTITY, lambda: woken.append("first"), 10)
    signals.join(IDENTITY, lambda: woken.append("second"), 10)
    signals.join(b"another", lambda: woken.append("stranger"), 10)

    signals.wake(IDENTITY)

    assert woken == ["first", "second"]


def test_as_many_wait_as_are_allowed() -> None:
    """SEC36: per record; whoever leaves makes room."""
    signals = Signals()

    def wake() -> None: ...

    assert signals.join(IDENTITY, wake, 1)
    assert not signals.join(IDENTITY, print, 1)
    assert signals.join(b"another", print, 1)
    signals.leave(IDENTITY, wake)
    assert signals.join(IDENTITY, print, 1)


def test_those_who_left_leave_nothing_behind() -> None:
    signals, woken = Signals(), list[str]()

    def wake() -> None:
        woken.append("gone")

    signals.join(IDENTITY, wake, 1)
    signals.leave(IDENTITY, wake)
    signals.leave(IDENTITY, wake)
    signals.wake(IDENTITY)

    assert woken == []
    assert signals._waiting == {}


@pytest.mark.parametrize(
    "verb",
    [
        Complete(ownership=OWNER, outcome=OUTCOME, retention=declaration().policy.kept),
        Release(ownership=OWNER),
        Withdraw(ownership=OWNER),
        Suspend(ownership=OWNER),
        Doubt(ownership=OWNER, reason="timeout"),
    ],
)
def test_end_of_an_attempt_wakes(verb: Verb) -> None:
    signals, woken = Signals(), list[str]()
    signals.join(IDENTITY, lambda: woken.append("woken"), 1)

    signals.applied(verb)

    assert woken == ["woken"]


@pytest.mark.parametrize(
    "verb",
    [
        REQUEST.claim(DRAWN.record_id, DRAWN.nonce),
        Renew(ownership=OWNER, lease_us=1),
        Attach(ownership=OWNER),
    ],
)
def test_whatever_leaves_the_attempt_running_wakes_nobody(verb: Verb) -> None:
    """Two waiters that woke each other with every claim would ask the store without a pause."""
    signals, woken = Signals(), list[str]()
    signals.join(IDENTITY, lambda: woken.append("woken"), 1)

    signals.applied(verb)

    assert woken == []
