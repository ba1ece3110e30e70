"""What is counted of a claim's answer is what its event would have counted for."""

import pytest

from nebis.core.answers import (
    ClaimAnswer,
    Doubtful,
    Gone,
    Grant,
    Granted,
    Replay,
    Reused,
    Running,
    Unreadable,
)
from nebis.ports.observer import claimed
from nebis.runtime.counting import Counting
from nebis.runtime.signals import Signals
from tests.core.records import completed, doubted, expired, running

ANSWERS: list[ClaimAnswer] = [
    *(Granted(record=running(), how=how) for how in Grant),
    Replay(record=completed()),
    Running(record=running(), lease_left_us=1),
    Reused(record=running()),
    Doubtful(record=doubted()),
    Gone(record=expired()),
    Unreadable(record=running()),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: getattr(answer, "how", type(answer).__name__))
def test_an_answer_counts_as_its_event_does(answer: ClaimAnswer) -> None:
    by_answer, by_event = Counting(), Counting()

    by_answer.claimed(answer)
    by_event(claimed(answer))

    assert by_answer.has_any is by_event.has_any
    assert by_answer.take() == by_event.take()


def test_somebody_waits_until_the_last_one_left() -> None:
    signals = Signals()
    seen = [signals.is_anybody_waiting]

    signals.join(b"key", print, limit=1)
    seen.append(signals.is_anybody_waiting)
    signals.leave(b"key", print)
    seen.append(signals.is_anybody_waiting)

    assert seen == [False, True, False]
